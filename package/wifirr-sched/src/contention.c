/* SPDX-License-Identifier: Apache-2.0 */
#include "contention.h"

#include <stdio.h>

#define SLOT_US 9

/* The longest frame that a collision can destroy: an A-MPDU of 64 KB, which drivers cut at 4 ms (ath9k). */
#define AGGREGATE_BITS (65535 * 8)
#define AGGREGATE_MAX_US 4000

/*
 * Of the clients that contend, about one in 2^BUSY has a frame to send at any
 * moment. The others wait for the access point, which sends what they acknowledge.
 */
#define BUSY 3

/* With fewer than three contenders, the standard's exponential backoff does as well. */
#define CONTENDERS_MIN 3

/* Frames without an acknowledgement, permille. With fewer there is nothing to gain. */
#define FAILED_MIN 50

/* RTS, CTS and the gaps between, at 24 Mbit/s. RTS pays where collisions cost twice as much. */
#define RTS_US 100

/*
 * A smaller window must be due for DOWN_MS before a step down, a larger one only for
 * CONTENTION_TICK_MS before a step up: a crowd comes at once, and leaves one by one.
 */
#define DOWN_MS 2000

/*
 * If the access point drew from smaller windows than its clients, it would take
 * the channel many times before a client does, and a call would wait for as many
 * aggregates. But it never waits longer than after a collision.
 */
static unsigned ap_exponent(const struct contention *c)
{
	unsigned exponent = c->exponent < c->config.ap_max ? c->exponent : c->config.ap_max;

	return c->exponent == c->config.own_exponent || exponent < c->config.ap_min ? c->config.ap_min : exponent;
}

void contention_init(struct contention *c, const struct contention_config *config)
{
	*c = (struct contention){
		.config = *config,
		.exponent = config->own_exponent,
		.ap_exponent = config->ap_min,
		.sample = { .busy_permille = CONTENTION_UNKNOWN, .failed_permille = CONTENTION_UNKNOWN },
	};
	trial_init(&c->trial, true);
	trial_init(&c->rts_trial, true);
}

void contention_configure(struct contention *c, const struct contention_config *config)
{
	if (c->exponent == c->config.own_exponent || c->exponent < config->own_exponent || !config->windows)
		c->exponent = config->own_exponent;
	c->config = *config;
}

unsigned contention_optimum(unsigned n, uint32_t airtime_us)
{
	uint64_t square = (uint64_t)n * n * 2 * airtime_us / SLOT_US;	/* of the window in slots */
	unsigned exponent = 0;

	/* nearest by ratio: 2^exponent is within a factor of sqrt(2) of the optimum */
	while (exponent < 15 && square >= 2ULL << 2 * exponent)
		exponent++;
	return exponent;
}

/* The optimum for those of n clients that have a frame to send. */
static unsigned optimum(unsigned n, uint32_t airtime_us)
{
	unsigned all = contention_optimum(n, airtime_us), some = all > BUSY ? all - BUSY : 0;

	return some < CONTENTION_EXPONENT_MAX ? some : CONTENTION_EXPONENT_MAX;
}

static uint32_t aggregate_us(const struct contention_sample *s)
{
	uint64_t us = s->kbit ? AGGREGATE_BITS * 1000ULL / s->kbit : AGGREGATE_MAX_US;

	return us < AGGREGATE_MAX_US ? us : AGGREGATE_MAX_US;
}

static bool because(struct contention *c, enum contention_reason reason, int value, int threshold, bool crowd)
{
	c->reason = reason;
	c->value = value;
	c->threshold = threshold;
	return crowd;
}

/* Many clients contend, aggregate, and collide. Hysteresis: a crowd remains one with less of each than it takes to begin. */
static bool is_crowd(struct contention *c, const struct contention_sample *s)
{
	int least = c->crowd ? CONTENDERS_MIN - 1 : CONTENDERS_MIN;
	int busy = c->crowd ? c->config.busy_permille * 3 / 4 : c->config.busy_permille;

	if ((int)s->contenders < least)
		return because(c, CONTENTION_FEW, s->contenders, least, false);
	if (2 * s->aggregating <= s->exchanging)
		return because(c, CONTENTION_SINGLE_FRAMES, s->aggregating, s->exchanging / 2, false);
	if (s->busy_permille != CONTENTION_UNKNOWN && s->busy_permille <= busy)
		return because(c, CONTENTION_CHANNEL_IDLE, s->busy_permille, busy, false);
	/* In a crowd, few frames may fail because of the larger windows, which are still needed. */
	if (!c->crowd && s->failed_permille != CONTENTION_UNKNOWN && s->failed_permille < FAILED_MIN)
		return because(c, CONTENTION_NO_COLLISIONS, s->failed_permille, FAILED_MIN, false);
	return because(c, CONTENTION_CROWD, s->contenders, least, true);
}

