/* SPDX-License-Identifier: Apache-2.0 */
#include "policy.h"

#include <stdio.h>
#include <string.h>

/* Time constants of averages, ms: of what is delivered to a client and received from it; of its upload. */
#define AVERAGE_MS 500
#define RECEIVED_AVERAGE_MS 10000

/* A client waiting for a turn with nothing queued for so long has light demand. */
#define LIGHT_MS 1000

/* And one at its turn, after the time to settle: at two ticks in a row. */
#define LIGHT_ACTIVE_MS 300

/*
 * At the start of a turn silence says nothing: a sender that gave up waiting
 * for its ACKs comes back with its next retransmission. Weights wake it
 * earlier, while its client is next.
 */
#define SETTLE_MS 500
#define SETTLE_TRICKLE_MS 1500

/* Airtime weights, of an active client's: policy_weight(). */
#define WEIGHT_SOON_PART 3
#define WEIGHT_IDLE_PART 16
#define WEIGHT_UPLOAD(active) ((active) * 3 / 8)

/*
 * Who sends more than UPLOAD_BPS, and wants nothing, takes turns with the others
 * who do: two slots have so many parts, and it gets the one of its id and, evenly
 * spread, a second and a third if it sends that much.
 */
#define UPLOAD_BPS 100000
#define UPLOAD_SECOND_BPS 250000
#define UPLOAD_THIRD_BPS 600000
#define UPLOAD_PARTS 8

/*
 * Clients that may enter beyond the K where nothing is queued: as many again;
 * eight times as many where more goes down than 802.11g can carry, as a faster
 * channel empties queues sooner, and at most so many percent of that goes up.
 */
#define SPARE_PLACES 8
#define SPARE_DOWN_BPS 23000000
#define SPARE_UPLOAD_PERCENT 40

/* Of a step of the stagger, when the turns of those end, one after the other. */
#define SPARE_PARTS 6

/* A trial of turns or of serving everybody: its length, of which the end is measured. */
#define TRIAL_MS 3000
#define TRIAL_MEASURE_MS 2000

/*
 * How long a crowd is left alone at first: while the senders' windows grow
 * everybody gets more than later, and most crowds do not last.
 */
#define TRIAL_CROWD_MS 40000

/*
 * A trial of turns that has delivered less than half for so long need not go on:
 * turns that gain had delivered 70 to 105 % by then, those that lose 25 to 35 %
 * (docs/architecture.md).
 */
#define TRIAL_LOST_MS 500

/* Time between two trials: three times as long each time they end alike. */
#define TRIAL_HOLD_MIN_MS 30000
#define TRIAL_HOLD_MAX_MS 600000

/* What turns must deliver to be begun with, percent of what serving everybody does; not less than that to be kept. */
#define TRIAL_GAIN 110

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

static bool exempt(const struct policy_client *c)
{
	return c->flags & (POLICY_CLIENT_ALWAYS | POLICY_CLIENT_IGNORED);
}

static bool wants_turns(const struct policy_client *c)
{
	return c->demand && !c->light && !exempt(c);
}

/* The queue of clients that wait for a turn: doubly linked through the ids. */

static void enqueue(struct policy *p, uint16_t id)
{
	struct policy_client *c = &p->client[id];

	c->queued = true;
	c->next = POLICY_NONE;
	c->prev = p->tail;
	if (p->tail != POLICY_NONE)
		p->client[p->tail].next = id;
	else
		p->head = id;
	p->tail = id;
}

static void dequeue(struct policy *p, uint16_t id)
{
	struct policy_client *c = &p->client[id];

	if (c->prev != POLICY_NONE)
		p->client[c->prev].next = c->next;
	else
		p->head = c->next;
	if (c->next != POLICY_NONE)
		p->client[c->next].prev = c->prev;
	else
		p->tail = c->prev;
	c->queued = false;
}

static void leave_place(struct policy *p, uint16_t id)
{
	struct policy_client *c = &p->client[id];

	p->place[c->place] = POLICY_NONE;
	c->place = POLICY_NONE;
}

