/* SPDX-License-Identifier: Apache-2.0 */
/* What the last hours were like: means of a minute each, in a ring. Time is an argument. */
#ifndef WIFIRR_HISTORY_H
#define WIFIRR_HISTORY_H

#include <stdint.h>

#define HISTORY_MS 60000
#define HISTORY_SAMPLES 720	/* 12 hours, in 6 KiB */

enum { HISTORY_DEMANDING, HISTORY_SERVED, HISTORY_BUSY, HISTORY_WASTED, HISTORY_VALUES };

struct history {
	uint64_t due;			/* when the sample of now ends; 0: there was no look yet */
	uint32_t sum[HISTORY_VALUES], looks[HISTORY_VALUES];
	unsigned count;			/* of all samples ever */
	int16_t sample[HISTORY_SAMPLES][HISTORY_VALUES];
};

/* A look at time now (ms); a value below 0 is not known. */
void history_look(struct history *h, uint64_t now, const int value[HISTORY_VALUES]);
/* The samples that there are, and the value of one, 0 the oldest; -1: not known. */
unsigned history_samples(const struct history *h);
int history_value(const struct history *h, unsigned sample, unsigned value);

#endif
