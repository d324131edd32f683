/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the policy, checked over random traces. Prints the seed of a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

static uint64_t state;
static unsigned long seed, step_no;

static uint32_t rnd(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return below ? state % below : 0;
}

#define CHECK(condition) do { \
	if (!(condition)) { \
		fprintf(stderr, "%s:%d: %s: does not hold (seed %lu, step %lu)\n", \
			__FILE__, __LINE__, #condition, seed, step_no); \
		exit(1); \
	} \
} while (0)

static struct policy p, twin;

static unsigned count_level(enum policy_level level)
{
	unsigned n = 0;

	for (unsigned i = 0; i < POLICY_CLIENTS_MAX; i++)
		n += p.client[i].used && p.client[i].level == level;
	return n;
}

static bool is_exempt(const struct policy_client *c)
{
	return c->flags != 0;
}

static unsigned count_light(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p.high; i++)
		n += p.client[i].used && p.client[i].light && !is_exempt(&p.client[i]);
	return n;
}

/* Invariants after every tick. */
static void check_always(uint64_t now, const enum policy_level *before, unsigned active_before)
{
	unsigned demanding = 0, clients = 0;

	CHECK(p.wake_at > now);
	CHECK(p.wake_at <= now + p.config.idle_tick_ms || p.wake_at <= now + p.config.tick_ms);
	CHECK(count_level(POLICY_ACTIVE) <= 2 * p.config.active ||
	      p.active <= active_before);
	CHECK(count_level(POLICY_ACTIVE) == p.active);
	for (unsigned i = 0; i < POLICY_CLIENTS_MAX; i++) {
		const struct policy_client *c = &p.client[i];

		if (!c->used)
			continue;
		clients++;
		CHECK(i < p.high);
		CHECK(c->changed == (c->level != before[i]));
		if (is_exempt(c) || !p.scheduling)
			CHECK(c->level == (p.scheduling && c->flags == POLICY_CLIENT_NEIGHBOUR ? POLICY_LIGHT : POLICY_OPEN));
		CHECK(!c->light || (c->demand && p.config.mode == POLICY_BACKLOG && !p.config.trickle && c->waiting <= p.config.demand_bytes));
		CHECK(!c->demand || !(c->flags & (POLICY_CLIENT_IGNORED | POLICY_CLIENT_NEIGHBOUR)));
		demanding += c->demand && !is_exempt(c) && !c->light;
		if (c->waiting > p.config.demand_bytes && !(c->flags & (POLICY_CLIENT_IGNORED | POLICY_CLIENT_NEIGHBOUR)))
			CHECK(c->demand);
	}
	CHECK(clients == p.clients);
	CHECK(demanding == p.demanding);
	if (p.scheduling) {
		CHECK(p.engaged && p.config.engage != POLICY_DRY_RUN && !p.paused);
		/* no client waits while a place is free */
		if (p.config.mode == POLICY_BACKLOG && p.active < p.config.active)
			for (unsigned i = 0; i < p.high; i++)
				CHECK(!p.client[i].used || is_exempt(&p.client[i]) || !p.client[i].demand ||
				      p.client[i].light || p.client[i].level == POLICY_ACTIVE);
	}
	if (p.next != POLICY_NONE) {
		CHECK(p.client[p.next].used);
		CHECK(p.client[p.next].level != POLICY_ACTIVE || p.config.mode == POLICY_PAPER);
		CHECK(p.next_at > now);
	}
}

static void both_tick(uint64_t now, int busy)
{
	enum policy_level before[POLICY_CLIENTS_MAX];
	unsigned active_before = p.active;

	for (unsigned i = 0; i < POLICY_CLIENTS_MAX; i++)
		before[i] = p.client[i].level;
	policy_tick(&p, now, busy);
	check_always(p.now, before, active_before);
	policy_tick(&twin, now, busy);
	/* the same calls give the same answers */
	CHECK(memcmp(&p, &twin, sizeof(p)) == 0);
}

static void random_config(struct policy_config *c)
{
	policy_defaults(c, rnd(2) ? POLICY_PAPER : POLICY_BACKLOG, rnd(2));
	c->engage = rnd(3);
	c->active = rnd(4) ? 1 + rnd(8) : 1 + rnd(POLICY_CLIENTS_MAX);
	c->slot_ms = 10 + rnd(3000);
	c->engage_delay_ms = rnd(3) * 500;
	c->next_lead_ms = rnd(2) ? rnd(1000) : 0;
	c->soon_lead_ms = c->next_lead_ms ? rnd(c->next_lead_ms) : 0;
}

/* Clients come and go, demand begins and ends, clocks jump: nothing breaks. */
static void chaos(void)
{
	struct policy_config config;
	uint64_t now = rnd(2) ? 0 : rnd(1000000000);

	memset(&p, 0, sizeof(p));
	memset(&twin, 0, sizeof(twin));
	random_config(&config);
	policy_init(&p, &config);
	policy_init(&twin, &config);
	for (step_no = 0; step_no < 2000; step_no++) {
		unsigned clients = rnd(4);

		while (clients--) {
			uint16_t id = rnd(64);
			unsigned flags = rnd(8) ? 0 : rnd(5);

			if (rnd(3)) {
				CHECK(policy_add(&p, flags) == policy_add(&twin, flags));
			} else if (p.client[id].used) {
				policy_del(&p, id);
				policy_del(&twin, id);
				CHECK(p.next != id);
			}
		}
		for (unsigned i = 0; i < p.high; i++) {
			uint32_t waiting = rnd(3) ? 0 : rnd(200000);
			uint64_t bytes = rnd(3) ? 0 : rnd(1000000);

			if (!rnd(5000))
				bytes = UINT64_MAX;
			policy_sample(&p, i, waiting, bytes);
			policy_sample(&twin, i, waiting, bytes);
		}
		if (!rnd(200)) {
			random_config(&config);
			policy_configure(&p, &config);
			policy_configure(&twin, &config);
		}
		if (!rnd(100)) {
			bool paused = rnd(2);

			policy_pause(&p, paused);
			policy_pause(&twin, paused);
		}
		if (rnd(50))
			now = rnd(3) ? p.wake_at : now + rnd(100);
		else
			now = rnd(2) ? now + rnd(1000000000) : now - rnd(now > 5000 ? 5000 : 1);
		both_tick(now, (int)rnd(1200) - 1);
	}
}

