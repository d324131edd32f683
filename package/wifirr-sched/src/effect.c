/* SPDX-License-Identifier: Apache-2.0 */
#include "effect.h"

/* Shorter observations tell nothing; ms. This is several turns, because a client may begin one with next to nothing queued. */
#define OBSERVED_MS 10000

/* A weight of 1 against 384 gives next to 0 %; weights without effect give 100 %. */
#define WAITING_PERCENT 80

void effect_observe(struct effect *e, struct effect_client *c, enum policy_level level, bool queued, uint64_t airtime, uint64_t ms)
{
	bool active = level == POLICY_ACTIVE;

	/* only clients whose level did not change in between, and that had a backlog at both looks */
	if ((active || level == POLICY_WAITING) && c->level == level && c->queued && queued && airtime >= c->airtime) {
		*(active ? &e->active_ms : &e->waiting_ms) += ms;
		*(active ? &e->active_us : &e->waiting_us) += airtime - c->airtime;
	}
	*c = (struct effect_client){ .level = level, .queued = queued, .airtime = airtime };
}

bool effect_none(const struct effect *e)
{
	if (e->active_ms < OBSERVED_MS || e->waiting_ms < OBSERVED_MS || !e->active_us)
		return false;
	return e->waiting_us * 100 / e->waiting_ms >= e->active_us * WAITING_PERCENT / e->active_ms;
}
