/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether airtime weights do anything on a driver: how long it sends to active
 * and to waiting clients, of those for whom something is queued. Some drivers
 * take the weights and let their hardware share out the air (WED, AQL).
 *
 * Pure: no I/O, no clock.
 */
#ifndef WIFIRR_EFFECT_H
#define WIFIRR_EFFECT_H

#include <stdbool.h>
#include <stdint.h>

struct effect {
	/* sums of clients' times */
	uint64_t active_ms, active_us;		/* observed, and sent to */
	uint64_t waiting_ms, waiting_us;
};

/* A client for whom something was queued for ms, at its turn or waiting for it; us of that it was sent to. */
void effect_add(struct effect *e, bool active, uint64_t ms, uint64_t us);
/* They do nothing. False also while that cannot be told. */
bool effect_none(const struct effect *e);

#endif