static void rotation_reset(struct policy *p)
{
	p->rotating = false;
	p->head = p->tail = POLICY_NONE;
	p->next = POLICY_NONE;
	p->next_at = 0;
	p->group_until = 0;
	p->group_last = p->next_first = p->next_last = POLICY_NONE;
	for (unsigned i = 0; i < POLICY_CLIENTS_MAX; i++)
		p->place[i] = POLICY_NONE;
	for (unsigned id = 0; id < p->high; id++) {
		p->client[id].queued = false;
		p->client[id].place = POLICY_NONE;
		p->client[id].owed = 0;
	}
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
	if (p->config.active < 1)
		p->config.active = 1;
	if (p->config.active > POLICY_CLIENTS_MAX)
		p->config.active = POLICY_CLIENTS_MAX;
	if (p->config.slot_ms < 10)
		p->config.slot_ms = 10;
	if (p->config.slot_ms > 60000)
		p->config.slot_ms = 60000;
	if (p->config.tick_ms < 1)
		p->config.tick_ms = 1;
	if (p->config.idle_tick_ms < 1)
		p->config.idle_tick_ms = 1;
	/* turns go on where the new ones are as long and as many */
	if (old.mode == p->config.mode && old.active == p->config.active && old.slot_ms == p->config.slot_ms)
		return;
	rotation_reset(p);
	/* serving everybody is measured first */
	p->trial = (struct policy_trial){
		.aside = true,
		.since = p->now,
		.hold_ms = TRIAL_CROWD_MS,
	};
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
	if (id >= POLICY_CLIENTS_MAX || !p->client[id].used)
		return;
	if (p->client[id].queued)
		dequeue(p, id);
	if (p->client[id].place != POLICY_NONE)
		leave_place(p, id);
	if (p->next == id)
		p->next = POLICY_NONE;
	p->client[id].used = false;
	p->clients--;
	while (p->high > 0 && !p->client[p->high - 1].used)
		p->high--;
}

void policy_set_flags(struct policy *p, uint16_t id, unsigned flags)
{
	if (id < POLICY_CLIENTS_MAX && p->client[id].used)
		p->client[id].flags = flags;
}

void policy_sample(struct policy *p, uint16_t id, uint32_t waiting, uint64_t bytes)
{
	struct policy_client *c;

	if (id >= POLICY_CLIENTS_MAX || !p->client[id].used)
		return;
	c = &p->client[id];
	c->waiting = waiting;
	/* 2^40 bytes between two samples cannot be; without a bound the average overflows */
	if (bytes > 1ULL << 40)
		bytes = 1ULL << 40;
	c->sampled += bytes;
	if (c->sampled > 1ULL << 40)
		c->sampled = 1ULL << 40;
	c->delivered += bytes;
}

void policy_received(struct policy *p, uint16_t id, uint64_t bytes)
{
	struct policy_client *c;

	if (id >= POLICY_CLIENTS_MAX || !p->client[id].used)
		return;
	c = &p->client[id];
	if (bytes > 1ULL << 40)
		bytes = 1ULL << 40;
	c->received += bytes;
	if (c->received > 1ULL << 40)
		c->received = 1ULL << 40;
}

void policy_pause(struct policy *p, bool paused)
{
	p->paused = paused;
}

void policy_set_aside(struct policy *p, bool aside)
{
	p->aside = aside;
}

/* One step of an exponential average; dt/(dt+tau) stays below 1 for any dt. */
static uint32_t average(uint32_t old, uint64_t sample, uint64_t dt, unsigned tau)
{
	if (dt > 100 * tau)
		dt = 100 * tau;
	if (sample > UINT32_MAX)
		sample = UINT32_MAX;
	return (old * (uint64_t)tau + sample * dt) / (tau + dt);
}

static void update_demand(const struct policy_config *config, struct policy_client *c, uint64_t now, uint64_t dt)
{
	if (dt > 0) {
		uint64_t bps = c->sampled * 8 * 1000 / dt;
		uint64_t received = c->received * 8 * 1000 / dt;
		uint64_t cap = 2 * (uint64_t)config->demand_bps + 1;

		c->tick_bps = bps < UINT32_MAX ? bps : UINT32_MAX;
		c->rate_bps = average(c->rate_bps, bps, dt, AVERAGE_MS);
		c->received_bps = average(c->received_bps, received, dt, RECEIVED_AVERAGE_MS);
		c->received_now_bps = average(c->received_now_bps, received, dt, AVERAGE_MS);
		c->received = 0;
		/*
		 * A fast client's average would stay above the threshold for
		 * seconds after its last byte. Capped at twice the threshold,
		 * demand ends about 0.5 s after the traffic.
		 */
		c->average_bps = average(c->average_bps, bps, dt, AVERAGE_MS);
		if (c->average_bps > cap)
			c->average_bps = cap;
		c->sampled = 0;
	}
	c->demand = !(c->flags & POLICY_CLIENT_IGNORED) &&
		(c->waiting > config->demand_bytes || c->average_bps > config->demand_bps);
	if (c->waiting > config->demand_bytes)
		c->backlog_at = now;
}

