/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is a radio's and not an interface's: its clients' contention windows, on
 * all its access points together, and the threshold for RTS. contention.c
 * decides; here it is measured, set, and given back.
 *
 * One wifirrd of a radio does so, the one that holds the lock of its lease: a
 * file with what was before, written before the first change, from which a
 * killed one's is given back (restore.c).
 */
#ifndef WIFIRRD_RADIO_H
#define WIFIRRD_RADIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contention.h"

struct wifirr;

/* The radio of w's device, if it has one. */
void radio_start(struct wifirr *w);
/* Gives back. True: hostapd has not confirmed it. */
bool radio_stop(struct wifirr *w);
/* Measures, decides and sets, if it is time to. Returns when it next wants to, ms. */
uint64_t radio_tick(struct wifirr *w, uint64_t now, int busy_permille);

struct radio_status {
	const struct contention *contention;	/* NULL: no radio of ours */
	bool larger;				/* windows than the operator's are announced */
	unsigned cwmin;				/* that clients are told to use, slots */
	unsigned interfaces;			/* that it is announced on */
	unsigned without_wmm;			/* clients that do not take it */
	uint32_t rts;				/* threshold in force, bytes; NL80211_RTS_OFF */
	char problem[128];			/* why windows are left alone; "": they are not */
};
void radio_status(struct radio_status *status);

/* Another wifirrd has the device's radio. */
bool radio_taken(void);
/* One has that radio. */
bool radio_busy(uint32_t wiphy);

/*
 * Before and after weights of w's config are given to stations of the radio.
 * -1 and why: another wifirrd has it, or what was before could not be noted.
 */
int radio_hold_weights(struct wifirr *w, bool on, char *why, size_t size);

/* What killed ones have left on any radio. -1: not all could be given back. */
int radio_restore(void);

#endif
