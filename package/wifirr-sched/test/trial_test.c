/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of trial.c: a lever that gains is on, one that does not is off, and trials cost little. */
#include <assert.h>
#include <math.h>
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

/* A lever in a crowd with a look every 100 ms: 1000 kbit/s are delivered without it, percent of that with it. */
static struct {
	struct trial t;
	struct trial_now s;
	uint64_t now;
} crowd;

static void look(unsigned percent)
{
	crowd.s.bytes += 12500 * (crowd.t.on ? percent : 100) / 100;
	trial_tick(&crowd.t, crowd.now += 100, &crowd.s);
}

static void begin(bool on)
{
	crowd.s = (struct trial_now){ .ready = true };
	crowd.t = (struct trial){ 0 };
	trial_init(&crowd.t, on);
	look(100);
	crowd.s.crowd = true;
}

/* Until a trial begins, or ends; ms. */
static unsigned until(bool trying, unsigned percent)
{
	unsigned ms = 0;

	for (; crowd.t.trying != trying; ms += 100)
		look(percent);
	return ms;
}

static void test_when_trials_begin_and_end(void)
{
	static const unsigned hold_s[] = { 90, 270, 600, 600 };

	begin(true);
	assert(until(true, 160) == 122000 && !crowd.t.on);
	assert(until(false, 160) == 3100 && crowd.t.on);
	for (unsigned i = 0; i < 4; i++) {
		unsigned ms = until(true, 160);

		assert(ms >= hold_s[i] * 1000 + 2000 && ms < hold_s[i] * 1250 + 2000);
		until(false, 160);
	}
	begin(false);
	assert(until(true, 160) == 42000 && crowd.t.on);
	assert(until(false, 160) == 3100 && crowd.t.on);
	/* in doubt, the next one comes soon */
	begin(true);
	until(true, 105);
	until(false, 105);
	assert(until(true, 105) < 40000);
	/* a loss ends early */
	for (unsigned percent = 40; percent <= 60; percent += 10) {
		begin(false);
		until(true, percent);
		assert(until(false, percent) == (percent < 50 ? 600 : 3100) && !crowd.t.on);
	}
}

/* With the crowd, or with a lever that does not switch. Nothing is learnt from that, and the lever is as before. */
static void test_trials_that_are_cut_short(void)
{
	begin(true);
	until(true, 160);
	crowd.s.crowd = false;
	look(160);
	assert(!crowd.t.trying && crowd.t.on);
	crowd.s.crowd = true;
	for (unsigned i = 0; i < 110; i++)
		look(160);	/* it is measuring now */
	crowd.s.crowd = false;
	look(160);
	crowd.s.crowd = true;
	assert(until(true, 160) == 12000);
	crowd.s.ready = false;
	assert(until(false, 160) == 20100 && crowd.t.on && !crowd.t.count);
	crowd.s.ready = true;
	assert(until(true, 160) >= 30000);
	begin(false);
	until(true, 160);
	crowd.s.lost = true;
	look(160);
	assert(!crowd.t.trying && !crowd.t.on && crowd.t.count == 1 && crowd.t.gain <= 1000);
}

/* The mean of the last eight gains, and twice its standard error, to which each gain contributes at least a tenth. */
static void test_what_trials_show(void)
{
	static const unsigned percents[] = { 150, 180, 120, 200, 170, 130, 190, 160, 140, 110, 500 };
	const unsigned count = sizeof(percents) / sizeof(percents[0]);
	double gain[sizeof(percents) / sizeof(percents[0])];

	begin(true);
	for (unsigned i = 0; i < count; i++) {
		unsigned first = i >= TRIAL_GAINS ? i + 1 - TRIAL_GAINS : 0, n = i + 1 - first;
		double mean = 0, squares = 100 * 100, error;

		until(true, percents[i]);
		until(false, percents[i]);
		assert(crowd.t.count == i + 1 && crowd.t.without_kbit == 1000 && crowd.t.with_kbit == 10 * percents[i]);
		gain[i] = percents[i] < 400 ? 10 * percents[i] : 4000;
		for (unsigned k = first; k <= i; k++)
			mean += gain[k] / n;
		for (unsigned k = first; k <= i; k++)
			squares += (gain[k] - mean) * (gain[k] - mean);
		error = 2 * sqrt(squares) / n;
		assert(fabs(crowd.t.gain - mean) <= 1 && fabs(crowd.t.low - (mean - error)) <= 3 && fabs(crowd.t.high - (mean + error)) <= 3);
	}
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
	test_when_trials_begin_and_end();
	test_trials_that_are_cut_short();
	test_what_trials_show();
	test_anything();
	printf("trial: all properties hold\n");
	return 0;
}