/* Ticks until `until` at the times that the policy requests, late by up to `late` ms. */
static uint64_t play(uint64_t now, uint64_t until, unsigned clients, unsigned constant, unsigned late)
{
	while (now < until) {
		for (unsigned i = 0; i < clients; i++) {
			bool busy = i < constant || rnd(4) == 0;

			policy_sample(&p, i, busy ? 20000 : 0, busy ? 5000 : 0);
			policy_sample(&twin, i, p.client[i].waiting, busy ? 5000 : 0);
		}
		both_tick(now, POLICY_BUSY_UNKNOWN);
		now = p.wake_at + rnd(late + 1);
	}
	return now;
}

/* Over ten rounds, clients with constant demand get the same time within 5 %. */
static void fairness(enum policy_mode mode)
{
	struct policy_config config;
	unsigned clients = 2 + rnd(60), constant = mode == POLICY_PAPER || rnd(2) ? clients : 1 + rnd(clients);
	uint64_t first[POLICY_CLIENTS_MAX] = { 0 }, now = 1000, round, least = UINT64_MAX, most = 0;

	memset(&p, 0, sizeof(p));
	memset(&twin, 0, sizeof(twin));
	policy_defaults(&config, mode, false);
	config.engage = POLICY_ALWAYS;
	config.active = 1 + rnd(8);
	config.slot_ms = 800 + rnd(2000);
	config.next_lead_ms = 100;
	config.soon_lead_ms = 20;
	policy_init(&p, &config);
	policy_init(&twin, &config);
	for (unsigned i = 0; i < clients; i++) {
		policy_add(&p, 0);
		policy_add(&twin, 0);
	}
	if (clients <= config.active)
		return;
	now = play(now, now + config.slot_ms, clients, constant, 3);
	for (unsigned i = 0; i < clients; i++)
		first[i] = p.client[i].active_ms;
	/* a whole number of rounds if that is defined, or long enough not to matter */
	round = mode == POLICY_PAPER ? (clients + config.active - 1) / config.active * (uint64_t)config.slot_ms :
		(uint64_t)clients * config.slot_ms / config.active;
	now = play(now, now + (constant == clients ? 10 : 40) * round, clients, constant, 3);
	for (unsigned i = 0; i < constant; i++) {
		uint64_t served = p.client[i].active_ms - first[i];

		if (served < least)
			least = served;
		if (served > most)
			most = served;
	}
	/* within 5 % of the mean, plus half a turn because we stop anywhere in a round */
	if ((most - least) / 2 > (most + least) / 2 / 20 + config.slot_ms / 2)
		fprintf(stderr, "mode %d clients %u constant %u K %u T %u: %llu..%llu ms\n", mode, clients, constant,
			config.active, config.slot_ms, (unsigned long long)least, (unsigned long long)most);
	CHECK((most - least) / 2 <= (most + least) / 2 / 20 + config.slot_ms / 2);
	CHECK(least > 0);
}

/* A turn begins after the notices that the backend needs: soon_lead_ms at POLICY_SOON, and before that POLICY_NEXT. */
static void leads(enum policy_mode mode)
{
	struct policy_config config;
	uint64_t next_at[20] = { 0 }, soon_at[20] = { 0 }, served = 0;
	unsigned noticed = 0;

	policy_defaults(&config, mode, true);
	config.engage = POLICY_ALWAYS;
	config.active = 1 + rnd(4);
	config.slot_ms = 1000 + rnd(3000);
	config.soon_lead_ms = 10 + rnd(50);
	config.next_lead_ms = config.soon_lead_ms + 10 + rnd(mode == POLICY_BACKLOG ? 2 * config.slot_ms : 150);
	policy_init(&p, &config);
	for (unsigned id = 0; id < 20; id++)
		policy_add(&p, 0);
	for (uint64_t now = 1000; now < 61000; now = p.wake_at) {
		enum policy_level before[20];

		for (unsigned id = 0; id < 20; id++) {
			before[id] = p.client[id].level;
			policy_sample(&p, id, 20000, 5000);
		}
		policy_tick(&p, now, POLICY_BUSY_UNKNOWN);
		/* nobody else is readied */
		CHECK(count_level(POLICY_NEXT) + count_level(POLICY_SOON) <=
		      (mode == POLICY_PAPER ? config.active : 1 + config.next_lead_ms / (config.slot_ms / config.active)));
		for (unsigned id = 0; id < 20; id++) {
			enum policy_level level = p.client[id].level;

			if (level == before[id])
				continue;
			if (level == POLICY_NEXT)
				next_at[id] = now;
			if (level == POLICY_SOON)
				soon_at[id] = now;
			/* of a turn after the next one, the time is known within a step of the stagger */
			if (level == POLICY_SOON && now > 1000 + 3 * config.slot_ms)
				CHECK(before[id] == POLICY_NEXT &&
				      now - next_at[id] + config.slot_ms / config.active >= config.next_lead_ms - config.soon_lead_ms);
			if (level != POLICY_ACTIVE || now <= 1000 + 3 * config.slot_ms)
				continue;
			CHECK(before[id] == POLICY_SOON && now - soon_at[id] == config.soon_lead_ms);
			noticed++;
		}
	}
	CHECK(noticed >= 10);
	for (unsigned id = 0; id < 20; id++) {
		CHECK(p.client[id].active_ms + p.client[id].waiting_ms == p.now - 1000);
		served += p.client[id].active_ms;
	}
	CHECK(mode == POLICY_PAPER || served == config.active * (p.now - 1000));
}

/* With at most K clients with demand, none of these is throttled. */
static void few(void)
{
	struct policy_config config;
	unsigned clients = 2 + rnd(40), demanding;
	uint64_t now = 5;

	memset(&p, 0, sizeof(p));
	policy_defaults(&config, POLICY_BACKLOG, false);
	config.engage = rnd(2) ? POLICY_ALWAYS : POLICY_AUTO;
	config.active = 1 + rnd(10);
	policy_init(&p, &config);
	demanding = rnd(config.active + 1);
	for (unsigned i = 0; i < clients; i++)
		policy_add(&p, 0);
	for (step_no = 0; step_no < 300; step_no++) {
		/* first a crowd, then a few */
		bool crowd = step_no < 100;

		for (unsigned i = 0; i < clients; i++)
			policy_sample(&p, i, crowd || i < demanding ? 9000 : 0, 0);
		policy_tick(&p, now, POLICY_BUSY_UNKNOWN);
		now = p.wake_at;
		for (unsigned i = 0; i < clients && !crowd; i++)
			if (p.client[i].demand && p.demanding <= config.active)
				CHECK(p.client[i].level == POLICY_ACTIVE || p.client[i].level == POLICY_OPEN);
	}
	CHECK(!p.engaged);
	CHECK(count_level(POLICY_OPEN) == clients);
}

