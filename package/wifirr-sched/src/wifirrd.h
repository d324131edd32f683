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

#define EXEMPTIONS_MAX 128

#define RTS_AUTO (-1)	/* RTS where collisions cost more than it does */
#define RTS_OFF (-2)	/* leave the threshold alone */

/* Control sockets and leases. */
#define RUN_DIR "/var/run/wifirr"

struct config {
	char device[IFNAMSIZ];
	enum backend_choice backend;
	enum match match;
	struct policy_config policy;
	unsigned active, slot_ms;	/* K and T as given; 0: the backend's default */
	uint32_t trickle_kbit;		/* htb: a waiting client's rate */
	uint32_t rate_kbit;		/* htb: the link's rate; 0: from the stations' expected throughput */
	uint16_t weight_active;		/* airtime: 1..65535 */
	uint16_t weight_waiting;
	bool windows;			/* may set clients' contention windows */
	int rts;			/* RTS threshold in bytes in a crowd, or RTS_AUTO, RTS_OFF */
	bool exempt_voice;		/* DSCP EF and VOICE-ADMIT are never throttled */
	char control[108];		/* unix socket path, sun_path's size */
	struct {
		struct addr addr;
		unsigned flags;		/* enum policy_flags */
	} exempt[EXEMPTIONS_MAX];
	unsigned exempt_count;
	int verbose;
};

/* What reported a station; the station stays while at least one source knows it. */
enum station_source {
	STATION_NL80211 = 1,
	STATION_FDB = 2,
	STATION_NEIGH = 4,
	STATION_ROUTE = 8,
};

/* How many addresses a host may have besides its key (--match ip). */
#define ALSO_MAX 5

/* A client. Its index in wifirr.station is its id, also in policy.client. */
struct station {
	bool used;
	uint8_t sources;		/* enum station_source */
	struct addr addr;		/* the key */
	struct addr also[ALSO_MAX];
	uint8_t also_used, also_marked;	/* bit masks over also; marked: awaiting confirmation */
	uint8_t mac[6];			/* for IP addresses: the neighbour's MAC, 0 if not known */
	int ifindex;			/* nl80211: the station's interface */
	uint64_t associated_at;		/* nl80211: with that interface, ns since boot */
	bool neighbour;			/* nl80211: another node (mesh, ad-hoc, WDS), takes no turns */
	uint32_t expected_kbit;		/* expected throughput, 0: unknown (nl80211.c) */
	uint64_t bytes;			/* delivered so far, may restart at 0 (backend's read) */
	uint32_t waiting;		/* bytes queued now (backend's read) */
	uint64_t received;		/* bytes received from it so far, likewise; 0: not reported by the backend */
	uint64_t bytes_before, received_before;	/* device.c: values at the last tick */
	bool backed;			/* backend.c: the backend knows the station */
	uint8_t marked;			/* stations.c: sources that have yet to confirm it */
	bool missed;			/* stations.c: the last list lacked it */
	uint64_t last_demand;		/* ms */
};

struct wifirr;

/*
 * How clients are slowed down. All calls come from the main thread and must
 * return within milliseconds. Levels are in w->policy.client[id].level; they
 * already reflect w->policy.engaged and dry-run.
 */
struct backend {
	const char *name;
	bool nl80211;		/* works through nl80211: serves all of the radio's clients, pauses during a survey */
	/*
	 * Takes over the device; no station has been added yet. Returns 0, or -1
	 * with the reason as one line (no newline) and everything restored. May
	 * set the lead times in w->policy.config.
	 */
	int (*start)(struct wifirr *w, char *reason, size_t size);
	/* Applies the levels of n clients (those that changed) at once.
	 * -1: the device or the backend's settings are gone; the caller stops and restarts the backend. */
	int (*apply)(struct wifirr *w, const uint16_t *ids, size_t n);
	/* Updates bytes, waiting and received of all stations. */
	int (*read)(struct wifirr *w);
	/* A client is about to be removed. */
	void (*del)(struct wifirr *w, uint16_t id);
	/* A known client gained (there) or lost the address station.also[at]. May be NULL. */
	void (*also)(struct wifirr *w, uint16_t id, unsigned at, bool there);
	/* Called at each tick, after clients have come (backed, level POLICY_OPEN) and the two above. May be NULL. */
	int (*flush)(struct wifirr *w);
	/* Restores the device. Also called after the device vanished. True: something that the guard restores is left. */
	bool (*stop)(struct wifirr *w);
};

