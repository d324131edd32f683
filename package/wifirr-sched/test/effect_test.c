/* SPDX-License-Identifier: Apache-2.0 */
/* What airtime.c concludes from the air that clients get. */
#include <stdio.h>

#include "../src/effect.h"

static unsigned failures;

static void expect(const char *what, bool got, bool wanted)
{
	if (got == wanted)
		return;
	printf("effect: %s: %d, not %d\n", what, got, wanted);
	failures++;
}

/* One active and ten that wait, for so many seconds, in ticks of 0.1 s. */
static struct effect observed(unsigned seconds, uint64_t active_us, uint64_t waiting_us)
{
	struct effect e = { 0 };

	for (unsigned i = 0; i < seconds * 10; i++) {
		effect_add(&e, true, 100, active_us);
		for (unsigned k = 0; k < 10; k++)
			effect_add(&e, false, 100, waiting_us);
	}
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
	e = observed(50, 9000, 9000);
	expect("too short", effect_none(&e), false);
	e = observed(100, 9000, 7000);
	expect("a little less", effect_none(&e), false);
	e = observed(100, 0, 0);
	expect("a driver that does not count", effect_none(&e), false);
	e = observed(100, 5000, 9000);
	expect("the wrong way round", effect_none(&e), true);

	printf("effect: %s\n", failures ? "FAILED" : "ok");
	return failures ? 1 : 0;
}