/* A client whose demand ends gives up its place, and the next one gets it at once. */
static void gives_up(void)
{
	struct policy_config config;
	uint64_t now = 0, quiet = 0;
	uint16_t who = POLICY_NONE;

	memset(&p, 0, sizeof(p));
	policy_defaults(&config, POLICY_BACKLOG, false);
	config.engage = POLICY_ALWAYS;
	config.slot_ms = 20000;
	policy_init(&p, &config);
	for (unsigned i = 0; i < 10; i++)
		policy_add(&p, 0);
	for (step_no = 0; step_no < 60; step_no++) {
		for (unsigned i = 0; i < 10; i++) {
			if (who == POLICY_NONE && step_no > 30 && p.client[i].level == POLICY_ACTIVE) {
				who = i;
				quiet = now;
			}
			policy_sample(&p, i, i == who ? 0 : 50000, i == who ? 0 : 100000);
		}
		policy_tick(&p, now, POLICY_BUSY_UNKNOWN);
		now = p.wake_at;
		if (who != POLICY_NONE && p.client[who].level != POLICY_ACTIVE) {
			CHECK(p.active >= config.active && p.active <= 2 * config.active);
			break;
		}
		CHECK(who == POLICY_NONE || now - quiet < 6000);
	}
	CHECK(who != POLICY_NONE && (p.client[who].level == POLICY_LIGHT || p.client[who].level == POLICY_IDLE));
	CHECK(now - quiet <= 1500);
}

static void demand_of(unsigned first, unsigned end, uint32_t waiting)
{
	for (unsigned id = first; id < end; id++)
		policy_sample(&p, id, waiting, 0);
}

/* As many clients as have a turn at once are no crowd, neither at the start nor at the end of one. */
static void last_few(void)
{
	struct policy_config config;
	uint64_t now = 0;

	memset(&p, 0, sizeof(p));
	policy_defaults(&config, POLICY_BACKLOG, false);
	config.active = 3;
	policy_init(&p, &config);
	for (unsigned i = 0; i < 20; i++)
		policy_add(&p, 0);
	for (; now < 5000; now = p.wake_at) {
		demand_of(0, config.active, 9000);
		policy_tick(&p, now, 900);
		CHECK(!p.engaged && p.reason == POLICY_REASON_FEW_DEMAND);
	}
	for (uint64_t end = now + 5000; now < end; now = p.wake_at) {
		demand_of(0, 20, 9000);
		policy_tick(&p, now, 900);
	}
	CHECK(p.engaged);
	for (uint64_t end = now + 5000; now < end; now = p.wake_at) {
		demand_of(0, config.active, 9000);
		demand_of(config.active, 20, 0);
		policy_tick(&p, now, 900);
	}
	CHECK(!p.engaged && p.reason == POLICY_REASON_FEW_DEMAND && count_level(POLICY_OPEN) == 20);
}

static void busy_for(uint64_t *now, unsigned ms, int busy)
{
	for (uint64_t end = *now + ms; *now < end; *now += 100) {
		demand_of(0, 6, 9000);
		policy_tick(&p, *now, busy);
	}
}

/* A channel that is idle for less than the delay is no reason to disengage, however often it is. */
static void lulls(void)
{
	struct policy_config config;
	uint64_t now = 1000, waited;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 6; i++)
		policy_add(&p, 0);
	for (unsigned i = 0; i < 5; i++) {
		busy_for(&now, 100, 900);
		CHECK(p.engaged);
		busy_for(&now, 600, 100);
		CHECK(p.engaged && p.reason == POLICY_REASON_DELAY);
	}
	busy_for(&now, 500, 100);
	CHECK(!p.engaged && p.engagements == 1);
	/* nor does what was before it engaged count */
	busy_for(&now, 100, 900);
	CHECK(p.engaged && p.engagements == 2);
	busy_for(&now, 900, 100);
	CHECK(p.engaged);
	busy_for(&now, 200, 100);
	CHECK(!p.engaged);
	waited = p.client[1].waiting_ms;
	busy_for(&now, 1000, 100);
	CHECK(p.client[1].waiting_ms == waited && waited > 0);
}

/* Without a survey, auto engages after the delay, not before. */
static void engagement_by_demand(void)
{
	struct policy_config config;
	uint64_t now;

	memset(&p, 0, sizeof(p));
	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 6; i++)
		policy_add(&p, 0);
	for (now = 0; now < 20000 && !p.engaged; now += 100) {
		demand_of(0, 6, 9000);
		policy_tick(&p, now, POLICY_BUSY_UNKNOWN);
		CHECK(p.engaged || (p.reason == POLICY_REASON_DELAY && p.value == (int)now && p.threshold == (int)config.engage_delay_ms));
	}
	CHECK(p.engaged && now - 100 == config.engage_delay_ms && p.reason == POLICY_REASON_DEMAND && p.engagements == 1);
}

/* In the paper's mode, also those without demand take turns. */
static void idle_clients_of_the_paper(void)
{
	struct policy_config config;

	policy_defaults(&config, POLICY_PAPER, false);
	for (config.engage = POLICY_AUTO; config.engage <= POLICY_ALWAYS; config.engage++) {
		policy_init(&p, &config);
		for (unsigned i = 0; i < 12; i++)
			policy_add(&p, 0);
		for (uint64_t now = 0; now < 5000; now = p.wake_at)
			policy_tick(&p, now, config.engage == POLICY_ALWAYS ? 100 : 900);
		CHECK(p.engaged == (config.engage == POLICY_ALWAYS));
	}
	policy_defaults(&config, POLICY_BACKLOG, false);
	config.engage = POLICY_ALWAYS;
	policy_configure(&p, &config);
	for (uint64_t now = 5000; now < 10000; now = p.wake_at)
		policy_tick(&p, now, 900);
	CHECK(!p.engaged);
}

