/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which clients are served at full speed now, which enter next, and why.
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
	POLICY_BACKLOG,	/* clients with demand take turns, one enters every slot/active */
	POLICY_PAPER,	/* all clients in fixed groups of K, a new group every slot */
};

enum policy_engage {
	POLICY_AUTO,	/* when it can help: see enum policy_reason */
	POLICY_ALWAYS,	/* more than K clients (backlog: with demand) are enough, at once */
	POLICY_DRY_RUN,	/* decide as auto, but leave every client open */
};

struct policy_config {
	enum policy_mode mode;
	enum policy_engage engage;
	/*
	 * K: clients at full speed at a time, 1..POLICY_CLIENTS_MAX. Backlog
	 * without trickle: up to as many again enter while active ones have next
	 * to nothing queued.
	 */
	unsigned active;
	unsigned slot_ms;		/* T: a client's turn, 10..60000 */
	unsigned demand_bytes;		/* more than this waiting is demand */
	unsigned demand_bps;		/* more than this delivered (average over 0.5 s) is demand; bit/s */
	unsigned busy_permille;		/* auto: the channel must be busier than this, where it is known */
	unsigned engage_delay_ms;	/* auto, no survey: engage after demand lasted this long; always: release likewise */
	unsigned tick_ms;		/* longest time between samples while engaged */
	unsigned idle_tick_ms;		/* and while not */
	/*
	 * Waiting clients get a trickle and no more (htb). What waits for them
	 * then says nothing about demand: nobody's is light, and never more than
	 * K are active. Without it the next in the queue is POLICY_SOON all the
	 * time. Uploads are not held, and may take all that turns save: so turns
	 * have to show first that they deliver more.
	 */
	bool trickle;
	/*
	 * A backend that needs notice before a client can start at full speed
	 * (htb: a throttled class sleeps until it has paid for its last packet)
	 * gets it in two steps; 0: not needed.
	 */
	unsigned next_lead_ms;		/* POLICY_NEXT at least this long before the turn, where foreseeable */
	unsigned soon_lead_ms;		/* POLICY_SOON this long before the turn */
};

enum policy_level {
	POLICY_OPEN,	/* not scheduled: nobody is throttled, or this client is exempt */
	POLICY_IDLE,	/* no demand: takes no turn; ACKs for what it sends need a little */
	POLICY_LIGHT,	/* light demand, a call or answers to requests: takes no turn, and waits for nobody's */
	POLICY_WAITING,	/* for its turn, throttled to the trickle */
	POLICY_NEXT,	/* throttled, being readied for its turn */
	POLICY_SOON,	/* throttled less, its turn starts within soon_lead_ms, or is the next */
	POLICY_ACTIVE,	/* its turn */
};

enum policy_flags {
	POLICY_CLIENT_ALWAYS = 1,	/* never throttled; takes no turn */
	POLICY_CLIENT_IGNORED = 2,	/* the same, and its demand does not count either */
};

struct policy_client {
	bool used;
	uint8_t flags;
	bool demand;
	/*
	 * Demand, but nothing has been queued for a while: requests and their
	 * answers, a rate that its sender limits. Takes no turn, as a turn would
	 * be wasted on it.
	 */
	bool light;
	enum policy_level level;	/* output */
	bool changed;			/* output: level differs from the last tick's */
	uint32_t waiting;		/* bytes, last sample */
	uint32_t rate_bps;		/* delivered, average over 0.5 s */
	uint64_t delivered;		/* bytes since it came */
	uint64_t active_ms;		/* time at POLICY_ACTIVE since it came */
	uint64_t waiting_ms;		/* time throttled since it came */
	/* private */
	uint64_t sampled, received;	/* bytes since the last tick */
	uint32_t tick_bps;		/* delivered in the last tick */
	uint32_t received_bps;		/* received from it, average over 10 s */
	uint32_t received_now_bps;	/* the same over 0.5 s */
	uint32_t average_bps;		/* as rate_bps, but capped: see update_demand() */
	uint64_t backlog_at;		/* last sample with more than demand_bytes waiting, ms */
	uint64_t entered, until;	/* when the turn began and ends, ms */
	int32_t owed;			/* turn time due from turns cut to fit the grid, ms */
	uint16_t place;			/* POLICY_NONE: none */
	uint16_t prev, next;		/* the queue of those waiting for a turn */
	bool queued;
};

/* What makes turns needless. */
enum policy_aside {
	POLICY_ASIDE_NOT,
	POLICY_ASIDE_WINDOWS,	/* clients' contention windows do more (contention.h) */
	POLICY_ASIDE_NO_EFFECT,	/* weights do nothing here (effect.h) */
};

