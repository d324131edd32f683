/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy in short. In a crowd on a busy channel, clients with a queue take
 * turns: K of them at a time are at full speed, and the next one is readied. While
 * the queue of one of the K is empty, one more client becomes active. A client that
 * takes little (idle, a call, a key press, an answer to a request) takes no turn
 * and waits for none. Of the other clients that send much, a few at a time get their
 * ACKs at a higher weight. There are no turns where larger contention windows are
 * used instead, or where weights have no effect. Now and then, turns are switched
 * off, or on, for some seconds, and stay off where they do not deliver more.
 *
 * This file decides on demand, and whether there are turns. rotation.c decides
 * whose turn it is, trial.c whether turns gain, weights.c what a level is worth.
 */
#include "policy.h"
#include "rotation.h"

#include <stdio.h>
#include <string.h>

/* Time constants of averages, ms: what tells demand, and what tells how much a client takes. */
#define AVERAGE_MS 500
#define LONG_AVERAGE_MS 10000

/* A client that waits for a turn with nothing queued for this long has light demand. */
#define LIGHT_MS 1000

/* Likewise for a client at its turn, after the time to settle: two ticks in a row. */
#define LIGHT_ACTIVE_MS 300

/* More bytes between two ticks are impossible. Without a bound the averages overflow. */
#define TICK_BYTES_MAX (1ULL << 40)

void policy_defaults(struct policy_config *config, enum policy_mode mode, bool trickle)
{
	*config = (struct policy_config){
		.mode = mode,
		.engage = POLICY_AUTO,
		.active = mode == POLICY_PAPER ? 5 : trickle ? 3 : 1,
		.slot_ms = mode == POLICY_PAPER ? 1600 : trickle ? 2400 : 4800,
		.trickle = trickle,
		.demand_bytes = 3000,
		.demand_bps = 60000,
		.busy_permille = 500,
		.engage_delay_ms = 1000,
		.tick_ms = 300,
		.idle_tick_ms = 1000,
	};
}

void policy_init(struct policy *p, const struct policy_config *config)
{
	memset(p, 0, sizeof(*p));
	policy_configure(p, config);
}

void policy_configure(struct policy *p, const struct policy_config *config)
{
	struct policy_config old = p->config;

	p->config = *config;
	/* the rotation goes on if the kind, number and length of turns stay the same */
	if (old.mode == p->config.mode && old.trickle == p->config.trickle && old.active == p->config.active &&
	    old.slot_ms == p->config.slot_ms)
		return;
	rotation_reset(p);
	/* a trickle does not hold uploads back, so turns must first show a gain */
	trial_init(&p->trial, !p->config.trickle);
}

uint16_t policy_add(struct policy *p, unsigned flags)
{
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (p->client[id].used)
			continue;
		p->client[id] = (struct policy_client){
			.used = true,
			.flags = flags,
			.place = POLICY_NONE,
		};
		if (id >= p->high)
			p->high = id + 1;
		p->clients++;
		return id;
	}
	return POLICY_NONE;
}

void policy_del(struct policy *p, uint16_t id)
{
	rotation_remove(p, id);
	p->client[id].used = false;
	p->clients--;
	while (p->high > 0 && !p->client[p->high - 1].used)
		p->high--;
}

void policy_set_flags(struct policy *p, uint16_t id, unsigned flags)
{
	p->client[id].flags = flags;
}

static void count(uint64_t *sum, uint64_t bytes)
{
	*sum = bytes < TICK_BYTES_MAX - *sum ? *sum + bytes : TICK_BYTES_MAX;
}

void policy_sample(struct policy *p, uint16_t id, uint32_t waiting, uint64_t bytes)
{
	p->client[id].waiting = waiting;
	count(&p->client[id].sampled, bytes);
}

void policy_received(struct policy *p, uint16_t id, uint64_t bytes)
{
	count(&p->client[id].received, bytes);
}

void policy_pause(struct policy *p, bool paused)
{
	p->paused = paused;
}

void policy_set_aside(struct policy *p, enum policy_aside aside)
{
	p->aside = aside;
}

/* One step of an exponential average; dt/(dt+tau) stays below 1 for any dt. */
static uint32_t average(uint32_t old, uint64_t sample, uint64_t dt, unsigned tau)
{
	if (sample > UINT32_MAX)
		sample = UINT32_MAX;
	return (old * (uint64_t)tau + sample * dt) / (tau + dt);
}

