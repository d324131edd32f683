/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the channel is. */
#include "wifirrd.h"

int survey_start(struct wifirr *w)
{
	(void)w;
	return -1;
}

void survey_stop(struct wifirr *w)
{
	(void)w;
}

struct survey survey_get(const struct wifirr *w)
{
	(void)w;
	return (struct survey){
		.busy_permille = POLICY_BUSY_UNKNOWN,
		.rx_permille = POLICY_BUSY_UNKNOWN,
		.tx_permille = POLICY_BUSY_UNKNOWN,
		.wasted_permille = POLICY_BUSY_UNKNOWN,
	};
}