/* With a survey, auto engages when it should, and reports the right reasons. */
static void engagement(void)
{
	struct policy_config config;
	char why[160];
	uint64_t now = 0, since = 0;

	memset(&p, 0, sizeof(p));
	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 6; i++)
		policy_add(&p, 0);
	policy_tick(&p, now, 900);
	CHECK(!p.engaged && p.reason == POLICY_REASON_FEW_DEMAND && p.value == 0 && p.threshold == (int)config.active);
	for (now = 1000; now < 20000 && !p.engaged; now += 100) {
		/* busy only from 5 s on */
		int busy = now < 5000 ? 0 : 800;

		for (unsigned i = 0; i < 6; i++)
			policy_sample(&p, i, 9000, 0);
		policy_tick(&p, now, busy);
		if (now < 5000)
			CHECK(p.reason == POLICY_REASON_CHANNEL_IDLE && p.value == 0 && p.threshold == 500);
		else if (!since)
			since = now;
	}
	CHECK(p.engaged && now - 100 == since);
	CHECK(p.reason == POLICY_REASON_DEMAND_BUSY);
	policy_explain(&p, why, sizeof(why));
	CHECK(strstr(why, "800"));
	/* above three quarters of the threshold it stays engaged, at these it disengages, after the delay */
	for (unsigned i = 0; i < 50; i++, now += 100) {
		for (unsigned id = 0; id < 6; id++)
			policy_sample(&p, id, 9000, 0);
		policy_tick(&p, now, 376);
		CHECK(p.engaged);
	}
	since = now;
	for (; p.engaged && now < since + 10000; now += 100) {
		for (unsigned id = 0; id < 6; id++)
			policy_sample(&p, id, 9000, 0);
		policy_tick(&p, now, 375);
	}
	CHECK(!p.engaged && now - 100 - since == config.engage_delay_ms);
	/* dry-run decides the same, and throttles no client */
	config.engage = POLICY_DRY_RUN;
	policy_configure(&p, &config);
	for (unsigned i = 0; i < 50; i++, now += 100) {
		for (unsigned id = 0; id < 6; id++)
			policy_sample(&p, id, 9000, 0);
		policy_tick(&p, now, 900);
		CHECK(count_level(POLICY_OPEN) == 6);
	}
	CHECK(p.engaged && !p.scheduling);
	policy_pause(&p, true);
	policy_tick(&p, now, 900);
	CHECK(!p.engaged && p.reason == POLICY_REASON_PAUSED);
	policy_pause(&p, false);
	/* a lever that does more has priority, unless turns were requested */
	policy_set_aside(&p, POLICY_ASIDE_WINDOWS);
	policy_tick(&p, now += 100, 900);
	CHECK(!p.engaged && p.reason == POLICY_REASON_WINDOWS);
	policy_explain(&p, why, sizeof(why));
	CHECK(strstr(why, "windows"));
	policy_set_aside(&p, POLICY_ASIDE_NO_EFFECT);
	policy_tick(&p, now += 100, 900);
	CHECK(!p.engaged && p.reason == POLICY_REASON_NO_EFFECT);
	policy_explain(&p, why, sizeof(why));
	CHECK(strstr(why, "no effect"));
	config.engage = POLICY_ALWAYS;
	policy_configure(&p, &config);
	policy_tick(&p, now += 100, 900);
	CHECK(p.engaged && p.scheduling);
	config.engage = POLICY_AUTO;
	policy_configure(&p, &config);
	policy_tick(&p, now += 100, 900);
	CHECK(!p.engaged);
	policy_set_aside(&p, POLICY_ASIDE_NOT);
	policy_tick(&p, now += 100, 900);
	CHECK(p.engaged);
}

/* Requests and answers take no turn; beside them, another client joins an active one that does not use the air. */
static void light_demand(void)
{
	struct policy_config config;
	uint64_t now;
	unsigned most = 0;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 20; i++)
		policy_add(&p, 0);
	for (now = 100000; now < 160000; now = p.wake_at) {
		for (unsigned id = 0; id < 10; id++)	/* the sender's whole window is in flight */
			policy_sample(&p, id, p.client[id].level == POLICY_ACTIVE && now - p.client[id].entered < 400 ? 0 : 9000, 30000);
		for (unsigned id = 10; id < 20; id++)
			policy_sample(&p, id, id % 2 ? 0 : 1500, 10000);
		policy_tick(&p, now, 900);
		if (now < 103000)	/* averages begin at zero */
			continue;
		CHECK(count_light() >= 10 && count_light() + p.demanding == 20 && p.active <= 2 * config.active);
		for (unsigned id = 10; id < 20; id++)
			CHECK(p.client[id].light && p.client[id].demand && p.client[id].level != POLICY_ACTIVE);
		if (p.active > most)
			most = p.active;
	}
	CHECK(p.engaged && most > config.active);
	/* a client that has finished its download and continues to browse leaves its place */
	for (uint64_t end = now + 2 * config.slot_ms; now < end; now = p.wake_at) {
		for (unsigned id = 0; id < 20; id++)
			policy_sample(&p, id, id < 9 ? 9000 : 0, 10000);
		policy_tick(&p, now, 900);
	}
	CHECK(p.client[9].light && p.client[9].level == POLICY_LIGHT && p.active == config.active);
	/* a client that begins a download takes turns again, and light demand alone is no reason to stay engaged */
	policy_sample(&p, 15, 9000, 10000);
	policy_tick(&p, now, 900);
	CHECK(!p.client[15].light && p.demanding == 10);
	for (uint64_t end = now + config.slot_ms + 2000; now < end; now = p.wake_at) {
		for (unsigned id = 0; id < 20; id++)
			policy_sample(&p, id, 0, 10000);
		policy_tick(&p, now, 900);
	}
	CHECK(!p.engaged && count_light() == 20 && p.demanding == 0);
}

/*
 * At its turn, a client whose rate grows stays although nothing is queued, one that
 * gets only answers leaves, and the next client in the queue is always being readied.
 */
static void window_opens(void)
{
	struct policy_config config;
	uint64_t now = 0, entered = 0;
	uint16_t who = POLICY_NONE;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 10; i++)
		policy_add(&p, 0);
	for (step_no = 0; now < 60000; now = p.wake_at, step_no++) {
		for (uint16_t id = 0; id < 10; id++)
			policy_sample(&p, id, id == who ? 0 : 9000,
				      id != who ? 10000 : now - entered < 3000 ? (now - entered) * 20 : 5000);
		policy_tick(&p, now, 900);
		CHECK(count_level(POLICY_SOON) == (p.scheduling && p.next != POLICY_NONE));
		CHECK(p.next == POLICY_NONE || p.client[p.next].level == POLICY_SOON);
		if (who == POLICY_NONE && now > 30000 && p.client[p.place[0]].entered == now) {
			who = p.place[0];
			entered = now;
		}
		if (who == POLICY_NONE)
			continue;
		if (now - entered < 3000)
			CHECK(p.client[who].level == POLICY_ACTIVE);
		if (now - entered > 3000 + 1000)
			break;
	}
	CHECK(who != POLICY_NONE && p.client[who].level == POLICY_LIGHT);
}

