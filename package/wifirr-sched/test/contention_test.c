/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of contention.c: the optimum against Bianchi's model solved by search, steps, hysteresis, limits. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contention.h"

static const struct contention_config config = {
	.windows = true, .rts = true, .own_exponent = 4, .ap_min = 4, .ap_max = 6, .busy_permille = 500,
};

static const struct contention_sample crowd = {
	.contenders = 30, .exchanging = 30, .aggregating = 30, .kbit = 45000, .busy_permille = 900, .failed_permille = 200,
};

/* The share of time that carries frames: n stations, each sending in a slot with probability 2 / (W + 1). */
static double throughput(unsigned n, double window, double frame_us)
{
	double tau = 2 / (window + 1), idle = pow(1 - tau, n), success = n * tau * pow(1 - tau, n - 1);

	return success * frame_us / (idle * 9 + (1 - idle) * frame_us);
}

static void test_optimum_is_bianchis(void)
{
	static const unsigned frames[] = { 500, 1000, 2000, 4000 };

	for (unsigned n = 3; n <= 60; n++)
		for (unsigned f = 0; f < 4; f++) {
			unsigned best = 1, ours = contention_optimum(n, frames[f]);

			for (unsigned e = 1; e <= 15; e++)
				if (throughput(n, (1 << e) - 1, frames[f]) > throughput(n, (1 << best) - 1, frames[f]))
					best = e;
			/* one step off is fine if both are equally good */
			assert(abs((int)ours - (int)best) <= 1);
			assert(throughput(n, (1 << ours) - 1, frames[f]) > 0.98 * throughput(n, (1 << best) - 1, frames[f]));
		}
	assert(contention_optimum(1000000, 4000) == 15);
	assert(contention_optimum(0, 4000) == 0);
}

/* The access point's own window: never larger than its clients', nor than after collisions, nor smaller than the operator's. */
static void check_own_window(const struct contention *c)
{
	if (c->exponent == c->config.own_exponent)
		assert(c->ap_exponent == c->config.ap_min);
	assert(c->ap_exponent >= c->config.ap_min);
	assert(c->ap_exponent == c->config.ap_min || (c->ap_exponent <= c->exponent && c->ap_exponent <= c->config.ap_max));
}

/* Ticks until the exponent has not changed for a minute; returns it. */
static unsigned settle(struct contention *c, uint64_t *now, const struct contention_sample *s)
{
	for (unsigned same = 0, last = c->exponent; same < 120; same = c->exponent == last ? same + 1 : 0, last = c->exponent) {
		unsigned before = c->exponent;

		contention_tick(c, *now += CONTENTION_TICK_MS, s);
		assert(abs((int)c->exponent - (int)before) <= 1);
		assert(c->exponent >= c->config.own_exponent && c->exponent <= CONTENTION_EXPONENT_MAX);
		check_own_window(c);
	}
	return c->exponent;
}

static void test_goes_up_and_comes_back(void)
{
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.failed_permille = 60;
	assert(settle(&c, &now, &s) == 7 && c.ap_exponent == 6 && c.rts && c.instead_of_turns);
	s.failed_permille = 0;	/* the effect of larger windows */
	assert(settle(&c, &now, &s) == 7 && c.rts);
	s.contenders = s.exchanging = s.aggregating = 10;
	assert(settle(&c, &now, &s) == 5 && c.ap_exponent == 5);
	s.contenders = s.exchanging = s.aggregating = 512;
	assert(settle(&c, &now, &s) == CONTENTION_EXPONENT_MAX && c.ap_exponent == 6);
	s.contenders = 1;
	assert(settle(&c, &now, &s) == 4 && !c.rts && c.reason == CONTENTION_FEW);
}

static void test_a_step_down_needs_time(void)
{
	struct contention_sample s = crowd, few = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.failed_permille = few.failed_permille = 60;
	few.contenders = 10;
	settle(&c, &now, &s);
	for (unsigned i = 0; i < 100; i++)
		contention_tick(&c, now += CONTENTION_TICK_MS, i % 3 ? &few : &s);
	assert(c.exponent == 7);
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	for (unsigned ms = 0; ms <= 2000; ms += CONTENTION_TICK_MS) {
		assert(c.exponent == 7);
		contention_tick(&c, now += CONTENTION_TICK_MS, &few);
	}
	assert(c.exponent == 6);
	/* and the next step as long again */
	for (unsigned ms = 0; ms <= 2000; ms += CONTENTION_TICK_MS) {
		assert(c.exponent == 6);
		contention_tick(&c, now += CONTENTION_TICK_MS, &few);
	}
	assert(c.exponent == 5 && c.steps == 5);
}

