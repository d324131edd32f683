/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether airtime weights do anything: the air that clients get at their turn,
 * and while they wait for it with something queued all the time. Some drivers
 * take the weights and let their hardware share out the air (WED, AQL).
 *
 * Pure: no I/O, no clock.
 */
#ifndef WIFIRR_EFFECT_H
#define WIFIRR_EFFECT_H

#include <stdbool.h>
#include <stdint.h>

#include "policy.h"

#ifdef __cplusplus
extern "C" {
#endif

struct effect {
	/* sums of clients' times */
	uint64_t active_ms, active_us;		/* observed, and sent to */
	uint64_t waiting_ms, waiting_us;
};

/* A client as it was at the last look; all 0 at first. */
struct effect_client {
	enum policy_level level;
	bool queued;
	uint64_t airtime;
};

/* A look at a client, ms after the last one. airtime: that it was sent to so far, us. */
void effect_observe(struct effect *e, struct effect_client *c, enum policy_level level, bool queued, uint64_t airtime, uint64_t ms);
/* They do nothing. False also while that cannot be told. */
bool effect_none(const struct effect *e);

#ifdef __cplusplus
}
#endif
#endif
