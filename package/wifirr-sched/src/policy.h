/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which clients are served at full speed now, which are next, and why.
 *
 * Pure: no I/O, no clock, no allocation, no kernel header. Time comes in as
 * milliseconds of any monotonic clock; the same calls give the same answers.
 * The daemon, the fuzzer and the ns-3 scenarios compile this very file.
 *
 *	policy_init(&p, &config);
 *	id = policy_add(&p, flags);              a client came
 *	policy_sample(&p, id, waiting, bytes);   for every client, then
 *	wake = policy_tick(&p, now, busy);       decide; act on clients[].level
 */
#ifndef WIFIRR_POLICY_H
#define WIFIRR_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trial.h"

#ifdef __cplusplus
extern "C" {
#endif

#define POLICY_CLIENTS_MAX 512
#define POLICY_NONE 0xffff	/* no client */
#define POLICY_BUSY_UNKNOWN (-1)

enum policy_mode {
	POLICY_BACKLOG,	/* clients with demand take turns; one turn begins every slot/active */
	POLICY_PAPER,	/* all clients in fixed groups of K; a new group every slot */
};

enum policy_engage {
	POLICY_AUTO,	/* when it can help: see enum policy_reason */
	POLICY_ALWAYS,	/* at once, whenever there are more than K clients (backlog: with demand) */
	POLICY_DRY_RUN,	/* decide as in auto, but leave every client open */
};

struct policy_config {
	enum policy_mode mode;
	enum policy_engage engage;
	/*
	 * K: clients at full speed at a time, 1..POLICY_CLIENTS_MAX. In backlog
	 * mode without trickle, up to K more become active while active clients
	 * have next to nothing queued.
	 */
	unsigned active;
	unsigned slot_ms;		/* T: a client's turn, 10..60000 */
	unsigned demand_bytes;		/* a longer queue than this is demand */
	unsigned demand_bps;		/* a higher rate delivered than this (average over 0.5 s) is demand; bit/s */
	unsigned busy_permille;		/* auto: the channel must be busier than this, if that is known */
	unsigned engage_delay_ms;	/* auto, no survey: engage after demand lasted this long; always: release likewise */
	unsigned tick_ms;		/* longest time between samples while engaged */
	unsigned idle_tick_ms;		/* and while not engaged */
	/*
	 * Waiting clients get a trickle and no more (htb). Their queues then say
	 * nothing about demand: no demand counts as light, and never more than K
	 * clients are active. Without a trickle, the next client in the queue is
	 * always POLICY_SOON. A trickle does not hold uploads back, and they may
	 * take all the airtime that turns save. So turns must first show that
	 * they deliver more.
	 */
	bool trickle;
	/*
	 * Some backends need notice before a client can start at full speed
	 * (htb: a throttled class sleeps until it has paid for its last packet).
	 * The notice has two steps; 0: not needed.
	 */
	unsigned next_lead_ms;		/* POLICY_NEXT at least this long before the turn, where foreseeable */
	unsigned soon_lead_ms;		/* POLICY_SOON this long before the turn */
};

enum policy_level {
	POLICY_OPEN,	/* not scheduled: no client is throttled, or this one never is */
	POLICY_IDLE,	/* no demand: takes no turn; ACKs for what it sends need a little airtime */
	POLICY_LIGHT,	/* light demand, a call or answers to requests: takes no turn, and waits for none */
	POLICY_WAITING,	/* waits for its turn, throttled to the trickle */
	POLICY_NEXT,	/* throttled, being readied for its turn */
	POLICY_SOON,	/* throttled less: its turn starts within soon_lead_ms, or is the next one */
	POLICY_ACTIVE,	/* has its turn */
};

enum policy_flags {
	POLICY_CLIENT_ALWAYS = 1,	/* never throttled; takes no turn */
	POLICY_CLIENT_IGNORED = 2,	/* likewise, and its demand does not count */
	/* Another node: takes no turn, and its demand does not count. Beside turns it is POLICY_LIGHT. */
	POLICY_CLIENT_NEIGHBOUR = 4,
};

struct policy_client {
	bool used;
	uint8_t flags;
	bool demand;
	/*
	 * Demand, but nothing has been queued for a while: requests and their
	 * answers, or a rate that the sender limits. The client takes no turn,
	 * because it would waste one.
	 */
	bool light;
	enum policy_level level;	/* output */
	bool changed;			/* output: level differs from the last tick's */
	uint32_t waiting;		/* bytes queued at the last sample */
	uint32_t rate_bps;		/* delivered, average over 0.5 s */
	uint64_t delivered;		/* bytes since it was added */
	uint64_t active_ms;		/* time at POLICY_ACTIVE since it was added */
	uint64_t waiting_ms;		/* time throttled since it was added */
	/* private */
	uint64_t sampled, received;	/* bytes since the last tick */
	uint32_t tick_bps;		/* delivered in the last tick */
	uint32_t delivered_bps;		/* delivered, average over 10 s */
	uint32_t received_bps;		/* received from it, likewise */
	uint32_t average_bps;		/* like rate_bps, but capped: see update_demand() */
	uint64_t backlog_at;		/* last sample with more than demand_bytes queued, ms */
	uint64_t entered, until;	/* when the turn began and when it ends, ms */
	int32_t owed;			/* turn time owed for turns cut to fit the grid, ms */
	uint16_t place;			/* POLICY_NONE: none */
	uint16_t prev, next;		/* links of the queue for turns */
	bool queued;
};

/* What makes turns needless. */
enum policy_aside {
	POLICY_ASIDE_NOT,
	POLICY_ASIDE_WINDOWS,	/* larger contention windows gain more (contention.h) */
	POLICY_ASIDE_NO_EFFECT,	/* weights have no effect here (effect.h) */
};

/* Why the policy is engaged or not: the condition that decided, with its numbers. */
enum policy_reason {
	POLICY_REASON_FEW_DEMAND,	/* not: clients with demand <= K */
	POLICY_REASON_CHANNEL_IDLE,	/* not: channel busy permille <= threshold */
	POLICY_REASON_DELAY,		/* not yet (or not yet released): the condition held for value of threshold ms */
	POLICY_REASON_DEMAND,		/* engaged: clients with demand > K (no survey, or it is not consulted) */
	POLICY_REASON_DEMAND_BUSY,	/* engaged: likewise, and the channel is busy; value: permille */
	POLICY_REASON_PAUSED,		/* not: paused by the operator */
	POLICY_REASON_TRIAL,		/* all clients are served for some seconds, to compare */
	POLICY_REASON_WINDOWS,		/* not: larger contention windows are used instead (contention.h) */
	POLICY_REASON_NO_EFFECT,	/* not: airtime weights have no effect here (effect.h) */
	POLICY_REASON_NO_GAIN,		/* not: turns delivered value kbit/s, serving all clients threshold kbit/s */
};

struct policy {
	struct policy_config config;
	/* output of the last tick */
	bool engaged;			/* the decision; in dry-run, clients stay open all the same */
	bool scheduling;		/* engaged and not dry-run: some clients may be throttled */
	enum policy_reason reason;
	int value, threshold;		/* the numbers that reason compares */
	unsigned clients;		/* clients present */
	unsigned demanding;		/* clients with demand that take turns; exempt clients not counted */
	unsigned active;		/* clients at POLICY_ACTIVE */
	uint16_t next;			/* the client whose turn is next; POLICY_NONE: none */
	uint64_t next_at;		/* when its turn begins, ms */
	uint64_t wake_at;		/* latest time of the next tick, ms */
	uint64_t turns, engagements;	/* totals */
	struct policy_client client[POLICY_CLIENTS_MAX];
	bool paused;
	enum policy_aside aside;
	struct trial trial;		/* whether turns gain here; with POLICY_BACKLOG and POLICY_AUTO */
	/* private */
	bool backlog_seen;		/* some client has had a backlog at some time */
	bool rotating;			/* turns are being given out */
	uint64_t delivered;		/* bytes, to all clients that are not exempt */
	bool ticked;
	bool pending;			/* the condition differs from the state ... */
	uint64_t pending_since;		/* ... since then, ms */
	uint64_t now;
	unsigned high;			/* client ids in use are below this */
	/* backlog: turns of place[i], i < K, end at rotation_start + (i + 1) * slot / K + n * slot */
	uint16_t place[POLICY_CLIENTS_MAX];
	uint64_t rotation_start;
	uint16_t head, tail;		/* queue of clients that wait for a turn */
	/* paper */
	uint16_t group_last;		/* highest id of the group being served */
	uint16_t next_first, next_last;	/* first and last id of the next group */
	uint64_t group_until;
};

/* The defaults of each mode and kind of backend (documented in docs/scheduler.md). */
void policy_defaults(struct policy_config *config, enum policy_mode mode, bool trickle);

void policy_init(struct policy *p, const struct policy_config *config);
/* Applies new settings. Keeps clients, their demand and the engagement. A new mode, trickle, K or T restarts turns and trials. */
void policy_configure(struct policy *p, const struct policy_config *config);

/* Returns the new client's id, the lowest one free; POLICY_NONE when the table is full. */
uint16_t policy_add(struct policy *p, unsigned flags);
void policy_del(struct policy *p, uint16_t id);
void policy_set_flags(struct policy *p, uint16_t id, unsigned flags);

/* waiting: bytes queued now. bytes: delivered since the last sample. */
void policy_sample(struct policy *p, uint16_t id, uint32_t waiting, uint64_t bytes);

/* bytes: received from the client since the last call; used by policy_weight() alone. */
void policy_received(struct policy *p, uint16_t id, uint64_t bytes);

/*
 * Decides for the time now. busy: share of time the channel is in use, 0..1000,
 * or POLICY_BUSY_UNKNOWN. Time that runs backwards counts as standing still.
 * Returns wake_at.
 */
uint64_t policy_tick(struct policy *p, uint64_t now, int busy);

/* While paused, no client is throttled. */
void policy_pause(struct policy *p, bool paused);

/* While aside is set, there are no turns, except with POLICY_ALWAYS. */
void policy_set_aside(struct policy *p, enum policy_aside aside);

/*
 * A client's airtime weight. An active client has the weight active, a waiting
 * one with demand the weight waiting. The next client in the queue has a third of
 * active, so that its sender's window is open when its turn begins.
 *
 * Light demand has active if the client neither sends nor receives more than
 * 100 kbit/s (averages over 10 s): a call takes less than its share of the air, and
 * any lower weight would delay it. Above that, it has half of the mean weight of the
 * clients that take turns: with more, the pages that clients load after their downloads
 * would take the air of those that still wait. A neighbour has the mean weight, so its
 * share of the air is that of a client, as without turns.
 *
 * Most of what goes to clients without demand is ACKs for what they send. With
 * waiting all the time, uploads would come to a halt; with a higher weight, they
 * crowd out the downloads (docs/architecture.md). So clients that send more than
 * 100 kbit/s take turns, too. Two slots have eight parts: in three of them, such a
 * client has three sixteenths of active, in the others waiting. Other clients
 * without demand have a sixteenth of active.
 */
uint16_t policy_weight(const struct policy *p, uint16_t id, uint16_t active, uint16_t waiting);
/* Whether weight is one that policy_weight() may return for a client that is not POLICY_OPEN. */
bool policy_weight_possible(uint16_t weight, uint16_t active, uint16_t waiting);

const char *policy_level_name(enum policy_level level);
/* The reason as one readable line: "clients with demand: 3, more than 3 are needed". */
void policy_explain(const struct policy *p, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