static void test_why_not(void)
{
	static const struct {
		struct contention_sample s;
		enum contention_reason reason;
		const char *text;
	} cases[] = {
		{ { 2, 2, 2, 0, 900, 300, 0 }, CONTENTION_FEW, "clients that contend: 2, 3 or more are needed" },
		{ { 30, 30, 15, 0, 900, 300, 0 }, CONTENTION_SINGLE_FRAMES, "clients that aggregate frames: 15, more than 15 are needed" },
		{ { 30, 30, 30, 0, 499, 300, 0 }, CONTENTION_CHANNEL_IDLE, "channel busy for 49.9 % of the time, more than 50.0 % are needed" },
		{ { 30, 30, 30, 0, 900, 49, 0 }, CONTENTION_NO_COLLISIONS, "4.9 % of the frames to clients are lost, 5.0 % or more are needed" },
	};
	char text[160];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct contention c;
		uint64_t now = 1000;

		contention_init(&c, &config);
		assert(settle(&c, &now, &cases[i].s) == 4 && !c.rts);
		assert(c.reason == cases[i].reason);
		contention_explain(&c, text, sizeof(text));
		assert(strcmp(text, cases[i].text) == 0);
	}
}

/* A crowd ends with one client less than it begins with. */
static void test_the_last_of_a_crowd(void)
{
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.failed_permille = 60;
	for (unsigned contenders = 2; contenders <= 3; contenders++) {
		s.contenders = contenders;
		contention_tick(&c, now += CONTENTION_TICK_MS, &s);
		assert(c.reason == (contenders == 2 ? CONTENTION_FEW : CONTENTION_CROWD));
	}
	s.contenders = 2;
	s.failed_permille = 0;
	s.busy_permille = 376;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(c.reason == CONTENTION_CROWD);
	s.busy_permille = 375;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(c.reason == CONTENTION_CHANNEL_IDLE);
	s = crowd;
	s.failed_permille = 50;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(c.reason == CONTENTION_CROWD);
	s.contenders = 1;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(c.reason == CONTENTION_FEW);
}

/* Who exchanges nothing shows nothing: as long as the last ones aggregated, turns would break up their aggregates. */
static void test_turns_wait_for_those_that_do_not_aggregate(void)
{
	struct contention_sample s = crowd, nobody = { .busy_permille = 900, .failed_permille = CONTENTION_UNKNOWN };
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	contention_tick(&c, now += CONTENTION_TICK_MS, &nobody);
	assert(!c.instead_of_turns);
	s.aggregating = 16;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(c.instead_of_turns);
	contention_tick(&c, now += CONTENTION_TICK_MS, &nobody);
	assert(c.instead_of_turns);
	s.aggregating = 15;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(!c.instead_of_turns);
}

static void test_rts_pays(void)
{
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.kbit = 500000;	/* an aggregate takes 1 ms */
	s.failed_permille = 150;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(!c.rts);
	s.failed_permille = 200;
	contention_tick(&c, now += CONTENTION_TICK_MS, &s);
	assert(c.rts);
}

static void test_what_is_not_known_does_not_hinder(void)
{
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.busy_permille = s.failed_permille = CONTENTION_UNKNOWN;
	s.kbit = 0;
	assert(settle(&c, &now, &s) == 7);
	assert(!c.rts);	/* RTS costs airtime, so it is not used on a guess */
}

static void test_fast_links_need_less(void)
{
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.kbit = 500000;
	s.failed_permille = 60;
	s.contenders = 40;
	assert(settle(&c, &now, &s) == 6);
}

static void test_the_operators_own_is_the_least(void)
{
	struct contention_config own = config;
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	own.own_exponent = own.ap_min = own.ap_max = 6;
	contention_init(&c, &own);
	s.contenders = s.exchanging = s.aggregating = 3;
	assert(settle(&c, &now, &s) == 6);
	/* reread while larger windows are announced */
	settle(&c, &now, &crowd);
	own.own_exponent = 5;
	contention_configure(&c, &own);
	assert(c.exponent > 6 && c.ap_exponent == 6);
	own.own_exponent = 8;	/* the access point's own is smaller */
	own.ap_min = 4;
	contention_configure(&c, &own);
	s.contenders = 1;
	assert(settle(&c, &now, &s) == 8);
	/* reread while the operator's own are announced: both ways */
	for (own.own_exponent = 10; own.own_exponent > 6; own.own_exponent -= 3) {
		contention_configure(&c, &own);
		assert(c.exponent == own.own_exponent);
	}
	own.own_exponent = 5;
	own.windows = false;
	contention_configure(&c, &own);
	assert(c.exponent == 5);
	contention_tick(&c, now += CONTENTION_TICK_MS, &crowd);
	assert(c.exponent == 5 && c.reason == CONTENTION_NOT_SET && !c.instead_of_turns && c.rts);
}

