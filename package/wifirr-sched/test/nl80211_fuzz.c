/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an answer of nl80211: the first byte has flags, then comes the payload. */
#include <stdlib.h>

#include "../src/nl80211.c"

static void each(void *data, const struct nl80211_station *station)
{
	volatile uint8_t last = station->mac[5];

	(void)data, (void)last;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct station_dump dump = { .each = each };
	struct nl80211_interface interface;
	struct nl80211_wiphy wiphy;
	static struct nl80211 n;
	struct conversation conversation = { .n = &n };
	struct nlmsghdr *nlh;

	if (size < 1)
		return 0;
	nlh = calloc(1, sizeof(*nlh) + size - 1);
	nlh->nlmsg_len = sizeof(*nlh) + size - 1;
	nlh->nlmsg_flags = data[0] << 4;
	memcpy(nlh + 1, data + 1, size - 1);

	on_family(nlh, &n);
	on_interface(nlh, &interface);
	on_wiphy(nlh, &wiphy);
	on_station(nlh, &dump);
	on_error(nlh, &conversation);
	on_done(nlh, &conversation);
	free(nlh);
	return 0;
}