extern const struct backend htb_backend, airtime_backend;

struct wifirr {
	struct config config;
	const struct backend *backend;	/* NULL while there is no device */
	char refused[160];		/* why auto did not choose the first backend */
	char warning[192];		/* what keeps scheduling from working fully */
	char reload_error[160];		/* why the last change of options was refused, "" if it was not */
	int ifindex;			/* 0 while there is no device */
	uint32_t mtu;
	uint8_t mac[6];			/* the device's */
	bool wireless;			/* an access point whose stations nl80211 tells */
	uint64_t started;		/* ms */
	bool weights_idle;		/* airtime: weights were seen to have no effect */
	bool lost;			/* the backend's settings are gone */
	bool apply_all;			/* every client's level, not only those that changed */
	bool failed;			/* wifirrd has given up */
	uint64_t evicted;		/* stations dropped because the table was full */
	uint64_t refused_stations;	/* stations refused for the same reason */
	uint64_t restarts;		/* times the backend was set up again after something removed it */
	uint64_t changes, change_ns;	/* apply calls and time spent in them */
	/* large, so last: MIPS needs three instructions to reach beyond 32 KB */
	struct policy policy;
	struct station station[POLICY_CLIENTS_MAX];
	struct history history;
};

/* options.c */

/*
 * Reads the command line, and the file of options if it names one. Returns the
 * index of the first argument that is not an option, or -1 with the first mistake
 * as one line.
 */
int options_read(struct config *c, int argc, char **argv, char *reason, size_t size);
/* Sets K and T to the backend's defaults where they are not given. */
void options_turns(struct config *c, bool htb);

/* Of enum policy_mode and enum policy_engage. NULL ends a list. */
extern const char *const mode_words[], *const engage_words[];

/* Returns the place of text in a list of words; -1: it is none of them, and all is "one, another or the last". */
#define WORDS_TEXT 64
int word_find(const char *text, const char *const *words, char all[WORDS_TEXT]);

/* device.c: the life of the device */

/* Looks for the device, and watches it from then on. -1 and errno on failure. */
int device_open(struct wifirr *w);
/* Starts scheduling the device. -1: reason is set, and nothing is changed. */
int device_start(struct wifirr *w, char *reason, size_t size);
void device_tick(struct wifirr *w);
/* Continues with new options. */
void device_options(struct wifirr *w, struct config *config);
/* Logs that the previous options stay in use, and why, and says so in the status until the next change. */
void device_options_refused(struct wifirr *w, const char *reason);
/* Stops scheduling, and restores the device. */
void device_stop(struct wifirr *w);

/* backend.c: which stations the backend knows, and the loss of its settings */

bool backend_stop(struct wifirr *w);
/* A station has come, is about to be removed, or has gained or lost an address. */
void backend_add(struct wifirr *w, uint16_t id);
void backend_del(struct wifirr *w, uint16_t id);
void backend_also(struct wifirr *w, uint16_t id, unsigned at, bool there);
/* The backend found its settings gone (its qdisc or table was deleted): schedules a new setup. */
void backend_lost(struct wifirr *w, const char *what);

/* restore.c: what a killed wifirrd has left behind */

/* Restores all devices and radios on which no wifirrd is running. Returns the exit code. */
int restore(struct wifirr *w);
/* The guard process, from start to end. Returns the exit code. */
int guard_run(struct wifirr *w);

/* guard.c: one wifirrd per device, and a process that outlives it */

/*
 * Starts the guard, unless it already runs. Nothing may be changed before this
 * succeeds. -1: why is set.
 */
