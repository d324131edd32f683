/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wifirrd: serves only K of a WiFi link's N clients at full speed at a time,
 * in turn. One file per outside interface; policy.c alone decides.
 *
 * Everything runs in one thread from one epoll loop (loop.c), except where a
 * call may block for seconds (survey.c).
 */
#ifndef WIFIRRD_H
#define WIFIRRD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <net/if.h>

#include "history.h"
#include "loop.h"
#include "policy.h"

#ifndef WIFIRR_VERSION
#define WIFIRR_VERSION "unknown"
#endif

/* Exit codes. */
enum {
	EXIT_FAILED = 1,	/* the kernel refused something at run time */
	EXIT_USAGE = 2,		/* a flag, the device or the kernel cannot do what was asked */
};

enum addr_type { ADDR_MAC, ADDR_IPV4, ADDR_IPV6 };

struct addr {
	uint8_t type;		/* enum addr_type */
	uint8_t bytes[16];	/* 6, 4 or 16 used, the rest 0 */
};

enum backend_choice { BACKEND_AUTO, BACKEND_AIRTIME, BACKEND_HTB };
enum match { MATCH_MAC, MATCH_IP };

#define EXEMPTIONS_MAX 64

#define RTS_AUTO (-1)	/* where collisions cost more than RTS does */
#define RTS_OFF (-2)	/* left alone */

/* Control sockets and leases. */
#define RUN_DIR "/var/run/wifirr"

struct config {
	char device[IFNAMSIZ];
	enum backend_choice backend;
	enum match match;
	struct policy_config policy;
	unsigned active, slot_ms;	/* K and T as given, 0: the backend's */
	uint32_t trickle_kbit;		/* htb: a waiting client's rate */
	uint32_t rate_kbit;		/* htb: the link's rate; 0: from the stations' expected throughput */
	uint16_t weight_active;		/* airtime: 1..65535 */
	uint16_t weight_waiting;
	bool windows;			/* clients' contention windows may be set */
	int rts;			/* RTS threshold in bytes in a crowd, or RTS_AUTO, RTS_OFF */
	bool exempt_voice;		/* DSCP EF and VOICE-ADMIT are never throttled */
	char control[108];		/* unix socket path, sun_path's size */
	struct addr always[EXEMPTIONS_MAX], ignore[EXEMPTIONS_MAX];
	unsigned always_count, ignore_count;
	int verbose;
};

/* Who told about a station; it stays while one source still knows it. */
enum station_source {
	STATION_NL80211 = 1,
	STATION_FDB = 2,
	STATION_NEIGH = 4,
	STATION_ROUTE = 8,
};

/* A host's other addresses, beside the one that it is known by (--match ip). */
#define ALSO_MAX 5

/* A client. Its index in wifirr.station is its id, in policy.client too. */
struct station {
	bool used;
	uint8_t sources;		/* enum station_source */
	struct addr addr;		/* the key */
	struct addr also[ALSO_MAX];
	uint8_t also_used, also_marked;	/* bits; marked: have to be confirmed */
	uint8_t mac[6];			/* with addresses of IP: the neighbour's, 0 if not known */
	int ifindex;			/* nl80211: of its interface */
	bool neighbour;			/* nl80211: another node (mesh, ad-hoc, WDS), never throttled */
	uint32_t expected_kbit;		/* expected throughput, 0: unknown (nl80211.c) */
	uint64_t bytes;			/* delivered so far, may restart at 0 (backend's read) */
	uint32_t waiting;		/* bytes queued now (backend's read) */
	uint64_t received;		/* bytes received from it so far, likewise; 0: the backend does not tell */
	uint64_t bytes_before, received_before;	/* device.c: values of the last tick */
	bool backed;			/* backend.c: the backend knows it */
	uint8_t marked;			/* stations.c: sources that have to confirm it */
	uint64_t last_demand;		/* ms */
};

struct wifirr;

/*
 * How clients are slowed down. All calls come from the main thread and must
 * return within milliseconds. Levels are in w->policy.client[id].level,
 * w->policy.engaged and dry-run are resolved into them already.
 */
struct backend {
	const char *name;
	bool nl80211;		/* goes through it: for all of the radio's clients, and not during a survey */
	/*
	 * Takes the device over, with no station known to it. 0, or -1 with the
	 * reason as one line (no newline) and everything as it was before. May
	 * set the lead times and tick_ms in w->policy.config.
	 */
	int (*start)(struct wifirr *w, char *reason, size_t size);
	/* Applies the levels of n clients (those that changed) at once.
	 * -1: device or own settings are gone; it is stopped and started again. */
	int (*apply)(struct wifirr *w, const uint16_t *ids, size_t n);
	/* Brings bytes, waiting and received of all stations up to date. */
	int (*read)(struct wifirr *w);
	/* A station came (level POLICY_OPEN) or is about to go. May be NULL. */
	int (*add)(struct wifirr *w, uint16_t id);
	void (*del)(struct wifirr *w, uint16_t id);
	/* A client known to it has another address, station.also[at], or not any more. May be NULL. */
	void (*also)(struct wifirr *w, uint16_t id, unsigned at, bool there);
	/* Called after a burst of those. May be NULL. */
	int (*flush)(struct wifirr *w);
	/* Gives the device back as it was. Also after the device vanished. */
	void (*stop)(struct wifirr *w);
};

