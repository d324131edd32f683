/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a lever gains here. Now and then, at a random moment of a crowd, a trial
 * flips the lever for some seconds, off if it is on and on if it is off, and
 * compares the bytes delivered with those delivered just before. Each trial
 * gives one gain. The mean of the last gains and its confidence interval decide
 * whether the lever stays on.
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

/* The caller's state. */
struct trial_now {
	bool crowd;		/* the lever is wanted, if it gains */
	bool ready;		/* the lever is as trial_tick() last said */
	bool lost;		/* switched on for a trial, the lever leaves the channel idle: the trial is lost */
	uint64_t bytes;		/* delivered so far */
};

struct trial {
	bool on;			/* output: whether the lever should be on now */
	bool trying;			/* a trial is running: the lever is flipped */
	unsigned count;			/* finished trials */
	int gain, low, high;		/* permille: delivered with the lever over without, and its interval; once count > 0 */
	uint32_t with_kbit, without_kbit;	/* delivered in the last trial */
	/* private */
	unsigned crowd_ms;		/* no trial in the first crowd_ms of a crowd */
	uint16_t gains[TRIAL_GAINS];
	uint32_t random;
	bool measuring;
	uint64_t now;			/* ms */
	uint32_t since;			/* start of the trial, ms; this and the next two modulo 2^32 */
	uint32_t from, from_bytes;	/* start of the measurement, ms, and bytes delivered until then */
	uint32_t age_ms, left_ms;	/* age of the crowd; time in crowds until the next trial */
	uint32_t hold_ms;
	uint32_t before_kbit;
};

/*
 * on: the lever is known to gain. It stays on until trials show that it does not
 * here; the first trial comes after some minutes of crowds. Otherwise it stays off
 * until trials show a gain; the first trial comes in a crowd that has lasted.
 */
void trial_init(struct trial *t, bool on);
/* Returns t->on. Time that runs backwards counts as standing still. */
bool trial_tick(struct trial *t, uint64_t now, const struct trial_now *state);

#ifdef __cplusplus
}
#endif
#endif