int guard_start(char *why, size_t size);
/* owing: something could not be restored, and the guard goes on trying. */
void guard_stop(bool owing);
/* For nft to remove a table: procd kills a daemon that takes 5 s to stop. */
#define NFT_REMOVE_WAIT 3000
/* A wifirrd that ends, or the guard of a killed one, needs its lock no longer than this: hostapd has the rest of the time. */
#define LOCK_WAIT_MS (NFT_REMOVE_WAIT + 1000)
/* A guard may wake before the kernel has given back the locks of the wifirrd that was killed. */
#define KILLED_WAIT_MS 1000
/*
 * Allows one wifirrd per device and network namespace. Waits up to wait ms. Returns
 * a descriptor to keep until the process ends, or -1.
 */
int claim_device(const char *device, unsigned wait);
void wait_ms(unsigned ms);

/* stations.c: the table of clients, and rtnetlink's bridge, neighbour and route tables */

/*
 * A source has (still) seen a client. Idempotent. Returns the client's id, or
 * POLICY_NONE for a group address, for the device's own address, and when the
 * table is full of busy clients. (A full table otherwise drops the client that
 * has been without demand for longest.)
 */
uint16_t station_add(struct wifirr *w, const struct addr *addr, enum station_source source);
void station_del(struct wifirr *w, const struct addr *addr, enum station_source source);
/* Records the interface on which nl80211 has seen the station. */
void station_seen(struct wifirr *w, uint16_t id, int ifindex, bool neighbour);
/* Applies the options' exemptions to the clients in the table. */
void stations_exempt(struct wifirr *w);
/* Returns the id of the station that has the address, as its key or beside it; POLICY_NONE: unknown. */
uint16_t station_find(const struct wifirr *w, const struct addr *addr);
/*
 * To resynchronise a source after lost events: mark all stations, add those that a dump shows, sweep the rest.
 * True: some that were missing for the first time are still there.
 */
void station_mark(struct wifirr *w, enum station_source source);
bool station_sweep(struct wifirr *w, enum station_source source);

struct addr addr_mac(const uint8_t mac[6]);
int addr_parse(struct addr *addr, const char *text);
#define ADDR_TEXT 46
const char *addr_text(const struct addr *addr, char text[ADDR_TEXT]);

int stations_start(struct wifirr *w, char *reason, size_t size);
void stations_stop(void);
/* Processes the events since the last tick, and dumps the tables again if an event requires it. */
void stations_refresh(struct wifirr *w);

/* wifi_stations.c: stations of an access point, as reported by nl80211 */

/*
 * Dumps the stations, subscribes to events, and keeps the table current through
 * station_add() and station_del() with STATION_NL80211. Returns 0, or -1: the device
 * is not an access point, or nl80211 is missing (then stations come from stations.c
 * alone), or, with a reason, the device must not be scheduled by stations.
 */
int wifi_stations_start(struct wifirr *w, char *reason, size_t size);
void wifi_stations_stop(void);
/*
 * Dumps the stations again: after a change of backend, which decides whether the device's or all the radio's stations
 * are served, and now and then, for their expected throughput.
 */
void wifi_stations_resync(struct wifirr *w);
/* Schedules a new look: an interface came or went, perhaps one of this radio. */
void wifi_stations_look_again(void);
/* The next interface whose stations the backend serves, from a place in the list that begins with 0. 0: there is none. */
int wifi_stations_served(unsigned *place);
/* Each client may have a VLAN of its own, and the kernel lists the access points after all of these. */
#define NL80211_SERVED_MAX (POLICY_CLIENTS_MAX + 32)

/* survey.c: how busy the channel is. Reads in a separate thread, because a
 * survey can block for 3 s (ath10k). */