extern const struct backend htb_backend, airtime_backend;

struct wifirr {
	struct config config;
	const struct backend *backend;	/* NULL while there is no device */
	char refused[160];		/* why auto did not take the first backend */
	char warning[192];		/* what keeps it from working fully */
	int ifindex;			/* 0 while there is no device */
	uint32_t mtu;
	uint32_t gso_max_segs;		/* the device's when first seen */
	uint8_t mac[6];			/* the device's */
	bool wireless;			/* nl80211 knows the device */
	uint64_t started;		/* ms */
	bool weights_idle;		/* airtime: they were seen to have no effect */
	bool lost;			/* the backend's settings are gone */
	bool apply_all;			/* every client's level, not only those that changed */
	bool failed;			/* given up */
	uint64_t evicted;		/* stations dropped because the table was full */
	uint64_t refused_stations;	/* stations not taken for the same reason */
	uint64_t restarts;		/* backend set up again after something removed it */
	uint64_t changes, change_ns;	/* apply calls and time spent in them */
	/* large, so last: MIPS needs three instructions for what is beyond 32 KB */
	struct policy policy;
	struct station station[POLICY_CLIENTS_MAX];
	struct history history;
};

/* options.c */

/*
 * The command line and the file that it names, if it does. Returns the index of
 * the first argument that is no option, or -1 with the first mistake as one line.
 */
int options_read(struct config *c, int argc, char **argv, char *reason, size_t size);
/* K and T where they are not given: the backend's. */
void options_turns(struct config *c, bool htb);

/* device.c: the life of the device */

/* Looks for it, and watches it from now on. -1 and errno. */
int device_open(struct wifirr *w);
/* Takes it into service. -1: reason, and nothing is changed. */
int device_start(struct wifirr *w, char *reason, size_t size);
void device_tick(struct wifirr *w);
/* Goes on with other options. */
void device_options(struct wifirr *w, struct config *config);
/* Gives it back. */
void device_stop(struct wifirr *w);

/* backend.c: what the backend knows of whom */

void backend_stop(struct wifirr *w);
/* Its add and del for one station. */
void backend_add(struct wifirr *w, uint16_t id);
void backend_del(struct wifirr *w, uint16_t id);
void backend_also(struct wifirr *w, uint16_t id, unsigned at, bool there);
/* It found its settings gone (qdisc or table deleted under it): to be set up again. */
void backend_lost(struct wifirr *w, const char *what);

/* restore.c: what a killed wifirrd has left */

/* Gives it back, on all devices and radios that no wifirrd is at work on. Exit code. */
int restore(struct wifirr *w);
/* The guard's whole life. Exit code. */
int guard_run(struct wifirr *w);

/* guard.c: one wifirrd a device, and a process that outlives it */

/*
 * Starts the guard. Before the first change, and without it there is none: -1
 * and why. Again is no mistake.
 */
int guard_start(char *why, size_t size);
/* owing: something could not be given back, and the guard shall go on trying. */
void guard_stop(bool owing);
/* One wifirrd a device and network namespace: a descriptor until the end of the process, or -1. Waits so many ms for it. */
int claim_device(const char *device, unsigned wait);
void wait_ms(unsigned ms);

/* stations.c: the table of clients, and rtnetlink's bridge, neighbour and route tables */

/*
 * A source has (still) seen a client. Idempotent. Returns its id, or
 * POLICY_NONE: group address, the device's own, or the table is full of busy
 * clients (otherwise the one longest without demand makes room).
 */
uint16_t station_add(struct wifirr *w, const struct addr *addr, enum station_source source);
void station_del(struct wifirr *w, const struct addr *addr, enum station_source source);
/* Where nl80211 has seen it. */
void station_seen(struct wifirr *w, uint16_t id, int ifindex, bool neighbour);
/* The options' exemptions, for the clients that are there. */
void stations_exempt(struct wifirr *w);
/* POLICY_NONE: unknown. */
uint16_t station_find(const struct wifirr *w, const struct addr *addr);
/* To resync a source after lost events: mark all, add those that a dump shows, sweep the rest. */
void station_mark(struct wifirr *w, enum station_source source);
void station_sweep(struct wifirr *w, enum station_source source);

struct addr addr_mac(const uint8_t mac[6]);
int addr_parse(struct addr *addr, const char *text);
#define ADDR_TEXT 46
const char *addr_text(const struct addr *addr, char text[ADDR_TEXT]);