static void update_demand(struct policy *p, struct policy_client *c, uint64_t dt)
{
	const struct policy_config *config = &p->config;

	if (dt > 0) {
		uint64_t bps = c->sampled * 8 * 1000 / dt;
		uint64_t received = c->received * 8 * 1000 / dt;
		uint64_t cap = 2 * (uint64_t)config->demand_bps + 1;

		c->tick_bps = bps < UINT32_MAX ? bps : UINT32_MAX;
		c->rate_bps = average(c->rate_bps, bps, dt, AVERAGE_MS);
		c->delivered_bps = average(c->delivered_bps, bps, dt, LONG_AVERAGE_MS);
		c->received_bps = average(c->received_bps, received, dt, LONG_AVERAGE_MS);
		/*
		 * A fast client's average would stay above the threshold for
		 * seconds after its last byte. Capped at twice the threshold,
		 * demand ends about 0.5 s after the traffic.
		 */
		c->average_bps = average(c->average_bps, bps, dt, AVERAGE_MS);
		if (c->average_bps > cap)
			c->average_bps = cap;
		c->delivered += c->sampled;
		if (!rotation_exempt(c))
			p->delivered += c->sampled;
		c->sampled = c->received = 0;
	}
	c->demand = !(c->flags & (POLICY_CLIENT_IGNORED | POLICY_CLIENT_NEIGHBOUR)) &&
		(c->waiting > config->demand_bytes || c->average_bps > config->demand_bps);
	if (c->waiting > config->demand_bytes) {
		c->backlog_at = p->now;
		p->backlog_seen = true;
	}
}

/* Where no client ever has a backlog, nothing is known: the driver takes all packets at once. */
static bool is_light(const struct policy *p, const struct policy_client *c)
{
	if (p->config.mode != POLICY_BACKLOG || p->config.trickle || !c->demand || !p->backlog_seen)
		return false;
	if (c->place == POLICY_NONE)
		return p->now - c->backlog_at > LIGHT_MS;
	/* while its sender's window opens, nothing queues, but the rate does not fall */
	if (p->now - c->entered < p->config.slot_ms && 2 * (uint64_t)c->tick_bps >= c->rate_bps)
		return false;
	return p->now - c->backlog_at > LIGHT_ACTIVE_MS;
}

static void set_reason(struct policy *p, enum policy_reason reason, int value, int threshold)
{
	p->reason = reason;
	p->value = value;
	p->threshold = threshold;
}

/* Whether scheduling can help now. Sets the reason either way. */
static bool can_help(struct policy *p, int busy)
{
	const struct policy_config *config = &p->config;
	bool always = config->engage == POLICY_ALWAYS;
	unsigned count = always && config->mode == POLICY_PAPER ? p->clients : p->demanding;
	/* hysteresis: a little below the threshold is no reason to disengage */
	int threshold = p->engaged ? config->busy_permille * 3 / 4 : config->busy_permille;

	if (count <= config->active) {
		set_reason(p, POLICY_REASON_FEW_DEMAND, count, config->active);
		return false;
	}
	if (always || busy < 0) {
		set_reason(p, POLICY_REASON_DEMAND, count, config->active);
		return true;
	}
	if (busy <= threshold) {
		set_reason(p, POLICY_REASON_CHANNEL_IDLE, busy, threshold);
		return false;
	}
	set_reason(p, POLICY_REASON_DEMAND_BUSY, busy, threshold);
	return true;
}

/* No client is throttled, and there are no trials. */
static bool resting(const struct policy *p)
{
	return p->paused || (p->aside && p->config.engage != POLICY_ALWAYS);
}

/* Whether there should be turns now, if they are wanted. */
static bool turns_gain(struct policy *p, bool wanted)
{
	bool asked = p->config.mode != POLICY_BACKLOG || p->config.engage != POLICY_AUTO;
	bool tried = p->trial.trying && p->trial.on;
	struct trial_now state = {
		.lost = tried && p->engaged && p->reason == POLICY_REASON_CHANNEL_IDLE,
		.ready = p->engaged || !p->trial.on,
		.bytes = p->delivered,
	};

	state.crowd = !asked && !resting(p) && (wanted || state.lost);
	return trial_tick(&p->trial, p->now, &state) || asked;
}

/* Says why there are no turns despite a crowd. */
static void set_reason_aside(struct policy *p)
{
	const struct trial *t = &p->trial;

	if (p->paused)
		set_reason(p, POLICY_REASON_PAUSED, 0, 0);
	else if (resting(p))
		set_reason(p, p->aside == POLICY_ASIDE_WINDOWS ? POLICY_REASON_WINDOWS : POLICY_REASON_NO_EFFECT, 0, 0);
	else if (t->count && !t->trying)
		set_reason(p, POLICY_REASON_NO_GAIN, t->with_kbit, t->without_kbit);
	else
		set_reason(p, POLICY_REASON_TRIAL, 0, 0);
}