/* Once nothing is queued for it any more: a client that waits has light demand after a second, one at its turn after three tenths. */
static void how_soon_demand_is_light(void)
{
	for (unsigned active = 0; active < 2; active++) {
		struct policy_config config;
		uint64_t now = 1000, last = 0;
		uint16_t who = POLICY_NONE;

		policy_defaults(&config, POLICY_BACKLOG, false);
		policy_init(&p, &config);
		for (unsigned i = 0; i < 10; i++)
			policy_add(&p, 0);
		for (; who == POLICY_NONE || (!p.client[who].light && now - last < 5000); now += 100) {
			for (uint16_t id = 0; id < 10; id++)
				policy_sample(&p, id, id == who ? 0 : 9000, id == who ? 2000 : 10000);
			policy_tick(&p, now, 900);
			if (who == POLICY_NONE && now > 20000 && now - p.client[p.place[0]].entered == 1000) {
				who = active ? p.place[0] : p.tail;
				last = now;
			}
		}
		CHECK(now - 100 - last == (active ? 400 : 1100));
	}
}

/* A client at its turn for which nothing is queued leaves if it gets less than half of what it got before. */
static void rate_falls(void)
{
	for (unsigned percent = 30; percent <= 50; percent += 20) {
		struct policy_config config;
		uint64_t now = 1000, entered = 0, before = now;
		uint16_t who = POLICY_NONE;

		policy_defaults(&config, POLICY_BACKLOG, false);
		policy_init(&p, &config);
		for (unsigned i = 0; i < 10; i++)
			policy_add(&p, 0);
		for (; who == POLICY_NONE || now - entered < 2000; before = now, now = p.wake_at) {
			for (uint16_t id = 0; id < 10; id++)
				policy_sample(&p, id, id == who ? 0 : 9000,
					      (now - before) * (id == who && now - entered > 1000 ? percent : 100));
			policy_tick(&p, now, 900);
			if (who == POLICY_NONE && now > 30000 && p.client[p.place[0]].entered == now) {
				who = p.place[0];
				entered = now;
			}
		}
		CHECK(p.client[who].level == (percent < 50 ? POLICY_LIGHT : POLICY_ACTIVE));
	}
}

static void weights(void)
{
	static const struct {
		enum policy_level level;
		unsigned delivered_kbit, received_kbit;
		uint16_t active, waiting, weight;
		unsigned demanding;
	} cases[] = {
		{ POLICY_ACTIVE, 800, 800, 384, 1, 384, 10 },
		{ POLICY_SOON, 0, 0, 384, 1, 128, 10 },
		{ POLICY_NEXT, 0, 0, 384, 1, 1, 10 },
		{ POLICY_WAITING, 0, 800, 384, 1, 1, 10 },
		/* a call, and a client that loads pages after its download: half of the mean of those that take turns */
		{ POLICY_LIGHT, 83, 83, 384, 1, 384, 10 },
		{ POLICY_LIGHT, 100, 100, 384, 30, 384, 10 },
		{ POLICY_LIGHT, 101, 83, 384, 1, 25, 10 },
		{ POLICY_LIGHT, 83, 101, 384, 1, 128, 2 },
		{ POLICY_LIGHT, 800, 0, 384, 1, 256, 0 },
		{ POLICY_LIGHT, 800, 800, 384, 1, 1, 512 },
		{ POLICY_IDLE, 0, 0, 384, 1, 24, 10 },
		{ POLICY_IDLE, 0, 100, 384, 1, 24, 10 },
		{ POLICY_IDLE, 0, 800, 384, 1, 72, 10 },
		{ POLICY_IDLE, 0, 0, 65535, 1, 4095, 10 },
		{ POLICY_IDLE, 0, 0, 384, 30, 30, 10 },
		{ POLICY_SOON, 0, 0, 256, 200, 200, 10 },
		{ POLICY_IDLE, 0, 0, 1, 1, 1, 10 },
	};
	struct policy_config config;
	unsigned of[8] = { 0 };

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	policy_add(&p, 0);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		p.demanding = cases[i].demanding;
		p.client[0].level = cases[i].level;
		p.client[0].delivered_bps = cases[i].delivered_kbit * 1000U;
		p.client[0].received_bps = cases[i].received_kbit * 1000U;
		CHECK(policy_weight(&p, 0, cases[i].active, cases[i].waiting) == cases[i].weight);
		CHECK(policy_weight_possible(cases[i].weight, cases[i].active, cases[i].waiting));
	}
	CHECK(!policy_weight_possible(385, 384, 1) && !policy_weight_possible(29, 384, 30) && !policy_weight_possible(200, 1, 30));
	/* a neighbour has a client's share of the air, whatever K */
	policy_set_flags(&p, 0, POLICY_CLIENT_NEIGHBOUR);
	p.client[0].level = POLICY_LIGHT;
	p.demanding = 10;
	p.client[0].delivered_bps = p.client[0].received_bps = 100000;
	CHECK(policy_weight(&p, 0, 384, 1) == 384);
	p.client[0].delivered_bps = 8000000;
	CHECK(policy_weight(&p, 0, 384, 1) == 51);
	p.config.active = 5;
	CHECK(policy_weight(&p, 0, 384, 1) == 204);
	p.config.active = 512;
	CHECK(policy_weight(&p, 0, 384, 1) == 384);
	p.config.active = config.active;
	policy_set_flags(&p, 0, 0);
	/* clients that send much have three of eight parts of two slots each, and always as many of them have theirs */
	for (unsigned i = 1; i < 8; i++)
		policy_add(&p, 0);
	for (unsigned part = 0; part < 8; part++) {
		unsigned turns = 0;

		p.now = part * (config.slot_ms / 4);
		for (uint16_t id = 0; id < 8; id++) {
			uint16_t weight;

			p.client[id].level = POLICY_IDLE;
			p.client[id].received_bps = id < 4 ? 100001 : UINT32_MAX;
			weight = policy_weight(&p, id, 384, 1);
			CHECK(weight == 72 || weight == 1);
			CHECK(policy_weight_possible(weight, 384, 1));
			p.now += config.slot_ms / 4 - 1;
			CHECK(policy_weight(&p, id, 384, 1) == weight);
			p.now -= config.slot_ms / 4 - 1;
			turns += weight == 72;
			of[id] += weight == 72;
		}
		CHECK(turns == 3);
	}
	for (uint16_t id = 0; id < 8; id++)
		CHECK(of[id] == 3);
	p.now = 0;
	/* an upload of 400 kbit/s, and answers of 200 kbit/s to it, are recognised after some seconds */
	p.client[0].delivered_bps = p.client[0].received_bps = 0;
	for (uint64_t now = 0; now < 40000; now += 300) {
		policy_sample(&p, 0, 0, 7500);
		policy_received(&p, 0, 15000);
		policy_tick(&p, now, 900);
		CHECK(now != 9900 || (p.client[0].received_bps > 240000 && p.client[0].received_bps < 265000));
	}
	CHECK(p.client[0].received_bps > 380000 && p.client[0].received_bps <= 400000);
	CHECK(p.client[0].delivered_bps > 190000 && p.client[0].delivered_bps <= 200000);
}

