/* SPDX-License-Identifier: Apache-2.0 */
#include "effect.h"

/* Sums of less than that tell nothing; ms. */
#define OBSERVED_MS 60000

/* With a weight of 1 beside 384 it is next to nothing; with none it is all. */
#define WAITING_PERCENT 80

void effect_add(struct effect *e, bool active, uint64_t ms, uint64_t us)
{
	*(active ? &e->active_ms : &e->waiting_ms) += ms;
	*(active ? &e->active_us : &e->waiting_us) += us;
}

bool effect_none(const struct effect *e)
{
	if (e->active_ms < OBSERVED_MS || e->waiting_ms < OBSERVED_MS || !e->active_us)
		return false;
	return e->waiting_us * 100 / e->waiting_ms >= e->active_us * WAITING_PERCENT / e->active_ms;
}
