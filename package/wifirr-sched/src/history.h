/* SPDX-License-Identifier: Apache-2.0 */
/* The last hours as a ring of one-minute means. Time is an argument. */
#ifndef WIFIRR_HISTORY_H
#define WIFIRR_HISTORY_H

#include <stdint.h>

#define HISTORY_MS 60000
#define HISTORY_SAMPLES 720	/* 12 hours, in 6 KiB */

enum { HISTORY_DEMANDING, HISTORY_SERVED, HISTORY_BUSY, HISTORY_WASTED, HISTORY_VALUES };

struct history {
	uint64_t due;			/* when the current sample ends; 0: no look yet */
	uint32_t sum[HISTORY_VALUES], looks[HISTORY_VALUES];
	unsigned count;			/* of all samples ever taken */
	int16_t sample[HISTORY_SAMPLES][HISTORY_VALUES];
};

/* Adds a look at time now (ms); a value below 0 is unknown. */
void history_look(struct history *h, uint64_t now, const int value[HISTORY_VALUES]);
/* The number of samples, and a value of one of them; sample 0 is the oldest; -1: unknown. */
unsigned history_samples(const struct history *h);
int history_value(const struct history *h, unsigned sample, unsigned value);

#endif
