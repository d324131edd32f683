/* SPDX-License-Identifier: Apache-2.0 */
/* The clock, the log and other output, and the loop that runs everything in one thread. */
#ifndef WIFIRR_LOOP_H
#define WIFIRR_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct wifirr;

/* Monotonic time. */
uint64_t now_ms(void);
uint64_t now_ns(void);

/*
 * Logs with one of syslog's levels (LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG). Up to
 * LOG_WARNING, messages go to stderr, others to stdout: procd tells errors from information by that.
 */
void logmsg(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* How many levels to show beyond LOG_NOTICE. */
void log_verbosity(int verbosity);

/*
 * Gives the calling thread real-time priority. A turn that begins late is airtime
 * lost, and wifirrd runs on busy routers. The work of a tick is short and bounded,
 * so the main thread may go first, and so may a thread that it waits for. Child
 * processes (nft) do not inherit the priority. Without permission, nothing changes.
 */
void go_first(void);

/* Prints less than 512 bytes. stdio's streams would take a large part of a static binary. */
void print(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Calls readable while fd is readable (level-triggered). One handler per fd. */
struct watch {
	int fd;
	void (*readable)(struct wifirr *w);
};
/* -1 and errno. */
int watch_add(struct watch *watch);
void watch_del(struct watch *watch);

/* Call this before all others. -1 and errno. */
int loop_open(void (*tick)(struct wifirr *w));
/* Schedule the next tick, after ms or at time ms; the last call counts. */
void tick_in(uint64_t ms);
/* An absolute time keeps turns from drifting by the time that work takes. */
void tick_at(uint64_t ms);
/* Runs until loop_end(). */
void loop_run(struct wifirr *w);
void loop_end(void);

#endif
