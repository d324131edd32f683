/* SPDX-License-Identifier: Apache-2.0 */
#include "rotation.h"

/*
 * An empty queue at the start of a turn says nothing: a sender that stopped for
 * lack of ACKs continues with its next retransmission. With weights it wakes
 * earlier, while its client is next in the queue.
 */
#define SETTLE_MS 500
#define SETTLE_TRICKLE_MS 1500

/* The turns of the places beyond K end one after the other, at this fraction of a step of the stagger. */
#define SPARE_PARTS 6

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

void rotation_reset(struct policy *p)
{
	p->rotating = false;
	p->head = p->tail = POLICY_NONE;
	p->next = POLICY_NONE;
	p->group_until = 0;
	p->group_last = p->next_first = p->next_last = POLICY_NONE;
	for (unsigned i = 0; i < POLICY_CLIENTS_MAX; i++)
		p->place[i] = POLICY_NONE;
	for (unsigned id = 0; id < p->high; id++) {
		p->client[id].queued = false;
		p->client[id].place = POLICY_NONE;
	}
}

void rotation_remove(struct policy *p, uint16_t id)
{
	if (p->client[id].queued)
		dequeue(p, id);
	if (p->client[id].place != POLICY_NONE)
		leave_place(p, id);
	if (p->next == id)
		p->next = POLICY_NONE;
}

/* Twice K: see backlog_room(). */
static unsigned backlog_places(const struct policy_config *config)
{
	return 2 * config->active < POLICY_CLIENTS_MAX ? 2 * config->active : POLICY_CLIENTS_MAX;
}

/*
 * A client's turn ends on its place's grid, so that turns stay staggered. Its length
 * is the one nearest to a slot plus what earlier turns were short of. The debt
 * stays within one slot, so long-run shares are equal.
 */
static void enter(struct policy *p, unsigned place, uint16_t id)
{
	struct policy_client *c = &p->client[id];
	int slot = p->config.slot_ms, k = p->config.active, at = place;
	/* turns of the places beyond K end between the turns of the first K */
	int phase = at < k ? (at + 1) * slot / k : (at - k + 1) * slot / (k * SPARE_PARTS) % slot;
	int since = (uint32_t)(p->now - p->rotation_start) % slot;
	int turn = phase - since;	/* -slot < turn <= slot */

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

/* Wakes lead ms before an event that is left ms away, unless that moment has passed. */
static void wake_before(struct policy *p, uint64_t left, unsigned lead)
{
	if (left > lead && p->now + left - lead < p->wake_at)
		p->wake_at = p->now + left - lead;
}

/*
 * How many clients may be active now. For each active client with next to nothing
 * queued, another one becomes active. The airtime that it leaves would otherwise
 * go to all clients, and to uploads and requests, whose small frames use it badly.
 */
static unsigned backlog_room(const struct policy *p)
{
	unsigned spare = 0;

	if (p->config.trickle)
		return p->config.active;
	for (unsigned i = 0; i < backlog_places(&p->config); i++)
		spare += p->place[i] != POLICY_NONE && p->client[p->place[i]].waiting <= p->config.demand_bytes / 2;
	return p->config.active + (spare < p->config.active ? spare : p->config.active);
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
		bool wants = c->used && rotation_wanted(c);

		if (c->queued && !wants)
			dequeue(p, id);
		else if (wants && !c->queued && c->place == POLICY_NONE)
			enqueue(p, id);
		if (c->place != POLICY_NONE && rotation_exempt(c))
			leave_place(p, id);
	}
	room = backlog_room(p);
	for (unsigned i = 0; i < places; i++) {
		uint16_t id = p->place[i];
		struct policy_client *c;

		if (id == POLICY_NONE)
			continue;
		c = &p->client[id];
		/* no time to settle if no client would have to wait without this one */
		if (!rotation_wanted(c) && (p->now - c->entered >= settle || p->demanding <= config->active)) {
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
		if (rotation_wanted(c))
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
	for (unsigned i = 0; i < places; i++)	/* some are taken, or no client would wait */
		if (p->place[i] != POLICY_NONE && (!p->next_at || p->client[p->place[i]].until < p->next_at))
			p->next_at = p->client[p->place[i]].until;
	wake_before(p, p->next_at - p->now, 0);
}

/*
 * The first and last id of the group after id: the next K clients in the order of
 * their ids. A group does not wrap around, so groups stay the same from round to
 * round.
 */
static void group_after(const struct policy *p, uint16_t id, uint16_t *first, uint16_t *last)
{
	unsigned start = id == POLICY_NONE ? 0 : id + 1U;
	unsigned count = 0;

	*first = *last = POLICY_NONE;
	for (unsigned round = 0; round < 2 && !count; round++, start = 0) {
		for (unsigned i = start; i < p->high && count < p->config.active; i++) {
			if (!p->client[i].used || rotation_exempt(&p->client[i]))
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
		if (!c->used || rotation_exempt(c) || first == POLICY_NONE || id < first || id > last)
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
		if (rotation_exempt(&p->client[id]))
			leave_place(p, id);
		else
			deserted = false;
	}
	if (!p->rotating) {
		rotation_reset(p);
		p->rotating = true;
	}
	if (deserted || p->now >= p->group_until) {
		/* no drift: a slot begins when the last one ended, unless that is long ago */
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
	p->active += level == POLICY_ACTIVE;
	c->changed = c->level != level;
	c->level = level;
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
	unsigned step = config->slot_ms / config->active;	/* of the stagger: the time between the starts of two turns, ms */
	uint16_t id = p->head;

	for (unsigned i = 0; i < p->high; i++) {
		struct policy_client *c = &p->client[i];
		enum policy_level level = POLICY_WAITING;

		if (!c->used)
			continue;
		if (!p->scheduling || c->flags & (POLICY_CLIENT_ALWAYS | POLICY_CLIENT_IGNORED))
			level = POLICY_OPEN;
		else if (c->flags)
			level = POLICY_LIGHT;
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

void rotation_tick(struct policy *p)
{
	if (p->scheduling && p->config.mode == POLICY_PAPER)
		rotate_paper(p);
	else if (p->scheduling)
		rotate_backlog(p);
	else
		p->next = POLICY_NONE;
	assign_levels(p);
}
