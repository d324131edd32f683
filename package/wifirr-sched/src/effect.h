/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether airtime weights have any effect: compares the airtime of clients at
 * their turn with that of clients that wait for it with a backlog. Some drivers
 * accept the weights, but their hardware shares out the air (WED, AQL).
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
	/* sums over clients */
	uint64_t active_ms, active_us;		/* time observed, and airtime of frames to them */
	uint64_t waiting_ms, waiting_us;
};

/* A client at the last look; initially all 0. */
struct effect_client {
	enum policy_level level;
	bool queued;
	uint64_t airtime;
};

/* Looks at a client, ms after the last look. airtime: total of the frames to it so far, us. */
void effect_observe(struct effect *e, struct effect_client *c, enum policy_level level, bool queued, uint64_t airtime, uint64_t ms);
/* Weights have no effect. Also false while that is not known yet. */
bool effect_none(const struct effect *e);

#ifdef __cplusplus
}
#endif
#endif