/* Why it is engaged or not: the condition that decided, with its numbers. */
enum policy_reason {
	POLICY_REASON_FEW_DEMAND,	/* not: clients with demand <= K */
	POLICY_REASON_CHANNEL_IDLE,	/* not: channel busy permille <= threshold */
	POLICY_REASON_DELAY,		/* not yet (or not yet released): condition held value of threshold ms */
	POLICY_REASON_DEMAND,		/* engaged: clients with demand > K (no survey, or not asked) */
	POLICY_REASON_DEMAND_BUSY,	/* engaged: the same and the channel is busy; value: permille */
	POLICY_REASON_PAUSED,		/* not: paused by the operator */
	POLICY_REASON_TRIAL,		/* everybody is served for a moment, to compare */
	POLICY_REASON_WINDOWS,		/* not: clients' contention windows do it (contention.h) */
	POLICY_REASON_NO_EFFECT,	/* not: airtime weights do nothing here (effect.h) */
	POLICY_REASON_NO_GAIN,		/* not: turns delivered value kbit/s, serving everybody threshold */
};

struct policy {
	struct policy_config config;
	/* output of the last tick */
	bool engaged;			/* by decision; in dry-run the clients stay open all the same */
	bool scheduling;		/* engaged and not dry-run: some clients may be throttled */
	enum policy_reason reason;
	int value, threshold;		/* what reason compares */
	unsigned clients;		/* present */
	unsigned demanding;		/* of these, with demand that wants turns, exempt ones not counted */
	unsigned light;			/* of these, with demand that does not */
	unsigned active;		/* of these, at POLICY_ACTIVE */
	unsigned changes;		/* clients whose level changed in this tick */
	uint16_t next;			/* who enters next, POLICY_NONE: nobody */
	uint64_t next_at;		/* and when, ms */
	uint64_t wake_at;		/* latest time of the next tick, ms */
	uint64_t turns, engagements;	/* totals */
	struct policy_client client[POLICY_CLIENTS_MAX];
	bool paused;
	enum policy_aside aside;
	struct trial trial;		/* whether turns gain here; with POLICY_BACKLOG and POLICY_AUTO */
	/* private */
	bool backlog_seen;		/* any client's, ever */
	bool rotating;			/* turns are being given out */
	uint64_t delivered;		/* bytes, to all clients that are not exempt */
	bool ticked;
	bool pending;			/* the condition differs from the state ... */
	uint64_t pending_since;		/* ... since, ms */
	uint64_t now;
	unsigned high;			/* client ids in use are below this */
	/* backlog: places[i]'s turns end at rotation_start + (i + 1) * slot / K + n * slot */
	uint16_t place[POLICY_CLIENTS_MAX];
	uint64_t rotation_start;
	uint16_t head, tail;		/* queue of those waiting */
	/* paper */
	uint16_t group_last;		/* highest id of the group being served */
	uint16_t next_first, next_last;	/* ids of the group after it */
	uint64_t group_until;
};

/* The defaults of each mode and kind of backend (documented in docs/scheduler.md). */
void policy_defaults(struct policy_config *config, enum policy_mode mode, bool trickle);

void policy_init(struct policy *p, const struct policy_config *config);
/* Takes new settings. Clients, their demand and whether it is engaged are kept; turns and trials start anew with another mode, K or T. */
void policy_configure(struct policy *p, const struct policy_config *config);

/* Returns the new client's id, the lowest free one; POLICY_NONE when full. */
uint16_t policy_add(struct policy *p, unsigned flags);
void policy_del(struct policy *p, uint16_t id);
void policy_set_flags(struct policy *p, uint16_t id, unsigned flags);

/* waiting: bytes queued now. bytes: delivered since the last sample. */
void policy_sample(struct policy *p, uint16_t id, uint32_t waiting, uint64_t bytes);

/* bytes: received from it since the last call; for policy_weight() alone. */
void policy_received(struct policy *p, uint16_t id, uint64_t bytes);

/*
 * Decides for the time now. busy: share of time the channel is in use, 0..1000,
 * or POLICY_BUSY_UNKNOWN. Time that runs backwards is taken as standing still.
 * Returns wake_at.
 */
uint64_t policy_tick(struct policy *p, uint64_t now, int busy);

/* While paused nobody is throttled. */
void policy_pause(struct policy *p, bool paused);

/* While they are needless there are no turns, but with POLICY_ALWAYS. */
void policy_set_aside(struct policy *p, enum policy_aside aside);

/*
 * A client's airtime weight where an active one's is active, and a waiting
 * one's with demand is waiting. Light demand has the first: a call takes less
 * than its share of the air, and would be late with any lower one. The next in the queue gets a third of the
 * first, so that its sender's window is open when its turn begins. What goes to
 * clients without demand are mostly ACKs for what they send: at the low weight
 * all the time uploads come to a halt, at a higher one they crowd out the
 * downloads (docs/architecture.md). So those that send more than 100 kbit/s take
 * turns, too: of the eight quarters of two slots they have three eighths of the
 * first weight for one (up to 250 kbit/s), two (600) or three, and the low weight
 * for the others. Others without demand get a sixteenth.
 */
uint16_t policy_weight(const struct policy *p, uint16_t id, uint16_t active, uint16_t waiting);
/* Whether policy_weight() can have given it to a client that is not POLICY_OPEN. */
bool policy_weight_possible(uint16_t weight, uint16_t active, uint16_t waiting);

const char *policy_level_name(enum policy_level level);
/* One line for people: "clients with demand: 3, more than 3 are needed". */
void policy_explain(const struct policy *p, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