/* Set by ten_minutes(): the share of the time with demand in which there were turns, percent, and the longest stretch, ms. */
static struct {
	unsigned share;
	uint64_t longest;
} turns;

/*
 * Twenty clients for ten minutes, with demand for the first crowd_s seconds of
 * every minute. Turns deliver percent of what serving all clients does, and a quarter
 * of that in their first 300 ms, and keep the channel busy for busy permille of the
 * time.
 */
static void ten_minutes(const struct policy_config *config, unsigned crowd_s, unsigned percent, int busy)
{
	uint64_t sum = 0, crowd = 0, since = 0;

	turns.longest = 0;
	policy_init(&p, config);
	for (unsigned i = 0; i < 20; i++)
		policy_add(&p, 0);
	for (uint64_t now = 1000, before = now; now < 600000; now = p.wake_at) {
		/* 8 Mbit/s, within a tenth */
		uint64_t bytes = (now - before) * 1000 / 20 * (95 + rnd(11)) / 100;
		bool demand = now % 60000 < crowd_s * 1000;

		crowd += demand ? now - before : 0;
		sum += p.scheduling ? now - before : 0;
		if (p.scheduling)
			bytes = bytes * percent / (now - since <= 300 ? 400 : 100);
		else
			since = now;
		if (now - since > turns.longest)
			turns.longest = now - since;
		for (unsigned id = 0; id < 20; id++)
			policy_sample(&p, id, demand ? 9000 : 0, demand ? bytes : 0);
		before = now;
		policy_tick(&p, now, !demand ? 100 : p.scheduling ? busy : 900);
		if (!p.scheduling)
			CHECK(p.next == POLICY_NONE && count_level(POLICY_OPEN) == 20);
		else
			CHECK(p.active == config->active);
	}
	turns.share = sum * 100 / crowd;
}

static void trials(void)
{
	struct policy_config config;
	char why[128];
	uint64_t least = UINT64_MAX, most = 0;

	policy_defaults(&config, POLICY_BACKLOG, true);
	ten_minutes(&config, 60, 95, 900);
	CHECK(turns.share <= 5 && turns.longest <= 4000);
	CHECK(!p.engaged && p.reason == POLICY_REASON_NO_GAIN && p.value * 10 < p.threshold * 11);
	policy_explain(&p, why, sizeof(why));
	CHECK(strstr(why, "turns delivered "));
	/* an obvious result ends a trial early */
	ten_minutes(&config, 60, 40, 900);
	CHECK(turns.share <= 2 && turns.longest >= 500 && turns.longest <= 1000);
	ten_minutes(&config, 60, 95, 100);
	CHECK(turns.share <= 1 && turns.longest <= 1000 && p.engagements <= 5);
	/* a short crowd has no trials */
	ten_minutes(&config, 35, 40, 900);
	CHECK(turns.longest == 0);
	ten_minutes(&config, 60, 150, 900);
	CHECK(turns.share >= 90);
	/* a trial keeps the queue: no client falls behind by more than three turns */
	for (unsigned id = 0; id < 20; id++) {
		if (p.client[id].active_ms < least)
			least = p.client[id].active_ms;
		if (p.client[id].active_ms > most)
			most = p.client[id].active_ms;
	}
	CHECK(most - least <= 3 * config.slot_ms);
	/* requested turns need no trial */
	config.engage = POLICY_ALWAYS;
	ten_minutes(&config, 60, 50, 900);
	CHECK(turns.share >= 99);
	/* turns by weights stay if they gain, and end if they do not */
	config.engage = POLICY_AUTO;
	config.trickle = false;
	ten_minutes(&config, 60, 150, 900);
	CHECK(turns.share >= 97 && p.trial.low > 1000);
	ten_minutes(&config, 60, 50, 900);
	CHECK(turns.share <= 25 && (p.trial.trying || p.reason == POLICY_REASON_NO_GAIN));
	ten_minutes(&config, 60, 100, 900);
	CHECK(turns.share <= 60 && (p.trial.trying || p.reason == POLICY_REASON_NO_GAIN));
}

static void crowd_of(unsigned with_demand, uint64_t *now, unsigned seconds)
{
	for (uint64_t end = *now + seconds * 1000; *now < end; *now = p.wake_at) {
		for (unsigned id = 0; id < 20; id++)
			policy_sample(&p, id, id < with_demand ? 9000 : 0, id < with_demand ? 20000 : 0);
		policy_tick(&p, *now, 900);
	}
}

/* There are no trials with the last clients of a crowd, nor during a dry run. */
static void no_trials(void)
{
	struct policy_config config;
	uint64_t now = 1000;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 20; i++)
		policy_add(&p, 0);
	crowd_of(20, &now, 5);
	crowd_of(1, &now, 900);
	CHECK(!p.engaged && !p.trial.count && !p.trial.trying);
	config.engage = POLICY_DRY_RUN;
	policy_configure(&p, &config);
	crowd_of(20, &now, 3600);
	config.engage = POLICY_AUTO;
	policy_configure(&p, &config);
	crowd_of(20, &now, 100);
	CHECK(p.scheduling && !p.trial.count && !p.trial.trying);
	crowd_of(20, &now, 30);
	CHECK(p.trial.count == 1);
	/* a channel that is idle without turns says nothing about them */
	policy_init(&p, &config);
	for (unsigned i = 0; i < 20; i++)
		policy_add(&p, 0);
	for (uint64_t end = now + 200000; now < end && !p.trial.trying; )
		crowd_of(20, &now, 1);
	CHECK(p.trial.trying && !p.trial.on);
	policy_tick(&p, now, 100);
	CHECK(!p.trial.trying && p.trial.on && !p.trial.count);
}