/* Nothing can be said where nobody ever has anything waiting: a driver that takes all it is given. */
static bool is_light(const struct policy *p, const struct policy_client *c)
{
	if (p->config.mode != POLICY_BACKLOG || p->config.trickle || !c->demand || !p->backlog_seen)
		return false;
	if (c->place == POLICY_NONE)
		return p->now - c->backlog_at > LIGHT_MS;
	/* while its sender's window opens nothing queues, but what comes does not fall off */
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
	bool strict = config->engage != POLICY_ALWAYS;
	bool paper = config->mode == POLICY_PAPER && !strict;
	unsigned count = paper ? p->clients : p->demanding;
	/* a little below the threshold is no reason to let go again */
	int threshold = p->engaged ? config->busy_permille * 3 / 4 : config->busy_permille;

	/*
	 * The last few of a crowd: serving them first still keeps the others'
	 * uploads from filling a channel that is seen to be busy.
	 */
	if (p->engaged && strict && count > 0 && count <= config->active && busy > threshold) {
		set_reason(p, POLICY_REASON_DEMAND_BUSY, busy, threshold);
		return true;
	}
	if (count <= config->active) {
		set_reason(p, POLICY_REASON_FEW_DEMAND, count, config->active);
		return false;
	}
	if (!strict || busy < 0) {
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

static void next_trial(struct policy *p)
{
	struct policy_trial *t = &p->trial;

	t->since = t->from = p->now;
	t->from_bytes = p->delivered;
	t->measuring = false;
	t->other = !t->other;
	if (t->other)
		return;
	if (t->aside == ((uint64_t)t->turns_kbit * 100 < (uint64_t)t->all_kbit * (t->aside ? TRIAL_GAIN : 100))) {
		t->hold_ms *= 3;
	} else {
		t->aside = !t->aside;
		t->hold_ms = 0;
	}
	if (t->hold_ms < TRIAL_HOLD_MIN_MS)
		t->hold_ms = TRIAL_HOLD_MIN_MS;
	if (t->hold_ms > TRIAL_HOLD_MAX_MS)
		t->hold_ms = TRIAL_HOLD_MAX_MS;
}

/* Since it began to be measured, kbit/s. */
static uint32_t trial_kbit(const struct policy *p)
{
	uint64_t ms = p->now - p->trial.from;
	uint64_t kbit = ms ? (p->delivered - p->trial.from_bytes) * 8 / ms : 0;

	return kbit < INT32_MAX ? kbit : INT32_MAX;
}

/* Whether a trial of turns can end early: they leave a channel idle that was not, or deliver much less. */
static bool turns_lost(const struct policy *p)
{
	const struct policy_trial *t = &p->trial;

	if (!t->other || !t->aside || !p->engaged)
		return false;
	if (p->reason == POLICY_REASON_CHANNEL_IDLE)
		return true;
	return p->now - t->from >= TRIAL_LOST_MS && trial_kbit(p) < t->all_kbit / 2;
}

/* Nobody is throttled, and nothing is measured. */
static bool resting(const struct policy *p)
{
	return p->paused || (p->aside && p->config.engage != POLICY_ALWAYS);
}

/* Whether turns, where they are wanted, are what shall be now. */
static bool turns_gain(struct policy *p, bool wanted)
{
	struct policy_trial *t = &p->trial;
	unsigned length, settle;
	bool turns;

	if (!p->config.trickle || p->config.mode != POLICY_BACKLOG || p->config.engage != POLICY_AUTO)
		return true;
	if (turns_lost(p)) {
		t->turns_kbit = trial_kbit(p);
		if (t->turns_kbit > t->all_kbit)
			t->turns_kbit = t->all_kbit;
		next_trial(p);
	}
	if (!wanted || resting(p))
		t->other = false;
	turns = t->aside == t->other;
	length = t->other ? TRIAL_MS : t->hold_ms;
	settle = t->other ? TRIAL_MS : TRIAL_CROWD_MS;
	if (!wanted || resting(p) || (turns && !p->engaged)) {
		t->measuring = false;
		t->from = p->now;
		t->from_bytes = p->delivered;
		/* what is about to begin needs time to settle */
		if (p->now - t->since + settle > length)
			t->since = p->now + settle - length;
		return turns;
	}
	if (!t->measuring) {
		if (p->now - t->since + TRIAL_MEASURE_MS < length)
			return turns;
		t->measuring = true;
		t->from = p->now;
		t->from_bytes = p->delivered;
	}
	if (p->now - t->from < TRIAL_MEASURE_MS)
		return turns;
	*(turns ? &t->turns_kbit : &t->all_kbit) = trial_kbit(p);
	next_trial(p);
	return t->aside == t->other;
}

static void decide_engagement(struct policy *p, int busy)
{
	bool wanted = can_help(p, busy);
	bool gain = turns_gain(p, wanted);
	unsigned delay = p->config.engage_delay_ms;
	uint64_t held;

	/* a channel seen to be busy has been so for as long as the survey averages, about a second */
	if (wanted && (p->config.engage == POLICY_ALWAYS || busy >= 0))
		delay = 0;
	if (resting(p)) {
		if (p->paused)
			set_reason(p, POLICY_REASON_PAUSED, 0, 0);
		else if (wanted)
			set_reason(p, POLICY_REASON_WINDOWS, 0, 0);
		p->engaged = false;
		p->pending = false;
		return;
	}
	if (wanted && !gain) {
		if (p->trial.aside && p->trial.turns_kbit)
			set_reason(p, POLICY_REASON_NO_GAIN, p->trial.turns_kbit, p->trial.all_kbit);
		else
			set_reason(p, POLICY_REASON_TRIAL, 0, 0);
	}
	if (!gain && p->trial.aside) {
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

/* A step of the stagger: one client enters every so many ms. At least 1. */
static unsigned step_ms(const struct policy_config *config)
{
	unsigned step = config->slot_ms / config->active;

	return step ? step : 1;
}

/* K, and those of backlog_room(). */
static unsigned backlog_places(const struct policy_config *config)
{
	unsigned places = config->active * (1 + SPARE_PLACES);

	return places < POLICY_CLIENTS_MAX ? places : POLICY_CLIENTS_MAX;
}

/*
 * A client's turn ends on its place's grid, so that turns stay staggered, with
 * the length nearest to one slot plus what earlier turns were short of. What is
 * owed stays within one slot, so long-run shares are equal.
 */
static void enter(struct policy *p, unsigned place, uint16_t id)
{
	struct policy_client *c = &p->client[id];
	int64_t slot = p->config.slot_ms;
	int64_t k = p->config.active;
	/* turns of the places beyond K end between the others' */
	int64_t phase = place < k ? (place + 1) * slot / k : (place - k + 1) * slot / (k * SPARE_PARTS) % slot;
	int64_t since = (int64_t)((p->now - p->rotation_start) % (uint64_t)slot);
	int64_t turn = phase - since;	/* -slot < turn <= slot */

	if (turn <= 0)
		turn += slot;
	if (turn < slot / 2 + c->owed)
		turn += slot;
	c->owed += slot - turn;
	if (c->owed > slot)
		c->owed = slot;
	if (c->owed < -slot)
		c->owed = -slot;
	dequeue(p, id);
	p->place[place] = id;
	c->place = place;
	c->entered = p->now;
	c->until = p->now + turn;
	p->turns++;
}

/* Wakes lead ms before something that is left ms away; not if that has passed. */
static void wake_before(struct policy *p, uint64_t left, unsigned lead)
{
	if (left > lead && p->now + left - lead < p->wake_at)
		p->wake_at = p->now + left - lead;
}

/*
 * How many places there are now. Another client enters for each active one that
 * has next to nothing queued: what that leaves of the air would go to everybody,
 * and to uploads and requests, whose small frames use it badly.
 */
static unsigned backlog_room(const struct policy *p)
{
	unsigned spare = 0, most = p->config.active;
	uint64_t up = 0, down = 0;

	if (p->config.trickle)
		return p->config.active;
	for (unsigned i = 0; i < backlog_places(&p->config); i++)
		spare += p->place[i] != POLICY_NONE && p->client[p->place[i]].waiting <= p->config.demand_bytes / 2;
	for (unsigned id = 0; id < p->high; id++) {
		if (!p->client[id].used)
			continue;
		up += p->client[id].received_now_bps;
		down += p->client[id].rate_bps;
	}
	if (p->backlog_seen && down >= SPARE_DOWN_BPS && up * 100 <= down * SPARE_UPLOAD_PERCENT)
		most *= SPARE_PLACES;
	return p->config.active + (spare < most ? spare : most);
}

static void rotate_backlog(struct policy *p)
{
	const struct policy_config *config = &p->config;
	unsigned places = backlog_places(config);
	unsigned settle = config->trickle ? SETTLE_TRICKLE_MS : SETTLE_MS;
	unsigned held = 0, room;

	if (!p->rotating) {
		rotation_reset(p);
		p->rotating = true;
		p->rotation_start = p->now;
	}
	for (unsigned id = 0; id < p->high; id++) {
		struct policy_client *c = &p->client[id];
		bool wants = c->used && wants_turns(c);

		if (c->queued && !wants)
			dequeue(p, id);
		else if (wants && !c->queued && c->place == POLICY_NONE)
			enqueue(p, id);
		if (c->place != POLICY_NONE && exempt(c))
			leave_place(p, id);
	}
	room = backlog_room(p);
	for (unsigned i = 0; i < places; i++) {
		uint16_t id = p->place[i];
		struct policy_client *c;

		if (id == POLICY_NONE)
			continue;
		c = &p->client[id];
		/* unless its place is all that somebody else needs */
		if (!wants_turns(c) && (p->now - c->entered >= settle || p->demanding <= config->active)) {
			leave_place(p, id);
			continue;
		}
		if (p->now < c->until) {
			held++;
			continue;
		}
		if (p->head == POLICY_NONE) {
			c->until += (1 + (p->now - c->until) / config->slot_ms) * config->slot_ms;
			held++;
			continue;
		}
		leave_place(p, id);
		if (wants_turns(c))
			enqueue(p, id);
	}
	for (unsigned i = 0; i < places && held < room && p->head != POLICY_NONE; i++) {
		if (p->place[i] != POLICY_NONE)
			continue;
		enter(p, i, p->head);
		held++;
	}

	p->next = p->head;
	p->next_at = 0;
	if (p->head == POLICY_NONE)
		return;
	for (unsigned i = 0; i < places; i++)	/* some are taken, or nobody would wait */
		if (p->place[i] != POLICY_NONE && (!p->next_at || p->client[p->place[i]].until < p->next_at))
			p->next_at = p->client[p->place[i]].until;
	wake_before(p, p->next_at - p->now, 0);
}

/*
 * The first and last id of the group after id: the K clients that follow, in
 * the order of their ids, without wrapping, so that groups stay the same from
 * round to round.
 */
static void group_after(const struct policy *p, uint16_t id, uint16_t *first, uint16_t *last)
{
	unsigned start = id == POLICY_NONE ? 0 : id + 1U;
	unsigned count = 0;

	*first = *last = POLICY_NONE;
	for (unsigned round = 0; round < 2 && !count; round++, start = 0) {
		for (unsigned i = start; i < p->high && count < p->config.active; i++) {
			if (!p->client[i].used || exempt(&p->client[i]))
				continue;
			if (!count++)
				*first = i;
			*last = i;
		}
	}
}

static void serve_group(struct policy *p, uint16_t first, uint16_t last)
{
	unsigned place = 0;

	p->group_last = last;
	for (unsigned id = 0; id < p->high; id++) {
		struct policy_client *c = &p->client[id];

		if (c->place != POLICY_NONE)
			leave_place(p, id);
		if (!c->used || exempt(c) || first == POLICY_NONE || id < first || id > last)
			continue;
		p->place[place] = id;
		c->place = place++;
	}
	if (place)
		p->turns++;
}

static void rotate_paper(struct policy *p)
{
	const struct policy_config *config = &p->config;
	bool deserted = true;

	for (unsigned id = 0; id < p->high; id++) {
		if (p->client[id].place == POLICY_NONE)
			continue;
		if (exempt(&p->client[id]))
			leave_place(p, id);
		else
			deserted = false;
	}
	if (!p->rotating) {
		rotation_reset(p);
		p->rotating = true;
	}
	if (deserted || p->now >= p->group_until) {
		/* no drift: a slot begins where the last one ended, unless that is long ago */
		uint64_t start = p->group_until;

		if (deserted || p->now - start >= config->slot_ms)
			start = p->now;
		p->group_until = start + config->slot_ms;
		group_after(p, p->group_last, &p->next_first, &p->next_last);
		serve_group(p, p->next_first, p->next_last);
	}
	group_after(p, p->group_last, &p->next_first, &p->next_last);
	p->next = p->next_first;
	p->next_at = p->group_until;
	wake_before(p, p->next_at - p->now, 0);
	wake_before(p, p->next_at - p->now, config->soon_lead_ms);
	wake_before(p, p->next_at - p->now, config->next_lead_ms);
}

static void set_level(struct policy *p, struct policy_client *c, enum policy_level level)
{
	if (c->level == level)
		return;
	c->level = level;
	if (!c->changed)
		p->changes++;
	c->changed = true;
}

static enum policy_level paper_level(const struct policy *p, uint16_t id)
{
	const struct policy_config *config = &p->config;
	uint64_t left = p->next_at - p->now;

	if (p->client[id].place != POLICY_NONE)
		return POLICY_ACTIVE;
	if (p->next_first == POLICY_NONE || id < p->next_first || id > p->next_last)
		return p->client[id].demand ? POLICY_WAITING : POLICY_IDLE;
	if (left <= config->soon_lead_ms)
		return POLICY_SOON;
	if (left <= config->next_lead_ms)
		return POLICY_NEXT;
	return p->client[id].demand ? POLICY_WAITING : POLICY_IDLE;
}

static void assign_levels(struct policy *p)
{
	const struct policy_config *config = &p->config;
	unsigned step = step_ms(config);
	uint16_t id = p->head;

	for (unsigned i = 0; i < p->high; i++) {
		struct policy_client *c = &p->client[i];
		enum policy_level level = POLICY_WAITING;

		if (!c->used)
			continue;
		if (!p->scheduling || exempt(c))
			level = POLICY_OPEN;
		else if (config->mode == POLICY_PAPER)
			level = paper_level(p, i);
		else if (c->place != POLICY_NONE)
			level = POLICY_ACTIVE;
		else if (c->queued)
			continue;
		else if (!c->demand || c->light)
			level = c->demand ? POLICY_LIGHT : POLICY_IDLE;
		set_level(p, c, level);
	}
	if (!p->scheduling || config->mode == POLICY_PAPER)
		return;
	for (unsigned ahead = 0; id != POLICY_NONE; ahead++, id = p->client[id].next) {
		uint64_t left = p->next_at + (uint64_t)ahead * step - p->now;
		enum policy_level level = POLICY_WAITING;

		if (left <= config->soon_lead_ms || (!ahead && !config->trickle))
			level = POLICY_SOON;
		else if (left <= config->next_lead_ms)
			level = POLICY_NEXT;
		set_level(p, &p->client[id], level);
		wake_before(p, left, config->soon_lead_ms);
		wake_before(p, left, config->next_lead_ms);
	}
}

uint64_t policy_tick(struct policy *p, uint64_t now, int busy)
{
	uint64_t dt;
	bool rotate;

	if (!p->ticked || now < p->now)
		dt = 0;
	else
		dt = now - p->now;
	if (!p->ticked || now > p->now)
		p->now = now;
	p->ticked = true;
	p->changes = 0;
	p->demanding = 0;
	p->light = 0;
	p->active = 0;
	for (unsigned id = 0; id < p->high; id++) {
		struct policy_client *c = &p->client[id];

		if (!c->used)
			continue;
		if (!exempt(c))
			p->delivered += c->sampled;
		c->changed = false;
		if (c->level == POLICY_ACTIVE)
			c->active_ms += dt;
		else if (c->level != POLICY_OPEN)
			c->waiting_ms += dt;
		update_demand(&p->config, c, p->now, dt);
		p->backlog_seen |= c->waiting > p->config.demand_bytes;
	}
	for (unsigned id = 0; id < p->high; id++) {
		struct policy_client *c = &p->client[id];

		if (!c->used)
			continue;
		c->light = is_light(p, c);
		if (wants_turns(c))
			p->demanding++;
		else if (c->demand && !exempt(c))
			p->light++;
	}

	decide_engagement(p, busy);
	rotate = p->engaged && p->config.engage != POLICY_DRY_RUN;
	p->wake_at = p->now + (p->engaged ? p->config.tick_ms : p->config.idle_tick_ms);
	p->scheduling = rotate && p->reason != POLICY_REASON_TRIAL;
	if (!rotate && p->rotating)
		rotation_reset(p);
	if (p->scheduling && p->config.mode == POLICY_PAPER)
		rotate_paper(p);
	else if (p->scheduling)
		rotate_backlog(p);
	else
		p->next = POLICY_NONE;
	assign_levels(p);
	for (unsigned id = 0; id < p->high; id++)
		if (p->client[id].used && p->client[id].level == POLICY_ACTIVE)
			p->active++;
	return p->wake_at;
}

/* What goes to clients without demand are mostly ACKs for what they send. */
static uint16_t weight_idle(const struct policy *p, uint16_t id, uint16_t active)
{
	unsigned length = 2 * p->config.slot_ms / UPLOAD_PARTS;	/* at least 2: policy_configure() */
	unsigned part = (p->now / length + UPLOAD_PARTS - id % UPLOAD_PARTS) % UPLOAD_PARTS;
	uint32_t received = p->client[id].received_bps;
	unsigned parts;

	if (received <= UPLOAD_BPS)
		return active / WEIGHT_IDLE_PART;
	parts = 1 + (received >= UPLOAD_SECOND_BPS) + (received >= UPLOAD_THIRD_BPS);
	return part * parts % UPLOAD_PARTS < parts ? WEIGHT_UPLOAD(active) : 0;
}

bool policy_weight_possible(uint16_t weight, uint16_t active, uint16_t waiting)
{
	return weight == active || weight == waiting || weight == active / WEIGHT_SOON_PART ||
		weight == active / WEIGHT_IDLE_PART || weight == WEIGHT_UPLOAD(active);
}

uint16_t policy_weight(const struct policy *p, uint16_t id, uint16_t active, uint16_t waiting)
{
	const struct policy_client *c = &p->client[id];
	uint16_t weight = 0;

	switch (c->level) {
	case POLICY_OPEN:
	case POLICY_LIGHT:	/* takes little, and must not wait: a call */
	case POLICY_ACTIVE:
		return active;
	case POLICY_SOON:
		weight = active / WEIGHT_SOON_PART;
		break;
	case POLICY_IDLE:
		weight = weight_idle(p, id, active);
		break;
	default:
		break;
	}
	return weight > waiting ? weight : waiting;
}

const char *policy_level_name(enum policy_level level)
{
	switch (level) {
	case POLICY_OPEN: return "open";
	case POLICY_IDLE: return "idle";
	case POLICY_LIGHT: return "light";
	case POLICY_WAITING: return "waiting";
	case POLICY_NEXT: return "next";
	case POLICY_SOON: return "soon";
	case POLICY_ACTIVE: return "active";
	}
	return "?";
}

void policy_explain(const struct policy *p, char *text, size_t size)
{
	switch (p->reason) {
	case POLICY_REASON_FEW_DEMAND:
		snprintf(text, size, "%d clients with demand, more than %d are needed", p->value, p->threshold);
		return;
	case POLICY_REASON_CHANNEL_IDLE:
		snprintf(text, size, "channel busy %d permille of the time, more than %d is needed", p->value, p->threshold);
		return;
	case POLICY_REASON_DELAY:
		snprintf(text, size, "%s for %d of %d ms", p->engaged ? "not needed any more" : "needed",
			 p->value, p->threshold);
		return;
	case POLICY_REASON_DEMAND:
		if (p->config.mode == POLICY_PAPER && p->config.engage == POLICY_ALWAYS)
			snprintf(text, size, "%d clients, more than %d", p->value, p->threshold);
		else
			snprintf(text, size, "%d clients with demand, more than %d", p->value, p->threshold);
		return;
	case POLICY_REASON_DEMAND_BUSY:
		snprintf(text, size, "%u clients with demand, channel busy %d permille of the time, more than %d",
			 p->demanding, p->value, p->threshold);
		return;
	case POLICY_REASON_PAUSED:
		snprintf(text, size, "paused");
		return;
	case POLICY_REASON_WINDOWS:
		snprintf(text, size, "clients aggregate frames: their contention windows do more than turns");
		return;
	case POLICY_REASON_TRIAL:
		snprintf(text, size, "everybody is served for some seconds, to see whether turns deliver more");
		return;
	case POLICY_REASON_NO_GAIN:
		snprintf(text, size, "turns delivered %d kbit/s, serving everybody %d kbit/s", p->value, p->threshold);
		return;
	}
}