static unsigned wanted_exponent(const struct contention *c, const struct contention_sample *s)
{
	unsigned own = c->config.own_exponent, wanted;

	if (!c->crowd || !c->config.windows)
		return own;
	wanted = optimum(s->contenders, aggregate_us(s));
	return wanted > own ? wanted : own;
}

static void step(struct contention *c, int by)
{
	c->exponent += by;
	c->stepped_at = c->now;
	c->below = false;
	c->steps++;
}

static void move_towards(struct contention *c, unsigned wanted)
{
	if (c->exponent < wanted && c->now - c->stepped_at >= CONTENTION_TICK_MS) {
		step(c, 1);
	} else if (c->exponent <= wanted) {
		c->below = false;
	} else if (!c->below) {
		c->below = true;
		c->below_since = c->now;
	} else if (c->now - c->below_since >= DOWN_MS || (c->trial.trying && c->now - c->stepped_at >= CONTENTION_TICK_MS)) {
		step(c, -1);
	}
}

/* Whether larger windows gain here; wanted: their exponent. */
static bool windows_gain(struct contention *c, unsigned wanted)
{
	const struct trial *t = &c->trial;
	struct trial_now state = {
		.crowd = wanted > c->config.own_exponent,
		.ready = (t->on ? c->exponent >= wanted : c->exponent == c->config.own_exponent) && !c->rts_trial.trying,
		.bytes = c->bytes,
	};

	if (trial_tick(&c->trial, c->now, &state))
		return true;
	if (state.crowd && t->trying)
		because(c, CONTENTION_TRIAL, 0, 0, true);
	else if (state.crowd)
		because(c, CONTENTION_NO_GAIN, t->with_kbit, t->without_kbit, true);
	return false;
}

/*
 * Not all drivers count an RTS without an answer as a failure, so measurements
 * while RTS is on do not tell whether it is needed.
 */
static bool wants_rts(struct contention *c, const struct contention_sample *s)
{
	if (!c->crowd || !c->config.rts)
		c->wants_rts = false;
	else if (s->failed_permille != CONTENTION_UNKNOWN && (uint64_t)s->failed_permille * aggregate_us(s) > 2 * 1000 * RTS_US)
		c->wants_rts = true;
	return c->wants_rts;
}

/* One trial at a time. */
static bool rts_gains(struct contention *c, bool wanted)
{
	struct trial_now state = {
		.crowd = wanted && !c->trial.trying,
		.ready = c->rts == c->rts_trial.on,
		.bytes = c->bytes,
	};

	return trial_tick(&c->rts_trial, c->now, &state) && wanted;
}

void contention_tick(struct contention *c, uint64_t now, const struct contention_sample *sample)
{
	unsigned wanted;
	bool gain;

	if (!c->ticked)
		c->stepped_at = c->now = now;
	c->ticked = true;
	c->now = now > c->now ? now : c->now;
	c->sample = *sample;
	c->bytes += sample->bytes;
	c->crowd = is_crowd(c, sample);
	wanted = wanted_exponent(c, sample);
	gain = windows_gain(c, wanted);
	move_towards(c, gain ? wanted : c->config.own_exponent);
	c->ap_exponent = ap_exponent(c);
	if (sample->exchanging || !c->config.windows)
		c->instead_of_turns = c->config.windows && 2 * sample->aggregating > sample->exchanging &&
			c->trial.on != c->trial.trying;
	c->rts = rts_gains(c, wants_rts(c, sample));
	if (!c->config.windows)
		because(c, CONTENTION_NOT_SET, 0, 0, false);
}

void contention_explain(const struct contention *c, char *text, size_t size)
{
	/* of value and threshold, or of their tens and units */
	static const char *const formats[] = {
		[CONTENTION_NOT_SET] = "windows are left alone",
		[CONTENTION_FEW] = "clients that contend: %d, %d or more are needed",
		[CONTENTION_SINGLE_FRAMES] = "clients that aggregate frames: %d, more than %d are needed",
		[CONTENTION_CHANNEL_IDLE] = "channel busy for %d.%d %% of the time, more than %d.%d %% are needed",
		[CONTENTION_NO_COLLISIONS] = "%d.%d %% of the frames to clients are lost, %d.%d %% or more are needed",
		[CONTENTION_NO_GAIN] = "%d kbit/s were delivered with larger windows, %d with own ones",
		[CONTENTION_TRIAL] = "for some seconds, to see whether larger ones deliver more",
		[CONTENTION_CROWD] = "clients that contend: %d",
	};

	if (c->reason == CONTENTION_CHANNEL_IDLE || c->reason == CONTENTION_NO_COLLISIONS)
		snprintf(text, size, formats[c->reason], c->value / 10, c->value % 10, c->threshold / 10, c->threshold % 10);
	else
		snprintf(text, size, formats[c->reason], c->value, c->threshold);
}
