/* SPDX-License-Identifier: Apache-2.0 */
/* The clock, the log and what else is printed, and the loop from which everything runs in one thread. */
#ifndef WIFIRR_LOOP_H
#define WIFIRR_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct wifirr;

/* Monotonic time. */
uint64_t now_ms(void);
uint64_t now_ns(void);

/*
 * To syslog's levels (LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG): to stderr up to
 * LOG_WARNING, else to stdout, which is how procd tells errors from information.
 */
void logmsg(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Levels shown beyond LOG_NOTICE; below 0: fewer. */
void log_verbosity(int verbosity);

/*
 * A turn that begins late is airtime lost, and a busy router is just where we
 * run. What a tick does is short and bounded, so its thread may go first, and
 * one that it waits for. Not so the children (nft). Without permission: as
 * everybody else.
 */
void go_first(void);

/* A text of less than 512 bytes. stdio's streams would be a good part of a static binary. */
void print(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Calls readable when fd becomes readable. Level triggered. One handler per fd. */
struct watch {
	int fd;
	void (*readable)(struct wifirr *w);
};
/* -1 and errno. */
int watch_add(struct watch *watch);
void watch_del(struct watch *watch);

/* Before all of them. -1 and errno. */
int loop_open(void (*tick)(struct wifirr *w));
/* When tick is called next, after so many ms or at that time; the last call counts. */
void tick_in(uint64_t ms);
/* At an absolute time, so that turns do not drift by the time that work takes. */
void tick_at(uint64_t ms);
/* Until loop_end(). */
void loop_run(struct wifirr *w);
void loop_end(void);

#endif
