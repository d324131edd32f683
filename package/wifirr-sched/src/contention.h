/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a radio's clients wait for the air, and whether the access point
 * asks for it with RTS: decided by how many contend and by what is measured.
 *
 * The more stations contend, the more of their frames collide. The remedy is a
 * larger contention window, and the access point announces the one that its
 * clients use (WMM). Bianchi's optimum grows with the contenders and with the
 * square root of a frame's airtime (IEEE JSAC 18(3), 2000, eq. 28). A client
 * that waits longer sends more in one A-MPDU, so there are fewer frames too;
 * where nothing is aggregated larger windows gain nothing, and are left alone.
 *
 * Pure, as policy.h is: no I/O, no clock, no allocation, no kernel header. The
 * daemon and the ns-3 scenarios compile this very file. All is of one radio.
 */
#ifndef WIFIRR_CONTENTION_H
#define WIFIRR_CONTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trial.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CONTENTION_UNKNOWN (-1)

/* Windows are 2^exponent - 1 slots, as hostapd's wmm_ac_be_cwmin counts. */
#define CONTENTION_EXPONENT_MAX 11

/* A client that sends more than this contends: the ACKs of a download of half a Mbit/s; bit/s. */
#define CONTENTION_CLIENT_BPS 10000

/* Time between two calls of contention_tick() while there is a crowd, ms. */
#define CONTENTION_TICK_MS 500

struct contention_config {
	bool windows;			/* clients' windows can be set */
	bool rts;			/* and the access point's RTS threshold */
	unsigned own_exponent;		/* the operator's CWmin for best effort, 0..15 */
	unsigned busy_permille;		/* only when the channel is busier than this, where it is known */
};

/* Of the time since the last tick. */
struct contention_sample {
	unsigned contenders;		/* clients that sent more than CONTENTION_CLIENT_BPS */
	unsigned exchanging;		/* clients that sent or got as much */
	unsigned aggregating;		/* of these, those that send and receive A-MPDUs */
	uint32_t kbit;			/* what a client would get alone, mean of those; 0: not known */
	int busy_permille;		/* share of time the channel is in use, or CONTENTION_UNKNOWN */
	int failed_permille;		/* of the frames to clients, those without an answer, or CONTENTION_UNKNOWN */
	uint64_t bytes;			/* delivered to clients and received from them */
};

/* Why the windows are what they are: the condition that decided, with its numbers. */
enum contention_reason {
	CONTENTION_NOT_SET,		/* own: windows cannot be set */
	CONTENTION_FEW,			/* own: contenders < threshold */
	CONTENTION_SINGLE_FRAMES,	/* own: of those that exchange frames, aggregating <= threshold */
	CONTENTION_CHANNEL_IDLE,	/* own: channel busy permille <= threshold */
	CONTENTION_NO_COLLISIONS,	/* own: failed permille < threshold */
	CONTENTION_NO_GAIN,		/* own: larger ones delivered value kbit/s, own ones threshold */
	CONTENTION_TRIAL,		/* own: for some seconds, to see whether larger ones deliver more */
	CONTENTION_CROWD,		/* larger: contenders >= threshold */
};

struct contention {
	struct contention_config config;
	/* output of the last tick */
	unsigned exponent;		/* of CWmin; own_exponent: nothing to announce */
	bool rts;
	/* Windows can be set, were not seen to be useless, and most clients aggregate: turns would take the aggregates away. */
	bool instead_of_turns;
	struct trial trial, rts_trial;	/* whether larger windows gain here, and RTS */
	enum contention_reason reason;
	int value, threshold;		/* what reason compares */
	struct contention_sample sample;
	uint64_t steps;			/* total */
	/* private */
	bool crowd;
	bool ticked;
	bool wants_rts;			/* it pays by what collides */
	uint64_t bytes;			/* sum of the samples' */
	uint64_t now, stepped_at, below_since;	/* ms */
	bool below;
};

void contention_init(struct contention *c, const struct contention_config *config);
/* Takes new settings and keeps the rest. */
void contention_configure(struct contention *c, const struct contention_config *config);

/* Decides for the time now, ms of any monotonic clock; one that runs backwards stands still. */
void contention_tick(struct contention *c, uint64_t now, const struct contention_sample *sample);

/* Bianchi's optimum for n contenders whose frames take so long: the exponent nearest to it. */
unsigned contention_optimum(unsigned n, uint32_t airtime_us);

/* One line for people. */
void contention_explain(const struct contention *c, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
