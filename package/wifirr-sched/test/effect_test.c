/* SPDX-License-Identifier: Apache-2.0 */
/* The conclusion of effect.c from the airtime that clients get. */

#include "expect.h"
#include "../src/effect.h"

/* One active client and ten waiting ones, for some seconds in ticks of 0.1 s, with the given airtime per tick in us. */
static struct effect observed(unsigned seconds, uint64_t active_us, uint64_t waiting_us)
{
	struct effect_client client[11] = { 0 };
	struct effect e = { 0 };

	for (unsigned i = 0; i <= seconds * 10; i++)
		for (unsigned k = 0; k < 11; k++)
			effect_observe(&e, &client[k], k ? POLICY_WAITING : POLICY_ACTIVE, true, i * (k ? waiting_us : active_us), 100);
	return e;
}

int main(void)
{
	struct effect e = { 0 };

	expect("nothing observed", effect_none(&e), false);
	e = observed(100, 80000, 200);
	expect("the active one gets the air", effect_none(&e), false);
	e = observed(100, 9000, 9000);
	expect("all get the same", effect_none(&e), true);
	e = observed(9, 9000, 9000);
	expect("too short", effect_none(&e), false);
	e = observed(100, 9000, 7000);
	expect("a little less", effect_none(&e), false);
	e = observed(100, 0, 0);
	expect("a driver that does not count", effect_none(&e), false);
	e = observed(100, 5000, 9000);
	expect("the wrong way round", effect_none(&e), true);

	/* with nothing queued at either look, or another level, nothing is known */
	e = (struct effect){ 0 };
	for (unsigned i = 0; i < 1000; i++) {
		static struct effect_client active, waiting, other;

		effect_observe(&e, &active, POLICY_ACTIVE, i % 2, i * 9000, 100);
		effect_observe(&e, &waiting, i % 2 ? POLICY_WAITING : POLICY_ACTIVE, true, i * 9000, 100);
		effect_observe(&e, &other, POLICY_SOON, true, i * 9000, 100);
	}
	expect("never all the time", e.active_ms || e.waiting_ms, false);

	return verdict();
}
