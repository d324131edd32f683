/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a lever gains here. Now and then, at a random moment of a crowd, it is
 * the other way for some seconds, off where it is on or on where it is off, and
 * what is delivered then is compared with what was delivered just before. Each
 * such trial gives one gain; of the last ones together come the mean and its
 * interval, and these decide whether the lever stays on.
 *
 * Pure: no I/O, no clock. The same calls give the same answers.
 */
#ifndef WIFIRR_TRIAL_H
#define WIFIRR_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRIAL_GAINS 8	/* the last ones count */

/* The state of affairs. */
struct trial_now {
	bool crowd;		/* the lever is wanted, if it gains */
	bool ready;		/* it is what trial_tick() said last */
	bool lost;		/* on for a trial it leaves the channel idle, which is answer enough */
	uint64_t bytes;		/* delivered so far */
};

struct trial {
	bool on;			/* output: what the lever shall be now */
	bool trying;			/* it is not what it is between trials */
	unsigned count;			/* trials that came to an end */
	int gain, low, high;		/* permille: with the lever over without, and its interval; once count > 0 */
	uint32_t with_kbit, without_kbit;	/* delivered, last time */
	/* private */
	unsigned crowd_ms;		/* a crowd is left alone for so long at first */
	uint16_t gains[TRIAL_GAINS];
	uint32_t random;
	bool measuring;
	uint64_t now;			/* ms */
	uint32_t since;			/* of the trial; this and the next two modulo 2^32 */
	uint32_t from, from_bytes;	/* since when it is measured, ms, and what had been delivered then */
	uint32_t age_ms, left_ms;	/* of the crowd; of crowds until the next trial */
	uint32_t hold_ms;
	uint32_t before_kbit;
};

/*
 * on: it is known to gain, stays until it is seen not to here, and is first tried
 * after some minutes of crowds. Otherwise it stays off until it is seen to gain,
 * and is first tried in a crowd that has lasted.
 */
void trial_init(struct trial *t, bool on);
/* Returns t->on. Time that runs backwards stands still. */
bool trial_tick(struct trial *t, uint64_t now, const struct trial_now *state);

#ifdef __cplusplus
}
#endif
#endif