static void decide_engagement(struct policy *p, int busy)
{
	bool wanted = can_help(p, busy);
	bool gain = turns_gain(p, wanted);
	unsigned delay = p->config.engage_delay_ms;
	uint64_t held;

	/* a channel that the survey reports as busy has been so for the time it averages, about a second */
	if (wanted && (p->config.engage == POLICY_ALWAYS || busy >= 0))
		delay = 0;
	if (p->paused || (wanted && (resting(p) || !gain)))
		set_reason_aside(p);
	/* a trial without turns keeps their state */
	if (resting(p) || (!gain && !p->trial.trying)) {
		p->engaged = false;
		p->pending = false;
		return;
	}
	if (wanted == p->engaged) {
		p->pending = false;
		return;
	}
	if (!p->pending) {
		p->pending = true;
		p->pending_since = p->now;
	}
	held = p->now - p->pending_since;
	if (held < delay) {
		set_reason(p, POLICY_REASON_DELAY, held, delay);
		return;
	}
	p->pending = false;
	p->engaged = wanted;
	if (wanted)
		p->engagements++;
}

uint64_t policy_tick(struct policy *p, uint64_t now, int busy)
{
	uint64_t dt = p->ticked && now > p->now ? now - p->now : 0;
	bool rotate;

	p->now = p->ticked ? p->now + dt : now;
	p->ticked = true;
	p->demanding = 0;
	p->active = 0;
	for (unsigned id = 0; id < p->high; id++) {
		struct policy_client *c = &p->client[id];

		if (!c->used)
			continue;
		if (c->level == POLICY_ACTIVE)
			c->active_ms += dt;
		else if (c->level != POLICY_OPEN)
			c->waiting_ms += dt;
		update_demand(p, c, dt);
	}
	for (unsigned id = 0; id < p->high; id++) {
		struct policy_client *c = &p->client[id];

		if (!c->used)
			continue;
		c->light = is_light(p, c);
		p->demanding += rotation_wanted(c);
	}

	decide_engagement(p, busy);
	rotate = p->engaged && p->config.engage != POLICY_DRY_RUN;
	p->wake_at = p->now + (p->engaged ? p->config.tick_ms : p->config.idle_tick_ms);
	p->scheduling = rotate && p->reason != POLICY_REASON_TRIAL;
	if (!rotate && p->rotating)
		rotation_reset(p);
	rotation_tick(p);
	return p->wake_at;
}

const char *policy_level_name(enum policy_level level)
{
	static const char *const names[] = {
		[POLICY_OPEN] = "open", [POLICY_IDLE] = "idle", [POLICY_LIGHT] = "light", [POLICY_WAITING] = "waiting",
		[POLICY_NEXT] = "next", [POLICY_SOON] = "soon", [POLICY_ACTIVE] = "active",
	};

	return names[level];
}

void policy_explain(const struct policy *p, char *text, size_t size)
{
	/* of value and threshold */
	static const char *const formats[] = {
		[POLICY_REASON_FEW_DEMAND] = "clients with demand: %d, more than %d are needed",
		[POLICY_REASON_CHANNEL_IDLE] = "channel busy %d permille of the time, more than %d is needed",
		[POLICY_REASON_DELAY] = "needed for %d of %d ms",
		[POLICY_REASON_DEMAND] = "clients with demand: %d, more than %d",
		[POLICY_REASON_PAUSED] = "paused",
		[POLICY_REASON_WINDOWS] = "clients aggregate frames: their contention windows do more than turns",
		[POLICY_REASON_NO_EFFECT] = "airtime weights have no effect on this driver",
		[POLICY_REASON_TRIAL] = "everybody is served for some seconds, to see whether turns deliver more",
		[POLICY_REASON_NO_GAIN] = "turns delivered %d kbit/s, serving everybody %d kbit/s",
	};
	const char *format = formats[p->reason];

	if (p->reason == POLICY_REASON_DEMAND_BUSY) {
		snprintf(text, size, "clients with demand: %u, channel busy %d permille of the time, more than %d",
			 p->demanding, p->value, p->threshold);
		return;
	}
	if (p->reason == POLICY_REASON_DELAY && p->engaged)
		format = "not needed any more for %d of %d ms";
	if (p->reason == POLICY_REASON_DEMAND && p->config.mode == POLICY_PAPER && p->config.engage == POLICY_ALWAYS)
		format = "clients: %d, more than %d";
	snprintf(text, size, format, p->value, p->threshold);
}
