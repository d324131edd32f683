/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of trial.c: a lever that gains is on, one that does not is off, and trials cost little. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "trial.h"

#define TICK_MS 300

static struct {
	unsigned share;		/* share of the crowd's time with the lever on, percent */
	uint64_t longest_trial;	/* ms */
} seen;

/* The same numbers with every C library (xorshift): what is asserted holds for most numbers, not for all. */
static uint32_t number(void)
{
	static uint32_t state = 1;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

/* Crowds of crowd_s every minute. The lever delivers percent of what is delivered without it, give or take noise percent. */
static struct trial play(bool on, unsigned minutes, unsigned crowd_s, unsigned percent, unsigned noise, unsigned late_ms)
{
	uint64_t bytes = 0, used = 0, crowd = 0, trial = 0, changed = 0;
	struct trial t = { 0 };
	bool is = on;

	trial_init(&t, on);
	seen.longest_trial = 0;
	for (uint64_t now = 5000; now < 5000 + minutes * 60000ULL; now += TICK_MS) {
		bool wanted = now % 60000 < crowd_s * 1000;
		struct trial_now state = { .crowd = wanted, .bytes = bytes };

		/* the lever takes a while to switch */
		if (is == t.on)
			changed = now;
		else if (now - changed >= late_ms)
			is = t.on;
		state.ready = is == t.on;
		trial_tick(&t, now, &state);
		if (!wanted)
			continue;
		crowd += TICK_MS;
		used += is ? TICK_MS : 0;
		trial = t.trying ? trial + TICK_MS : 0;
		seen.longest_trial = trial > seen.longest_trial ? trial : seen.longest_trial;
		bytes += 300000ULL * (is ? percent : 100) / 100 * (100 - noise + number() % (2 * noise + 1)) / 100;
	}
	seen.share = used * 100 / crowd;
	return t;
}

static void test_what_gains_is_on(void)
{
	static const unsigned gains[] = { 130, 150, 200 };

	for (unsigned i = 0; i < 3; i++) {
		struct trial t = play(true, 60, 60, gains[i], 20, 0);

		assert(t.on && seen.share >= 97 && t.low > 1000 && t.low <= t.gain && t.gain <= t.high);
		assert(abs(t.gain - (int)gains[i] * 10) < 150);
		t = play(false, 60, 60, gains[i], 20, 0);
		assert(t.on && seen.share >= 90);
	}
}

static void test_what_does_not_gain_is_off(void)
{
	static const unsigned gains[] = { 40, 80, 100, 102 };

	for (unsigned i = 0; i < 4; i++) {
		struct trial t = play(true, 120, 60, gains[i], 20, 0);

		assert(!t.on && t.high < 1100 && seen.share <= 15);
		t = play(false, 120, 60, gains[i], 20, 0);
		assert(!t.on && seen.share <= 3);
	}
}

/* A trial that delivers less than half ends at once. */
static void test_a_loss_ends_early(void)
{
	play(false, 30, 60, 40, 5, 0);
	assert(seen.longest_trial <= 1000 && seen.share <= 1);
}

static void test_short_crowds_are_left_alone(void)
{
	struct trial t = play(false, 60, 35, 200, 20, 0);

	assert(t.count == 0 && seen.share == 0);
	t = play(true, 60, 9, 50, 20, 0);
	assert(t.count == 0 && seen.share == 100);
}

/* A slow lever is measured once it has switched; one that never switches is not measured. */
static void test_a_slow_lever(void)
{
	struct trial t = play(true, 60, 60, 150, 20, 2500);

	assert(t.on && t.count > 2 && abs(t.gain - 1500) < 150);
	t = play(true, 60, 60, 150, 20, 100000);
	assert(t.on != t.trying && t.count == 0);
}

static void test_time_that_stands_still(void)
{
	struct trial_now state = { .crowd = true, .ready = true };
	struct trial t = { 0 };

	trial_init(&t, true);
	for (unsigned i = 0; i < 1000; i++)
		assert(trial_tick(&t, i ? 5 : 100000, &state));
	trial_tick(&t, UINT64_MAX, &state);
	for (unsigned i = 0; i < 100; i++)
		trial_tick(&t, UINT64_MAX, &state);
	assert(t.count == 0);
}

static void test_anything(void)
{
	struct trial t = { 0 };
	uint64_t now = 0, bytes = 0;

	trial_init(&t, false);
	for (unsigned i = 0; i < 1000000; i++) {
		struct trial_now state = {
			.crowd = number() % 500, .ready = number() % 4, .lost = !(number() % 1000), .bytes = bytes += number() % 4 ? number() : 0,
		};

		trial_tick(&t, now += number() % 1000, &state);
		assert(t.gain >= 0 && t.gain <= 4000 && t.low <= t.gain && t.gain <= t.high);
	}
	assert(t.count > 100);
}

int main(void)
{
	test_what_gains_is_on();
	test_what_does_not_gain_is_off();
	test_a_loss_ends_early();
	test_short_crowds_are_left_alone();
	test_a_slow_lever();
	test_time_that_stands_still();
	test_anything();
	printf("trial: all properties hold\n");
	return 0;
}