/* More than the thresholds is demand. That of a fast client ends soon after its last byte, though its average takes seconds. */
static void demand_begins_and_ends(void)
{
	struct policy_config config;
	uint64_t now = 1000, last;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	policy_add(&p, 0);
	policy_add(&p, 0);
	for (; now < 5000; now += 100) {
		policy_sample(&p, 0, 0, 1250000);	/* 100 Mbit/s */
		policy_sample(&p, 1, config.demand_bytes, 0);
		policy_tick(&p, now, 900);
		CHECK(!p.client[1].demand);
	}
	CHECK(p.client[0].demand);
	for (last = now - 100; p.client[0].demand; now += 100)
		policy_tick(&p, now, 900);
	CHECK(now - 100 - last == 400 && p.client[0].rate_bps > 10 * config.demand_bps);
	policy_sample(&p, 1, config.demand_bytes + 1, 0);
	policy_tick(&p, now, 900);
	CHECK(p.client[1].demand);
	config.demand_bps = 0;
	policy_configure(&p, &config);
	policy_sample(&p, 1, 0, 0);
	policy_tick(&p, now += 100, 900);
	CHECK(p.client[0].demand && !p.client[1].demand);
	policy_sample(&p, 1, 0, 100);
	policy_tick(&p, now += 100, 900);
	CHECK(p.client[1].demand);
}

/* Where the driver takes all packets at once, an empty queue says nothing. */
static void nothing_is_ever_queued(void)
{
	struct policy_config config;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 10; i++)
		policy_add(&p, 0);
	for (uint64_t now = 1000; now < 20000; now = p.wake_at) {
		for (unsigned id = 0; id < 10; id++)
			policy_sample(&p, id, 0, 100000);
		policy_tick(&p, now, 900);
		CHECK(!count_light() && (now == 1000 || (p.scheduling && p.demanding == 10)));
	}
}

/* What was delivered counts once, also if the next tick comes in the same millisecond, as after "pause". */
static void ticks_in_the_same_ms(void)
{
	struct policy_config config;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	policy_add(&p, 0);
	policy_add(&p, POLICY_CLIENT_ALWAYS);	/* turns change nothing about what it gets */
	for (uint64_t now = 1000; now < 2000; now += 100) {
		policy_sample(&p, 0, 0, 1ULL << 30);
		policy_sample(&p, 1, 0, 1ULL << 20);
		for (unsigned i = 0; i < 3; i++)
			policy_tick(&p, now - i, 900);
		CHECK(p.now == now);
	}
	CHECK(p.client[0].delivered == 10ULL << 30 && p.delivered == 10ULL << 30 && p.client[1].delivered == 10ULL << 20);
	/* 86 Gbit/s are more than the averages hold */
	CHECK(p.client[0].rate_bps > UINT32_MAX / 4 * 3);
}

/* New options keep demand, engagement and, if K and T do not change, turns. */
static void options_change(void)
{
	struct policy_config config;
	uint64_t now = 1000, until;
	uint64_t engagements;
	uint16_t served;

	policy_defaults(&config, POLICY_BACKLOG, false);
	policy_init(&p, &config);
	for (unsigned i = 0; i < 6; i++)
		policy_add(&p, 0);
	for (unsigned i = 0; i < 100; i++, now += 100) {
		for (unsigned id = 0; id < 6; id++)
			policy_sample(&p, id, 9000, 10000);
		policy_tick(&p, now, 900);
	}
	CHECK(p.scheduling && p.demanding == 6);
	engagements = p.engagements;
	served = p.place[0];
	until = p.client[served].until;
	config.busy_permille = 400;
	policy_configure(&p, &config);
	policy_set_flags(&p, served == 0 ? 1 : 0, POLICY_CLIENT_ALWAYS);
	policy_tick(&p, now, 900);
	CHECK(p.scheduling && p.demanding == 5 && p.active == config.active);
	CHECK(p.client[served].place == 0 && p.client[served].until == until);
	config.active = 3;
	config.slot_ms = 700;
	policy_configure(&p, &config);
	policy_tick(&p, now += 10, 900);
	CHECK(p.scheduling && p.demanding == 5 && p.active == 3 && p.engagements == engagements);
	/* the driver refuses weights, and htb's turns have the same K and T: they must first show a gain */
	config.trickle = true;
	policy_configure(&p, &config);
	policy_tick(&p, now += 10, 900);
	CHECK(!p.scheduling && p.reason == POLICY_REASON_TRIAL);
	config.trickle = false;
	policy_configure(&p, &config);
	policy_tick(&p, now += 10, 900);
	CHECK(p.scheduling);
}

static void explains(void)
{
	struct policy_config config;
	char why[160];

	policy_defaults(&config, POLICY_PAPER, false);
	policy_init(&p, &config);
	p.value = 7;
	p.threshold = 90;
	p.demanding = 3;
	p.reason = POLICY_REASON_DELAY;
	policy_explain(&p, why, sizeof(why));
	CHECK(strcmp(why, "needed for 7 of 90 ms") == 0);
	p.engaged = true;
	policy_explain(&p, why, sizeof(why));
	CHECK(strcmp(why, "not needed any more for 7 of 90 ms") == 0);
	p.reason = POLICY_REASON_DEMAND;
	policy_explain(&p, why, sizeof(why));
	CHECK(strcmp(why, "clients with demand: 7, more than 90") == 0);
	p.config.engage = POLICY_ALWAYS;	/* of the paper's mode: also those without demand take turns */
	policy_explain(&p, why, sizeof(why));
	CHECK(strcmp(why, "clients: 7, more than 90") == 0);
	p.config.mode = POLICY_BACKLOG;
	policy_explain(&p, why, sizeof(why));
	CHECK(strcmp(why, "clients with demand: 7, more than 90") == 0);
	p.reason = POLICY_REASON_DEMAND_BUSY;
	policy_explain(&p, why, sizeof(why));
	CHECK(strcmp(why, "clients with demand: 3, channel busy 7 permille of the time, more than 90") == 0);
}

/* While active clients have next to nothing queued, up to K more become active; with a trickle, that says nothing. */
static void spare_places(void)
{
	struct policy_config config;
	unsigned active = 1 + rnd(4);

	for (unsigned i = 0; i < 4; i++) {
		bool trickle = i & 1;
		unsigned most = 0, queued = i & 2 ? 1501 : 1500;

		policy_defaults(&config, POLICY_BACKLOG, trickle);
		config.engage = POLICY_ALWAYS;
		config.active = active;
		policy_init(&p, &config);
		for (unsigned id = 0; id < 12; id++)
			policy_add(&p, 0);
		for (uint64_t now = 1000; now < 120000; now = p.wake_at) {
			uint64_t dt = now - p.now;

			for (unsigned id = 0; id < 12; id++)
				policy_sample(&p, id, p.client[id].level == POLICY_ACTIVE ? queued : 9000, 3000 * dt / 8);
			policy_tick(&p, now, 900);
			if (now > 60000 && p.active > most)	/* averages begin at zero */
				most = p.active;
		}
		CHECK(most == (!trickle && 2 * queued <= config.demand_bytes ? 2 : 1) * active);
		CHECK(p.turns > 20 * active);
	}
}