static void test_time_that_stands_still(void)
{
	struct contention c;

	contention_init(&c, &config);
	for (unsigned i = 0; i < 1000; i++)
		contention_tick(&c, i ? 5 : 100000, &crowd);
	assert(c.exponent == 4);
	contention_tick(&c, UINT64_MAX, &crowd);
	assert(c.exponent == 5);
}

/* Set by crowd_lasts(): the share of the time with RTS, percent. */
static unsigned rts_share;

/*
 * A crowd that lasts for some minutes. Larger windows deliver percent of what own ones do,
 * and RTS rts_percent of that. Returns the share of the time with larger windows, percent.
 */
static unsigned crowd_lasts(struct contention *c, unsigned minutes, unsigned percent, unsigned rts_percent)
{
	struct contention_sample s = crowd;
	unsigned larger = 0, rts = 0, ticks = minutes * 60000 / CONTENTION_TICK_MS;
	uint64_t now = 1000;

	contention_init(c, &config);
	srand(1);
	for (unsigned i = 0; i < ticks; i++) {
		unsigned before = c->exponent;

		s.bytes = 1000000 * (100 + (percent - 100) * (c->exponent - 4) / 4) / 100 * (90 + rand() % 21) / 100 *
			(c->rts ? rts_percent : 100) / 100;
		contention_tick(c, now += CONTENTION_TICK_MS, &s);
		assert(abs((int)c->exponent - (int)before) <= 1);
		larger += c->exponent > 4;
		rts += c->rts;
		/* one trial at a time, or their effects could not be separated */
		assert(!c->trial.trying || !c->rts_trial.trying);
		assert(c->reason == (c->trial.on ? CONTENTION_CROWD : c->trial.trying ? CONTENTION_TRIAL : CONTENTION_NO_GAIN));
	}
	rts_share = rts * 100 / ticks;
	return larger * 100 / ticks;
}

static void test_a_lever_stays_where_it_gains(void)
{
	struct contention_sample few = crowd;
	struct contention c;
	char text[160];

	assert(crowd_lasts(&c, 60, 160, 150) >= 97 && c.instead_of_turns && c.trial.count > 2 && c.trial.low > 1300);
	assert(rts_share >= 97 && c.rts_trial.low > 1200);
	assert(crowd_lasts(&c, 60, 160, 100) >= 97 && rts_share <= 30 && c.rts_trial.high < 1100);
	assert(crowd_lasts(&c, 60, 100, 150) <= 30 && rts_share >= 97 && !c.instead_of_turns && c.trial.high < 1100);
	contention_explain(&c, text, sizeof(text));
	assert(strstr(text, "larger"));
	few.contenders = 1;
	contention_tick(&c, c.now + CONTENTION_TICK_MS, &few);
	assert(!c.trial.on && c.reason == CONTENTION_FEW);
}

/* Where clients need no larger window, a trial would compare nothing with nothing, and that it gains nothing would be taken for the answer. */
static void test_no_trials_of_nothing(void)
{
	struct contention_sample s = crowd;
	struct contention c;
	uint64_t now = 1000;

	contention_init(&c, &config);
	s.contenders = s.exchanging = s.aggregating = 5;
	s.kbit = 500000;
	s.failed_permille = 60;
	while (now < 3600000) {
		s.bytes = 1000000;
		contention_tick(&c, now += CONTENTION_TICK_MS, &s);
		assert(c.exponent == 4 && !c.trial.count && c.instead_of_turns && c.reason == CONTENTION_CROWD);
	}
	assert(settle(&c, &now, &crowd) == 7);
}

static void test_any_sample(void)
{
	struct contention c;
	uint64_t now = 0;

	contention_init(&c, &config);
	srand(1);
	for (unsigned i = 0; i < 1000000; i++) {
		struct contention_sample s = {
			.contenders = rand() % 600, .exchanging = rand() % 600, .aggregating = rand() % 600,
			.kbit = (uint32_t)rand() * 2, .busy_permille = rand() % 1200 - 100, .failed_permille = rand() % 1200 - 100,
		};
		unsigned before = c.exponent;

		contention_tick(&c, now += rand() % 1000, &s);
		assert(abs((int)c.exponent - (int)before) <= 1 && c.exponent >= 4 && c.exponent <= CONTENTION_EXPONENT_MAX);
	}
}

int main(void)
{
	test_optimum_is_bianchis();
	test_goes_up_and_comes_back();
	test_a_step_down_needs_time();
	test_why_not();
	test_the_last_of_a_crowd();
	test_turns_wait_for_those_that_do_not_aggregate();
	test_rts_pays();
	test_what_is_not_known_does_not_hinder();
	test_fast_links_need_less();
	test_the_operators_own_is_the_least();
	test_time_that_stands_still();
	test_a_lever_stays_where_it_gains();
	test_no_trials_of_nothing();
	test_any_sample();
	printf("contention: all properties hold\n");
	return 0;
}
