/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a radio's clients and its access point wait for the air, and whether
 * the access point uses RTS: decided by how many stations contend, and by
 * measurements.
 *
 * The more stations contend, the more of their frames collide. The remedy is a
 * larger contention window. The access point announces the window that its
 * clients use (WMM). Bianchi's optimum grows with the number of contenders and with
 * the square root of a frame's airtime (IEEE JSAC 18(3), 2000, eq. 28). A station
 * that waits longer sends more in one A-MPDU, so there are fewer frames, too.
 * Without aggregation, larger windows gain nothing and are not set.
 *
 * Pure like policy.h: no I/O, no clock, no allocation, no kernel header. The
 * daemon and the ns-3 scenarios compile this very file. One instance per radio.
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

/* Windows are 2^exponent - 1 slots, as in hostapd's wmm_ac_be_cwmin. No larger one is announced: it is hostapd's CWmax. */
#define CONTENTION_EXPONENT_MAX 10

/* A client that sends more than this contends; bit/s. It is the rate of the ACKs for a download at 0.5 Mbit/s. */
#define CONTENTION_CLIENT_BPS 10000

/* Time between two calls of contention_tick() while there is a crowd, ms. */
#define CONTENTION_TICK_MS 250

struct contention_config {
	bool windows;			/* clients' windows can be set */
	bool rts;			/* the access point's RTS threshold can be set */
	unsigned own_exponent;		/* the operator's CWmin for clients' best effort, 0..15 */
	unsigned ap_min, ap_max;	/* exponents of the access point's own CWmin and CWmax for best effort, 0..15 */
	unsigned busy_permille;		/* the channel must be busier than this, if that is known */
};

/* Measured since the last tick. */
struct contention_sample {
	unsigned contenders;		/* clients that sent more than CONTENTION_CLIENT_BPS */
	unsigned exchanging;		/* clients that sent or received as much */
	unsigned aggregating;		/* those of exchanging that use A-MPDUs */
	uint32_t kbit;			/* expected throughput of one of these alone, mean; 0: unknown */
	int busy_permille;		/* share of time the channel is in use, or CONTENTION_UNKNOWN */
	int failed_permille;		/* share of frames to clients without an acknowledgement, or CONTENTION_UNKNOWN */
	uint64_t bytes;			/* delivered to clients and received from them */
};

/* Why the windows are as they are: the condition that decided, with its numbers. */
enum contention_reason {
	CONTENTION_NOT_SET,		/* own: windows cannot be set */
	CONTENTION_FEW,			/* own: contenders < threshold */
	CONTENTION_SINGLE_FRAMES,	/* own: aggregating <= threshold, half of the clients that exchange frames */
	CONTENTION_CHANNEL_IDLE,	/* own: channel busy permille <= threshold */
	CONTENTION_NO_COLLISIONS,	/* own: failed permille < threshold */
	CONTENTION_NO_GAIN,		/* own: larger windows delivered value kbit/s, own windows threshold kbit/s */
	CONTENTION_TRIAL,		/* own: for some seconds, to see whether larger windows deliver more */
	CONTENTION_CROWD,		/* larger: contenders >= threshold */
};

struct contention {
	struct contention_config config;
	/* output of the last tick */
	unsigned exponent;		/* of the clients' CWmin; own_exponent: nothing to announce */
	unsigned ap_exponent;		/* of the access point's own CWmin */
	bool rts;
	/* Windows can be set, have not been seen to be useless, and most clients aggregate: turns would break up the aggregates. */
	bool instead_of_turns;
	struct trial trial, rts_trial;	/* whether larger windows gain here, and RTS */
	enum contention_reason reason;
	int value, threshold;		/* the numbers that reason compares */
	struct contention_sample sample;
	uint64_t steps;			/* total */
	/* private */
	bool crowd;
	bool ticked;
	bool wants_rts;			/* collisions cost more than RTS does */
	uint64_t bytes;			/* sum over samples */
	uint64_t now, stepped_at, below_since;	/* ms */
	bool below;
};

void contention_init(struct contention *c, const struct contention_config *config);
/* Applies new settings, with the next tick, and keeps all other state. */
void contention_configure(struct contention *c, const struct contention_config *config);

/* Decides for the time now, ms of any monotonic clock. Time that runs backwards counts as standing still. */
void contention_tick(struct contention *c, uint64_t now, const struct contention_sample *sample);

/* The exponent nearest to Bianchi's optimum, at most 15, for n stations that always have a frame to send, which takes airtime_us. */
unsigned contention_optimum(unsigned n, uint32_t airtime_us);

/* The reason as one readable line. */
void contention_explain(const struct contention *c, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
