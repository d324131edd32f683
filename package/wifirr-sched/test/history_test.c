/* SPDX-License-Identifier: Apache-2.0 */
/* The history ring: means, gaps, unknown values, and its bound. */
#include "expect.h"
#include "history.h"

static struct history h;

int main(void)
{
	const uint64_t begin = 5000;

	/* the mean of a minute of looks; unknown values do not count */
	for (unsigned i = 0; i < 60; i++)
		history_look(&h, begin + i * 1000, (int[]){ 10 * (i % 2), 30, i < 30 ? 500 : -1, -1 });
	expect("samples before a minute is over", history_samples(&h), 0);
	history_look(&h, begin + HISTORY_MS, (int[]){ 70, 70, 70, 70 });
	expect("samples", history_samples(&h), 1);
	expect("mean", history_value(&h, 0, HISTORY_DEMANDING), 5);
	expect("constant", history_value(&h, 0, HISTORY_SERVED), 30);
	expect("known for a part", history_value(&h, 0, HISTORY_BUSY), 500);
	expect("not known", history_value(&h, 0, HISTORY_WASTED), -1);

	/* the device was missing for three minutes */
	history_look(&h, begin + 4 * HISTORY_MS + 1, (int[]){ 20, 20, 20, 20 });
	expect("samples after a gap", history_samples(&h), 4);
	expect("before the gap", history_value(&h, 1, HISTORY_WASTED), 70);
	expect("in the gap", history_value(&h, 2, HISTORY_DEMANDING), -1);
	expect("in the gap", history_value(&h, 3, HISTORY_BUSY), -1);

	/* a year without a look fills the ring with unknown values, and the clock continues */
	history_look(&h, begin + 525600ULL * HISTORY_MS, (int[]){ 90, 90, 90, 90 });
	expect("samples after a year", history_samples(&h), HISTORY_SAMPLES);
	history_look(&h, begin + 525601ULL * HISTORY_MS, (int[]){ 0, 0, 0, 0 });
	expect("the newest", history_value(&h, HISTORY_SAMPLES - 1, HISTORY_SERVED), 90);
	expect("the oldest", history_value(&h, 0, HISTORY_SERVED), -1);

	/* the largest possible sum of a minute of looks */
	for (unsigned i = 0; i <= 60000; i++)
		history_look(&h, begin + 525602ULL * HISTORY_MS + i, (int[]){ 5120, 5120, 1000, 1000 });
	expect("many looks", history_value(&h, HISTORY_SAMPLES - 1, HISTORY_DEMANDING), 5120);
	return verdict();
}
