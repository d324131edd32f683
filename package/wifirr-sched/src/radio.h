/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of a radio rather than an interface: the contention windows of its
 * access points and their clients, for all of them together, and the RTS
 * threshold. contention.c decides; this file measures, sets, and restores.
 * Only the wifirrd that holds the radio's lease does so (lease.h).
 */
#ifndef WIFIRRD_RADIO_H
#define WIFIRRD_RADIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contention.h"

struct wifirr;

/* Takes over the radio of w's device, if there is one. */
void radio_start(struct wifirr *w);
/* Restores the radio. True: something is not restored yet, and the lease still says so. */
bool radio_stop(struct wifirr *w);
/* Measures, decides and sets, when that is due. Returns when it is due next, ms. */
uint64_t radio_tick(struct wifirr *w, uint64_t now, int busy_permille);

struct radio_status {
	const struct contention *contention;	/* NULL: we hold no radio */
	bool larger;				/* larger windows than the operator's are announced */
	unsigned cwmin;				/* announced to clients, slots */
	unsigned ap_cwmin;			/* the access point's own, slots */
	unsigned interfaces;			/* on how many interfaces */
	unsigned without_wmm;			/* clients that ignore it */
	uint32_t rts;				/* threshold in force, bytes, or NL80211_RTS_OFF */
	char problem[128];			/* why windows are left alone; "": they are not */
};
void radio_status(struct radio_status *status);

/* Another wifirrd holds the device's radio. */
bool radio_taken(void);

/*
 * Call it before stations of the radio are given the weights in w's config (on),
 * and after they have been restored. -1 and why: another wifirrd holds the radio,
 * or the lease could not be written.
 */
int radio_hold_weights(struct wifirr *w, bool on, char *why, size_t size);

#endif
