/* SPDX-License-Identifier: Apache-2.0 */
#include "history.h"

/* Ends the current sample: the mean of its looks. */
static void end(struct history *h)
{
	int16_t *s = h->sample[h->count++ % HISTORY_SAMPLES];

	for (unsigned i = 0; i < HISTORY_VALUES; i++) {
		s[i] = h->looks[i] ? (int16_t)(h->sum[i] / h->looks[i]) : -1;
		h->sum[i] = h->looks[i] = 0;
	}
	h->due += HISTORY_MS;
}

void history_look(struct history *h, uint64_t now, const int value[HISTORY_VALUES])
{
	if (!h->due)
		h->due = now + HISTORY_MS;
	/* minutes without a look, while the device was missing, are unknown samples */
	for (unsigned n = 0; now >= h->due && n < HISTORY_SAMPLES; n++)
		end(h);
	if (now >= h->due)
		h->due = now + HISTORY_MS;
	for (unsigned i = 0; i < HISTORY_VALUES; i++) {
		if (value[i] < 0)
			continue;
		h->sum[i] += value[i];
		h->looks[i]++;
	}
}

unsigned history_samples(const struct history *h)
{
	return h->count < HISTORY_SAMPLES ? h->count : HISTORY_SAMPLES;
}

int history_value(const struct history *h, unsigned sample, unsigned value)
{
	return h->sample[(h->count - history_samples(h) + sample) % HISTORY_SAMPLES][value];
}