/* A client that gives up its turn early shifts those that follow. What their turns are too long or too short by, later ones make up for. */
static void turns_are_made_up_for(void)
{
	struct policy_config config;
	unsigned turns[2] = { 0 };

	policy_defaults(&config, POLICY_BACKLOG, true);
	config.engage = POLICY_ALWAYS;
	config.active = 1;
	policy_init(&p, &config);
	for (unsigned id = 0; id < 3; id++)
		policy_add(&p, 0);
	for (uint64_t now = 1000; now < 600000; now = p.wake_at) {
		policy_sample(&p, 0, 9000, 0);
		policy_sample(&p, 1, 9000, 0);
		policy_sample(&p, 2, p.client[2].level == POLICY_ACTIVE ? 0 : 9000, 0);
		policy_tick(&p, now, 900);
		for (unsigned id = 0; id < 2; id++) {
			if (p.client[id].level != POLICY_ACTIVE || !p.client[id].changed)
				continue;
			CHECK(llabs((long long)p.client[id].active_ms - (long long)turns[id] * config.slot_ms) <= config.slot_ms);
			turns[id]++;
		}
	}
	CHECK(turns[0] > 50 && turns[1] > 50);
}

/*
 * The paper's groups: K clients in the order of their ids, the last group with the rest. Late ticks shift none, the next
 * one is readied, and who is exempt is in none.
 */
static void groups(void)
{
	static const unsigned group_of[] = { 0, 3, 0, 1, 1, 2 };
	static const uint16_t first_of[] = { 0, 3, 5 };
	struct policy_config config;
	uint64_t now = 1000, start, before;

	policy_defaults(&config, POLICY_PAPER, true);
	config.engage = POLICY_ALWAYS;
	config.active = 2;
	config.next_lead_ms = 400;
	config.soon_lead_ms = 150;
	policy_init(&p, &config);
	for (unsigned id = 0; id < 6; id++)
		policy_add(&p, id == 1 ? POLICY_CLIENT_ALWAYS : 0);
	for (; now < 60000; now = p.wake_at + rnd(100)) {
		unsigned slot = (now - 1000) / config.slot_ms;
		uint64_t left = 1000 + (slot + 1) * config.slot_ms - now;

		policy_sample(&p, 3, 9000, 0);
		policy_sample(&p, 5, 9000, 0);
		policy_tick(&p, now, POLICY_BUSY_UNKNOWN);
		CHECK(p.turns == slot + 1 && p.next == first_of[(slot + 1) % 3] && p.next_at == now + left);
		for (unsigned id = 0; id < 6; id++) {
			enum policy_level level = id == 3 || id == 5 ? POLICY_WAITING : POLICY_IDLE;

			if (id == 1)
				level = POLICY_OPEN;
			else if (group_of[id] == slot % 3)
				level = POLICY_ACTIVE;
			else if (group_of[id] == (slot + 1) % 3 && left <= config.next_lead_ms)
				level = left <= config.soon_lead_ms ? POLICY_SOON : POLICY_NEXT;
			CHECK(p.client[id].level == level);
		}
	}
	/* after a time without ticks, a slot is a whole one again */
	now += 10 * config.slot_ms;
	policy_tick(&p, now, POLICY_BUSY_UNKNOWN);
	CHECK(p.next_at == now + config.slot_ms);
	/* turns begin with the first group */
	policy_pause(&p, true);
	policy_tick(&p, now += 10, POLICY_BUSY_UNKNOWN);
	policy_pause(&p, false);
	for (unsigned i = 0; i < 2; i++) {
		policy_tick(&p, now += 10, POLICY_BUSY_UNKNOWN);
		CHECK(p.client[0].level == POLICY_ACTIVE && p.next == 3 && p.next_at == now - i * 10 + config.slot_ms);
	}
	/* a group that is exempt now, or has left, is no reason to wait for the end of its slot */
	while (p.client[3].level != POLICY_ACTIVE)
		policy_tick(&p, now = p.wake_at, POLICY_BUSY_UNKNOWN);
	start = now;
	policy_set_flags(&p, 3, POLICY_CLIENT_IGNORED);
	policy_tick(&p, now += 10, POLICY_BUSY_UNKNOWN);
	CHECK(p.client[4].level == POLICY_ACTIVE && p.active == 1 && p.next_at == start + config.slot_ms);
	policy_del(&p, 4);
	policy_tick(&p, now += 10, POLICY_BUSY_UNKNOWN);
	CHECK(p.client[5].level == POLICY_ACTIVE && p.active == 1 && p.next_at == now + config.slot_ms && p.next == 0);
	/* nobody is left to take turns */
	for (unsigned id = 0; id < 6; id++)
		policy_set_flags(&p, id, POLICY_CLIENT_ALWAYS);
	before = p.turns;
	for (unsigned i = 0; i < 5; i++)
		policy_tick(&p, now = p.wake_at, POLICY_BUSY_UNKNOWN);
	CHECK(p.scheduling && !p.active && p.next == POLICY_NONE && p.turns == before);
}

int main(int argc, char **argv)
{
	unsigned long first = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	unsigned long last = argc > 1 ? first : 150;

	for (seed = first; seed <= last; seed++) {
		state = seed * 0x9e3779b97f4a7c15ULL + 1;
		step_no = 0;
		chaos();
		fairness(POLICY_BACKLOG);
		fairness(POLICY_PAPER);
		leads(POLICY_BACKLOG);
		leads(POLICY_PAPER);
		few();
		gives_up();
		engagement();
		engagement_by_demand();
		idle_clients_of_the_paper();
		last_few();
		lulls();
		options_change();
		ticks_in_the_same_ms();
		demand_begins_and_ends();
		nothing_is_ever_queued();
		light_demand();
		window_opens();
		how_soon_demand_is_light();
		rate_falls();
		weights();
		spare_places();
		turns_are_made_up_for();
		groups();
		trials();
		no_trials();
		explains();
	}
	printf("policy: %lu seeds passed\n", last - first + 1);
	return 0;
}
