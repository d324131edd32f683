/* SPDX-License-Identifier: Apache-2.0 */
/* Stations of an access point, from nl80211's dumps and events. */
#include "wifirrd.h"

int nl80211_start(struct wifirr *w)
{
	(void)w;
	return -1;
}

void nl80211_stop(struct wifirr *w)
{
	(void)w;
}

void nl80211_expected(struct wifirr *w)
{
	(void)w;
}
