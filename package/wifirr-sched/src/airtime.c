/* SPDX-License-Identifier: Apache-2.0 */
/* The airtime backend: per-station weights in mac80211, through nl80211. */
#include <stdio.h>

#include "wifirrd.h"

static int start(struct wifirr *w, char *reason, size_t size)
{
	(void)w;
	snprintf(reason, size, "airtime: not in this build");
	return -1;
}

static int apply(struct wifirr *w, const uint16_t *ids, size_t n)
{
	(void)w, (void)ids, (void)n;
	return -1;
}

static int read_counters(struct wifirr *w)
{
	(void)w;
	return -1;
}

static void stop(struct wifirr *w)
{
	(void)w;
}

const struct backend airtime_backend = {
	.name = "airtime",
	.start = start,
	.apply = apply,
	.read = read_counters,
	.stop = stop,
};