struct survey {
	int busy_permille;	/* share of time busy, or POLICY_BUSY_UNKNOWN */
	int rx_permille;	/* receiving, likewise */
	int tx_permille;	/* sending, likewise */
	/* Estimate of airtime lost to collisions and interference: busy - rx - tx. */
	int wasted_permille;
};
/* Optional: without it, how busy the channel is stays unknown. */
void survey_start(struct wifirr *w);
void survey_stop(void);
/* The last answer, or unknown if that is too old. */
struct survey survey_get(void);
/* Asks for a new survey when one is due. Call it last in a tick: see survey_pending(). */
void survey_ask(void);
/*
 * A survey is in progress. The kernel holds the radio's lock during a survey, so
 * any nl80211 request about this radio would wait for it while holding the lock
 * of all of rtnetlink.
 */
bool survey_pending(void);
/* Waits for a survey, and reports what the driver fills in. -1: no answer. */
struct survey_ability {
	bool busy, rx, tx;
	unsigned ms;		/* time that the survey took */
};
int survey_try(int ifindex, struct survey_ability *can);

/* check.c: prints what works on a device, and how it was tested. Returns the exit code. */
int check_device(const char *device);

/* rtnl.c: requests over netlink sockets. Return a negative errno on failure, with its text in why. */

struct mnl_socket;
struct nlmsghdr;
/* bus: NETLINK_ROUTE or another one */
struct mnl_socket *rtnl_open(int bus, unsigned groups);
int rtnl_request(struct mnl_socket *nl, struct nlmsghdr *nlh, char *why, size_t size);
/* The same for len bytes of requests. Only the last one needs an answer, as errors are always reported; the first error counts. */
int rtnl_batch(struct mnl_socket *nl, const void *batch, size_t len, struct nlmsghdr *last, char *why, size_t size);
/* Begins a message for a qdisc, class or filter of the device. kind: its name; NULL: none. */
struct nlmsghdr *rtnl_tc(void *buf, const struct wifirr *w, int type, unsigned flags, uint32_t parent, uint32_t handle,
			 const char *kind);
/*
 * Calls cb for each message of the answer. flags: NLM_F_ACK asks for one object,
 * NLM_F_DUMP for all of them. -EINTR: these have changed meanwhile, and some may be missing.
 */
int rtnl_ask(struct mnl_socket *nl, struct nlmsghdr *nlh, uint16_t flags, int (*cb)(const struct nlmsghdr *, void *), void *data);

/*
 * htb.c: remove the queues that killed daemons left, on w->ifindex or on all devices, and the tables of these and of
 * w->config.device. -1: not all could be removed.
 */
int htb_remains(struct wifirr *w);
int htb_restore(struct wifirr *w);

/* classify.c: assigns packets to htb's classes */

/* "WF": this handle identifies our qdisc after a kill. As the upper half of a
 * mark it keeps our marks apart from other programs'. */
#define HTB_HANDLE 0x57460000U
#define HTB_CLASS_LINK (HTB_HANDLE | 1)
#define HTB_CLASS_DEFAULT (HTB_HANDLE | 2)
#define HTB_CLASS_VOICE (HTB_HANDLE | 3)
#define HTB_CLASS_CLIENT(id) (HTB_HANDLE | (0xa000U + (id)))

int classify_start(struct wifirr *w, struct mnl_socket *nl, char *reason, size_t size);
/* The client, with all its addresses, or its address station.also[at] is there now, or not any more. -1: it cannot. */
int classify_client(struct wifirr *w, uint16_t id, bool there, char *why, size_t size);
int classify_also(struct wifirr *w, uint16_t id, unsigned at, bool there, char *why, size_t size);
/* Applies the changes that these two have collected. -1: it cannot, or another program has removed the rules. */
int classify_flush(void);
void classify_stop(void);
/* Removes the table that a killed daemon left, if there is one. */
void classify_remains(const struct wifirr *w);
const char *classify_name(void);
/* Sets w->warning, or clears it: whether flow offload bypasses the device's qdisc now. */
void classify_warn_offload(struct wifirr *w);

/* control.c */
int control_start(struct wifirr *w, char *reason, size_t size);
void control_stop(struct wifirr *w);
/* The client's side: sends command, copies the answer to stdout. Returns the exit code. */
int control_request(const char *path, const char *command);

#endif