int stations_start(struct wifirr *w, char *reason, size_t size);
void stations_stop(void);
/* Takes the events since the last tick, and dumps the tables again if one asks for it. */
void stations_refresh(struct wifirr *w);

/* wifi_stations.c: stations of an access point, as nl80211 tells */

/* 0; -1: not an access point, or nl80211 is missing (then stations come from
 * stations.c alone), or, with a reason, a device that must not be scheduled by stations. Dumps, subscribes, and keeps the table current through
 * station_add/del with STATION_NL80211. */
int nl80211_start(struct wifirr *w, char *reason, size_t size);
void nl80211_stop(void);
/* After another backend was chosen: the device's stations, or all its radio's. */
void nl80211_resync(struct wifirr *w);
/* Soon: another interface came or went, perhaps of this radio. */
void nl80211_look_again(void);
/* Interfaces with clients that are served by the backend, at most max. Returns how many. */
unsigned nl80211_served(int *ifindex, unsigned max);
#define NL80211_SERVED_MAX 32
/* Refreshes station.expected_kbit; called about once a minute when the htb
 * backend has no --rate. */
void nl80211_expected(struct wifirr *w);

/* survey.c: how busy the channel is. Reads in a thread or process of its own:
 * a survey can block for 3 s (ath10k). */
struct survey {
	int busy_permille;	/* of time; POLICY_BUSY_UNKNOWN */
	int rx_permille;	/* receiving; POLICY_BUSY_UNKNOWN */
	int tx_permille;	/* sending; POLICY_BUSY_UNKNOWN */
	/* Estimate of airtime lost to collisions and interference: busy - rx - tx. */
	int wasted_permille;
};
int survey_start(struct wifirr *w);
void survey_stop(void);
/* The last answer, if it is not too old. */
struct survey survey_get(void);
/* Has it asked again, if it is time to. The last thing in a tick: see survey_pending(). */
void survey_ask(void);
/*
 * A driver is at it. The kernel holds the radio's lock meanwhile: who asks
 * nl80211 for anything about this radio now waits for it, with the lock of all
 * of rtnetlink.
 */
bool survey_pending(void);
/* What the driver's answer has in it; waits for it. -1: there is none. */
struct survey_ability {
	bool busy, rx, tx;
	unsigned ms;		/* it took */
};
int survey_try(int ifindex, struct survey_ability *can);

/* check.c: says what works on a device, and what was tried to find out. Exit code. */
int check_device(const char *device);

/* rtnl.c: requests over netlink route sockets. Negative errno on failure; why gets it in words. */

struct mnl_socket;
struct nlmsghdr;
struct mnl_socket *rtnl_open(unsigned groups);
uint32_t rtnl_seq(void);
int rtnl_request(struct mnl_socket *nl, struct nlmsghdr *nlh, char *why, size_t size);
int rtnl_dump(struct mnl_socket *nl, struct nlmsghdr *nlh, int (*cb)(const struct nlmsghdr *, void *), void *data);
/* Waits for the answer to the request with this sequence number; the first error before it counts too. */
int rtnl_ack(struct mnl_socket *nl, uint32_t last, char *why, size_t size);

/* htb.c: takes the queues of killed daemons away, the device's (w->ifindex), or everybody's. -1: not all. */
int htb_remains(struct wifirr *w);
int htb_restore(struct wifirr *w);

/* classify.c: packets to htb's classes */

/* "WF": by this handle the qdisc is recognised after a kill. As a mark's upper
 * half it keeps our marks apart from others'. */
#define HTB_HANDLE 0x57460000U
#define HTB_CLASS_LINK (HTB_HANDLE | 1)
#define HTB_CLASS_DEFAULT (HTB_HANDLE | 2)
#define HTB_CLASS_VOICE (HTB_HANDLE | 3)
#define HTB_CLASS_CLIENT(id) (HTB_HANDLE | (0xa000U + (id)))

int classify_start(struct wifirr *w, struct mnl_socket *nl, char *reason, size_t size);
int classify_add(struct wifirr *w, uint16_t id);
void classify_del(struct wifirr *w, uint16_t id);
void classify_also(struct wifirr *w, uint16_t id, unsigned at, bool there);
/* Carries out what add and del have collected. */
int classify_flush(void);
void classify_stop(void);
/* Removes the table of a daemon that was killed. */
void classify_remains(const struct wifirr *w);
const char *classify_name(void);
/* Fills w->warning if flow offload passes by the device's qdisc. */
void classify_warn_offload(struct wifirr *w);

/* control.c */
int control_start(struct wifirr *w, char *reason, size_t size);
void control_stop(struct wifirr *w);
/* The client's side: sends command, copies the answer to stdout. Exit code. */
int control_request(const char *path, const char *command);

#endif
