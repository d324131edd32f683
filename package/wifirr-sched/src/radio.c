/* SPDX-License-Identifier: Apache-2.0 */
#include "radio.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "hostapd.h"
#include "lease.h"
#include "nl80211.h"
#include "wifirrd.h"

#define STATIONS_MAX 512	/* places; a power of two */
#define POINTS_MAX 16

/* Without a crowd, measure when something else wakes the daemon, but at most this often. */
#define IDLE_MS 900
/* Between attempts to take a lock that another wifirrd holds, and to have hostapd confirm the operator's own windows. */
#define RETRY_MS 2000
/* Between checks of the interfaces and of hostapd. */
#define LOOK_MS 10000
/* A driver that has refused the access point's own window is asked again after LOOK_MS, and after twice as long each time, this often. */
#define REFUSALS_MAX 8
/* A restarted or reloaded hostapd silently forgets the windows, so they are sent again this often. */
#define ANNOUNCE_MS 10000
/* hostapd is gone if it has not answered for this long. */
#define ANSWER_MAX_MS 3000

#define RTS_BYTES 500

/* A share of fewer frames than this says nothing. */
#define FRAMES_MIN 20

struct interface {
	char name[IFNAMSIZ];
	int ifindex;
	bool left;			/* it has larger windows, but turns out to be of another radio */
	struct hostapd_own own;
};

/* Counters of a station at the last look. An access point that it has left without a word keeps its entry for minutes. */
struct seen {
	int ifindex;			/* 0: none */
	uint8_t mac[6];
	bool aggregates;
	uint32_t rx_bytes, tx_bytes;	/* modulo 2^32 */
	uint32_t tx_packets, tx_retries;
};

static struct {
	bool open;
	struct nl80211 nl;
	struct nl80211_interface self;	/* the device */
	char path[LEASE_PATH];
	struct interface interface[POINTS_MAX + 1];	/* ends with an index of 0 */
	unsigned interfaces;
	unsigned measured_count;
	bool more_radios;		/* the wiphy has others */
	char links[IFNAMSIZ];		/* an access point with a link on the radio's band; "": none */
	bool taken;			/* another wifirrd holds the lease's lock */
	struct contention contention;
	uint32_t rts;			/* the RTS threshold in force */
	uint32_t rts_wanted;		/* at the last look at it */
	unsigned announced;		/* exponent; 0: the operator's own */
	bool owing;			/* not all of the operator's own windows are confirmed to be in use again */
	bool unlisted;			/* the last list of interfaces was refused */
	bool undone;			/* in the last announcement, that, or hostapd had no room for a message, or the driver refused its own window */
	bool no_lease;			/* it could not be written in this crowd */
	struct lease lease;
	unsigned expected;		/* answers expected from hostapd */
	struct hostapd_answers came;	/* since the last look */
	bool answers;			/* hostapd has given all of them */
	bool sets_queue;		/* the driver has changed the access point's own window */
	unsigned refusals;		/* how often in a row it has refused to */
	uint64_t fixed_until;		/* after the last one, it is left alone until then */
	uint64_t ticked_at, tried_at, announced_at, asked_at, rts_looked_at;
	unsigned now;			/* index of the current table in seen */
	/* the current measurement */
	struct contention_sample sample;
	uint64_t kbit, kbit_of;
	uint64_t frames, retries, span;
	bool counts_retries;		/* the driver counts retries; with firmware retransmission it may not */
	unsigned without_wmm;
	char problem[128];
	/* large, so last: see struct wifirr */
	int measured[NL80211_SERVED_MAX];	/* interfaces with clients: access points, and their VLANs */
	/* two tables, used alternately, so that stations that left drop out */
	struct seen seen[2][STATIONS_MAX];
} radio;

/* Not in the struct, which is all zeros and so takes no room in the program. -1: not open. */
static int radio_lock = -1;	/* the lease's lock; -1: not ours */
static void answers_readable(struct wifirr *w);
static struct watch radio_hostapd = { .fd = -1, .readable = answers_readable };

static void problem(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void problem(const char *fmt, ...)
{
	char text[sizeof(radio.problem)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (*text && strcmp(text, radio.problem) != 0)
		logmsg(LOG_NOTICE, "windows are left alone: %s", text);
	snprintf(radio.problem, sizeof(radio.problem), "%s", text);
}

/* Must succeed before the first change: nothing is changed without a lease and a guard. */
static int hold(unsigned what, char *why, size_t size)
{
	unsigned before = radio.lease.noted;

	radio.lease.noted |= what;
	if (radio.lease.noted != before && lease_write(radio_lock, &radio.lease) < 0) {
		snprintf(why, size, "%s: %s", radio.path, strerror(errno));
		radio.lease.noted = before;
		return -1;
	}
	return guard_start(why, size);
}

static bool held(unsigned what)
{
	char why[sizeof(radio.problem)];

	radio.no_lease = hold(what, why, sizeof(why)) < 0;
	if (radio.no_lease)
		problem("%s", why);
	return !radio.no_lease;
}

static void release(unsigned what)
{
	if (!(radio.lease.noted & what))
		return;
	radio.lease.noted &= ~what;
	if (lease_write(radio_lock, &radio.lease) < 0)
		logmsg(LOG_WARNING, "%s: %s", radio.path, strerror(errno));
}

/* What is measured */

static const struct interface *listed(const struct interface *list, int ifindex)
{
	while (list->ifindex && list->ifindex != ifindex)
		list++;
	return list->ifindex ? list : NULL;
}

/* Larger windows may be in use. */
static bool changed(void)
{
	return radio.announced || radio.owing;
}

/* before: the last list. */
static void on_interface(void *before, const struct nl80211_interface *seen)
{
	struct interface *i = &radio.interface[radio.interfaces];
	const struct interface *was = listed(before, seen->ifindex);
	bool here = nl80211_share_radio(seen, &radio.self);

	if (seen->links & nl80211_band(radio.self.mhz) && seen->type == NL80211_IFTYPE_AP)
		snprintf(radio.links, sizeof(radio.links), "%s", seen->name);
	if (!here) {
		radio.more_radios = true;
		if (!was || !changed())
			return;
	}
	if (here && nl80211_serves_stations(seen) && radio.measured_count < NL80211_SERVED_MAX)
		radio.measured[radio.measured_count++] = seen->ifindex;
	if (seen->type != NL80211_IFTYPE_AP || seen->links || radio.interfaces == POINTS_MAX)
		return;
	*i = (struct interface){ .ifindex = seen->ifindex, .left = !here };
	snprintf(i->name, sizeof(i->name), "%s", seen->name);
	hostapd_read_own(i->name, &i->own);
	/* netifd moves the configuration away, and writes it anew for some seconds */
	if (was && !i->own.found)
		i->own = was->own;
	radio.interfaces++;
}

/* Without an answer, all stay: their windows may have to be restored. */
static void find_interfaces(void)
{
	unsigned count = radio.interfaces, measured = radio.measured_count;
	struct interface before[POINTS_MAX + 1], *old = before;
	struct nl80211_interface seen;

	memcpy(before, radio.interface, sizeof(before));
	if (nl80211_get_interface(&radio.nl, radio.self.ifindex, &seen) == 0)
		radio.self = seen;	/* channels change */
	memset(radio.interface, 0, sizeof(radio.interface));
	radio.interfaces = radio.measured_count = 0;
	radio.more_radios = false;
	radio.links[0] = '\0';
	radio.unlisted = nl80211_get_interfaces(&radio.nl, radio.self.wiphy, on_interface, before) < 0;
	if (radio.unlisted) {
		memcpy(radio.interface, before, sizeof(before));
		radio.interfaces = count;
		radio.measured_count = measured;
		return;
	}
	/* the list may lack one */
	for (; changed() && old->ifindex; old++)
		if (!listed(radio.interface, old->ifindex) && nl80211_get_interface(&radio.nl, old->ifindex, &seen) == 0)
			on_interface(before, &seen);
}

static struct seen *place_of(struct seen *table, int ifindex, const uint8_t mac[6])
{
	unsigned at = (mac[3] << 16 | mac[4] << 8 | mac[5]) * 2654435761U >> 23;

	for (unsigned i = 0; i < STATIONS_MAX; i++, at = (at + 1) % STATIONS_MAX)
		if (!table[at].ifindex || (table[at].ifindex == ifindex && memcmp(table[at].mac, mac, 6) == 0))
			return &table[at];
	return NULL;
}

static void on_station(void *data, const struct nl80211_station *s)
{
	int ifindex = *(int *)data;
	struct seen *before = place_of(radio.seen[!radio.now], ifindex, s->mac);
	struct seen *after = place_of(radio.seen[radio.now], ifindex, s->mac);
	uint32_t least = CONTENTION_CLIENT_BPS / 8 * radio.span / 1000;
	bool sends, receives;

	if (!s->authorized || !after)
		return;
	*after = (struct seen){
		.ifindex = ifindex, .aggregates = s->aggregates, .rx_bytes = s->rx_bytes, .tx_bytes = s->tx_bytes,
		.tx_packets = s->tx_packets, .tx_retries = s->tx_retries,
	};
	memcpy(after->mac, s->mac, 6);
	/* a station that has returned counts from 0 */
	if (!before || !before->ifindex || after->tx_packets - before->tx_packets > INT32_MAX ||
	    after->tx_retries - before->tx_retries > INT32_MAX)
		return;
	after->aggregates |= before->aggregates;	/* a legacy rate now and then does not mean that it cannot aggregate */
	sends = after->rx_bytes - before->rx_bytes > least;
	receives = after->tx_bytes - before->tx_bytes > least;
	radio.frames += after->tx_packets - before->tx_packets;
	radio.retries += after->tx_retries - before->tx_retries;
	radio.sample.bytes += after->rx_bytes - before->rx_bytes + after->tx_bytes - before->tx_bytes;
	if (!sends && !receives)
		return;
	radio.sample.contenders += sends;
	radio.sample.exchanging++;
	radio.sample.aggregating += after->aggregates;
	radio.without_wmm += !s->wmm;
	if (s->expected_kbit) {
		radio.kbit += s->expected_kbit;
		radio.kbit_of++;
	}
}

static void measure(uint64_t now, int busy_permille)
{
	radio.span = now - radio.ticked_at;
	radio.ticked_at = now;
	radio.sample = (struct contention_sample){ .busy_permille = busy_permille };
	radio.kbit = radio.kbit_of = radio.frames = radio.retries = 0;
	radio.without_wmm = 0;
	radio.now = !radio.now;
	memset(radio.seen[radio.now], 0, sizeof(radio.seen[radio.now]));
	for (unsigned i = 0; i < radio.measured_count; i++)
		nl80211_get_stations(&radio.nl, radio.measured[i], on_station, &radio.measured[i]);
	radio.sample.kbit = radio.kbit_of ? radio.kbit / radio.kbit_of : 0;
	radio.counts_retries |= radio.retries;
	radio.sample.failed_permille = radio.counts_retries && radio.frames >= FRAMES_MIN ?
		(int)(radio.retries * 1000 / (radio.frames + radio.retries)) : CONTENTION_UNKNOWN;
}

/* What is set */

static struct hostapd_windows larger(const struct hostapd_windows *own, unsigned exponent)
{
	/* a station rejects CWmax below CWmin; one value serves all steps, and is the usual one */
	unsigned max = CONTENTION_EXPONENT_MAX;

	return (struct hostapd_windows){
		.be_min = own->be_min > exponent ? own->be_min : exponent,
		.be_max = own->be_max > max ? own->be_max : max,
		.bk_min = own->bk_min > exponent ? own->bk_min : exponent,
		.bk_max = own->bk_max > max ? own->bk_max : max,
	};
}

/* The driver has refused an access point's own window. Only the first one counts: several would take turns in the log. */
static void refused_window(const struct interface *at, uint64_t now)
{
	if (now < radio.fixed_until)
		return;
	problem("%s: own window: %s", at->name, radio.nl.error);
	radio.answers = false;
	radio.tried_at = now;
	radio.fixed_until = now + (LOOK_MS << radio.refusals);
	radio.refusals += radio.refusals < REFUSALS_MAX;
}

/* A driver is asked by the window that it has: only when it can set one need no client take turns. */
static bool still_refused(const struct interface *at, uint64_t now)
{
	if (!radio.refusals || hostapd_set_queue(&radio.nl, at->ifindex, &at->own.queue, 0) >= 0)
		return false;
	refused_window(at, now);
	return true;
}

/*
 * Announces windows to clients on all interfaces, and sets the access point's own;
 * exponent 0: the operator's. Calls of clients would be later if only the clients
 * waited longer, so without a driver that can set its own window, none is announced.
 */
static void announce(unsigned exponent, uint64_t now)
{
	radio.asked_at = now;
	radio.expected = 0;	/* one that has restarted knows nothing of earlier messages */
	radio.undone = radio.unlisted;
	for (unsigned i = 0; i < radio.interfaces; i++) {
		struct interface *at = &radio.interface[i];
		const struct hostapd_windows *own = &at->own.windows;
		unsigned its = at->left ? 0 : exponent;
		struct hostapd_windows windows = its ? larger(own, its) : *own;
		bool max = own->be_max < CONTENTION_EXPONENT_MAX || own->bk_max < CONTENTION_EXPONENT_MAX;
		int sent, refused = hostapd_set_queue(&radio.nl, at->ifindex, &at->own.queue, its ? radio.contention.ap_exponent : 0);

		if (!refused) {
			radio.sets_queue |= its;
		} else if (its && refused == HOSTAPD_ABSENT) {
			continue;	/* it has no clients */
		} else if (its) {
			refused_window(at, now);
			continue;
		} else if (radio.sets_queue && refused != HOSTAPD_ABSENT) {
			radio.undone = true;
		}
		sent = hostapd_announce(radio_hostapd.fd, at->name, &windows, !its, max);
		if (sent > 0) {
			radio.expected += sent;
		} else {
			radio.undone |= errno == EAGAIN;
			if (radio.answers)
				problem("%s: hostapd: %s", at->name, strerror(errno));
			radio.answers = false;
		}
	}
	if (exponent && now >= radio.fixed_until)
		radio.refusals = 0;
	radio.announced = exponent;
	radio.announced_at = now;
	radio.owing = !exponent && (radio.expected || radio.undone);
}

/*
 * Takes answers as they come, as a socket holds only ten (net.unix.max_dgram_qlen), fewer than
 * the answers of three interfaces. With the next one hostapd would wait, and all its clients with it.
 */
static void answers_readable(struct wifirr *w)
{
	struct hostapd_answers answers = hostapd_collect(radio_hostapd.fd, 0, 0);

	(void)w;
	radio.came.done += answers.done;
	radio.came.refused += answers.refused;
}

/* Checks hostapd's answers to the last messages: whether it has applied them on all interfaces. */
static void look_at_hostapd(struct wifirr *w, uint64_t now)
{
	struct hostapd_answers answers;

	answers_readable(w);
	answers = radio.came;
	radio.came = (struct hostapd_answers){ 0 };
	if (answers.refused || (radio.expected > answers.done && now - radio.asked_at >= ANSWER_MAX_MS)) {
		problem(answers.refused ? "hostapd refuses to change the windows" : "hostapd does not answer");
		radio.answers = false;
		radio.expected = 0;
	} else if (radio.expected && radio.expected <= answers.done) {
		radio.owing &= radio.undone;
		radio.answers = now >= radio.fixed_until && !radio.owing;
		if (radio.answers && !radio.no_lease)
			problem("%s", "");
		radio.expected = 0;
	} else if (radio.expected) {
		radio.expected -= answers.done;
		return;
	}
	if (radio.announced || radio.owing || (radio.tried_at && now - radio.tried_at < LOOK_MS))
		return;
	radio.tried_at = now;
	find_interfaces();
	if (now < radio.fixed_until)
		return;
	/* each link has windows of its own */
	if (radio.links[0]) {
		problem("%s: has links (MLO)", radio.links);
		radio.answers = false;
		return;
	}
	for (unsigned i = 0; i < radio.interfaces; i++) {
		struct interface *at = &radio.interface[i];

		if (at->own.without_wmm) {
			problem("%s: WMM is off", at->name);
			break;	/* several would take turns in the log */
		}
		if (still_refused(at, now))
			break;
		if (hostapd_ping(radio_hostapd.fd, at->name) < 0) {
			if (errno == EAGAIN)
				problem("hostapd does not answer");	/* nor takes anything any more */
			else
				problem("%s: no control socket of hostapd: %s", at->name, strerror(errno));
			break;
		}
		radio.expected++;
	}
	radio.asked_at = now;
	/* windows apply to a radio: to all of its access points or to none */
	if (radio.expected < radio.interfaces || !radio.interfaces) {
		radio.answers = false;
		radio.expected = 0;
	}
	if (!radio.interfaces)
		problem("%s: not an access point", w->config.device);
}

static void set_windows(uint64_t now)
{
	const struct contention *c = &radio.contention;
	unsigned wanted = c->exponent > c->config.own_exponent ? c->exponent : 0;

	if (wanted == radio.announced && ((!wanted && !radio.owing) ||
					  now - radio.announced_at < (wanted ? ANNOUNCE_MS : RETRY_MS)))
		return;
	if (!wanted || wanted == radio.announced)
		find_interfaces();	/* also rereads the operator's configuration */
	if (wanted && !held(LEASE_WINDOWS))
		return;
	announce(wanted, now);
}

/* A given threshold is set during turns and larger windows, where clients aggregate. With auto, contention.c decides. */
static bool wants_rts(const struct wifirr *w)
{
	const struct contention *c = &radio.contention;
	bool aggregate = 2 * c->sample.aggregating > c->sample.exchanging;
	bool on = radio.rts != radio.lease.rts;

	if (w->config.rts == RTS_AUTO)
		return c->rts;
	if (w->config.rts == RTS_OFF || w->policy.paused || w->config.policy.engage == POLICY_DRY_RUN)
		return false;
	return (w->policy.scheduling || radio.announced) && (aggregate || on);
}

/* What another program has set since ("wifi reload") is the operator's own threshold now. */
static bool rts_replaced(void)
{
	struct nl80211_wiphy info;

	if (nl80211_get_wiphy(&radio.nl, radio.self.wiphy, &info) < 0 || info.rts == radio.rts)
		return false;
	radio.lease.rts = radio.rts = info.rts;
	return true;
}

static void set_rts(struct wifirr *w, uint64_t now)
{
	uint32_t wanted = !wants_rts(w) ? radio.lease.rts : w->config.rts == RTS_AUTO ? RTS_BYTES : (uint32_t)w->config.rts;
	bool again = wanted == radio.rts_wanted;

	if (again && now - radio.rts_looked_at < LOOK_MS)
		return;
	radio.rts_wanted = wanted;
	radio.rts_looked_at = now;
	if (rts_replaced() || wanted == radio.rts || (wanted != radio.lease.rts && !held(LEASE_RTS)))
		return;
	if (nl80211_set_rts(&radio.nl, radio.self.wiphy, wanted) == 0)
		radio.rts = wanted;
	else if (!again)
		logmsg(LOG_WARNING, "%s: RTS threshold %u: %s", w->config.device, wanted, radio.nl.error);
}

static unsigned exponent_of(unsigned window)
{
	unsigned exponent = 0;

	while (window >> exponent)
		exponent++;
	return exponent;
}

static void configure(struct wifirr *w)
{
	static const struct hostapd_own none;
	const struct hostapd_own *own = &none;
	struct contention_config config;

	for (unsigned i = 0; i < radio.interfaces; i++)
		if (!radio.interface[i].left)
			own = &radio.interface[i].own;
	config = (struct contention_config){
		.windows = w->config.windows && radio.answers && !w->policy.paused &&
			w->config.policy.engage == POLICY_AUTO && w->config.policy.mode == POLICY_BACKLOG,
		/* other radios of the wiphy would have the same threshold */
		.rts = w->config.rts == RTS_AUTO && !w->policy.paused && w->config.policy.engage != POLICY_DRY_RUN &&
			!radio.more_radios && radio.lease.rts > RTS_BYTES,
		.own_exponent = own->windows.be_min,
		.ap_min = exponent_of(own->queue.cwmin),
		.ap_max = exponent_of(own->queue.cwmax),
		.busy_permille = w->config.policy.busy_permille,
	};

	contention_configure(&radio.contention, &config);
}

/* Takes over the radio, and restores what a killed wifirrd has left on it. */
static bool own_radio(struct wifirr *w, uint64_t now, unsigned wait)
{
	struct nl80211_wiphy info;
	unsigned left;

	if (radio_lock >= 0)
		return true;
	if (radio.tried_at && now - radio.tried_at < RETRY_MS)
		return false;
	radio.tried_at = now;
	radio_lock = lease_take(radio.path, wait);
	radio.taken = radio_lock < 0 && errno == EWOULDBLOCK;
	if (radio_lock < 0) {
		problem("%s: %s", radio.path, radio.taken ? "another wifirrd controls this radio" : strerror(errno));
		return false;
	}
	left = lease_restore(radio_lock, &radio.lease.rts);
	if (left)
		logmsg(LOG_WARNING, "%s: cannot restore everything that a killed wifirrd has changed", radio.path);
	if (nl80211_get_wiphy(&radio.nl, radio.self.wiphy, &info) < 0) {
		problem("%s: %s", w->config.device, radio.nl.error);
		close(radio_lock);
		radio_lock = -1;
		return false;
	}
	problem("%s", "");
	/* Tried until it is done; then the lease no longer names what may change. */
	radio.lease.noted = left & (LEASE_WINDOWS | LEASE_RTS);
	radio.owing = left & LEASE_WINDOWS;
	if (radio.owing)
		find_interfaces();
	radio.rts = info.rts;
	if (!(left & LEASE_RTS))
		radio.lease.rts = info.rts;
	radio.tried_at = 0;
	return true;
}

uint64_t radio_tick(struct wifirr *w, uint64_t now, int busy_permille)
{
	bool crowd = radio.announced || radio.sample.contenders > 2;
	uint64_t due = radio.ticked_at + (crowd ? CONTENTION_TICK_MS : IDLE_MS);

	if (!radio.open)
		return UINT64_MAX;
	if (now < due)
		return crowd ? due : UINT64_MAX;
	if (!own_radio(w, now, 0)) {
		policy_set_aside(&w->policy, radio.taken && lease_has_windows(radio.path) ? POLICY_ASIDE_WINDOWS : POLICY_ASIDE_NOT);
		return UINT64_MAX;
	}
	radio.no_lease &= crowd;
	look_at_hostapd(w, now);
	configure(w);
	measure(now, busy_permille);
	contention_tick(&radio.contention, now, &radio.sample);
	set_windows(now);
	set_rts(w, now);
	if (!radio.announced && !radio.owing)
		release(LEASE_WINDOWS);
	if (radio.rts == radio.lease.rts)
		release(LEASE_RTS);
	policy_set_aside(&w->policy, radio.contention.instead_of_turns ? POLICY_ASIDE_WINDOWS :
			 w->weights_idle ? POLICY_ASIDE_NO_EFFECT : POLICY_ASIDE_NOT);
	return crowd ? now + CONTENTION_TICK_MS : UINT64_MAX;
}

void radio_start(struct wifirr *w)
{
	struct contention_config config = { .windows = false };

	if (nl80211_open(&radio.nl) < 0)
		return;
	radio_hostapd.fd = hostapd_open();
	if (watch_add(&radio_hostapd) < 0 || nl80211_get_interface(&radio.nl, w->ifindex, &radio.self) < 0) {
		radio_stop(w);
		return;
	}
	lease_path(radio.path, radio.self.wiphy);
	radio.lease.wiphy = radio.self.wiphy;
	contention_init(&radio.contention, &config);
	radio.lease.rts = radio.rts = NL80211_RTS_OFF;
	radio.open = true;
	own_radio(w, now_ms(), w->config.backend == BACKEND_HTB ? 0 : LOCK_WAIT_MS);
}

bool radio_taken(void)
{
	return radio.taken;
}

int radio_hold_weights(struct wifirr *w, bool on, char *why, size_t size)
{
	if (!on) {
		release(LEASE_WEIGHTS);
		return 0;
	}
	if (radio_lock < 0)
		radio.tried_at = 0;	/* another wifirrd may be about to end */
	if (!radio.open || !own_radio(w, now_ms(), LOCK_WAIT_MS)) {
		snprintf(why, size, "%s", radio.open ? radio.problem : "the device's radio is not known");
		return -1;
	}
	if (radio.lease.active != w->config.weight_active || radio.lease.waiting != w->config.weight_waiting)
		radio.lease.noted &= ~LEASE_WEIGHTS;
	radio.lease.active = w->config.weight_active;
	radio.lease.waiting = w->config.weight_waiting;
	return hold(LEASE_WEIGHTS, why, size);
}

bool radio_stop(struct wifirr *w)
{
	unsigned owed = radio.lease.noted & LEASE_WEIGHTS;	/* the backend has not restored them */

	if (radio_lock >= 0 && (radio.announced || radio.owing)) {
		hostapd_collect(radio_hostapd.fd, 0, 0);
		find_interfaces();
		announce(0, 0);
		if (radio.undone || hostapd_collect(radio_hostapd.fd, radio.expected, HOSTAPD_ANSWER_MS).done < radio.expected)
			owed |= LEASE_WINDOWS;
	}
	if (radio_lock >= 0 && radio.rts != radio.lease.rts && !rts_replaced() &&
	    nl80211_set_rts(&radio.nl, radio.self.wiphy, radio.lease.rts) < 0)
		owed |= LEASE_RTS;
	if (owed)
		logmsg(LOG_WARNING, "%s: cannot restore everything", w->config.device);
	release(~owed);
	if (radio_lock >= 0)
		close(radio_lock);
	watch_del(&radio_hostapd);
	if (radio_hostapd.fd >= 0)
		close(radio_hostapd.fd);
	nl80211_close(&radio.nl);
	memset(&radio, 0, sizeof(radio));
	radio_lock = radio_hostapd.fd = -1;
	policy_set_aside(&w->policy, POLICY_ASIDE_NOT);
	return owed;
}

void radio_status(struct radio_status *status)
{
	const struct contention *c = &radio.contention;
	unsigned exponent = radio.announced ? radio.announced : c->config.own_exponent;

	*status = (struct radio_status){ .rts = NL80211_RTS_OFF };
	if (!radio.open)
		return;
	status->contention = c;
	status->cwmin = (1U << exponent) - 1;
	status->ap_cwmin = (1U << (radio.announced ? c->ap_exponent : c->config.ap_min)) - 1;
	status->larger = radio.announced;
	status->interfaces = radio.interfaces;
	status->without_wmm = radio.without_wmm;
	status->rts = radio.rts;
	snprintf(status->problem, sizeof(status->problem), "%s", radio.problem);
}
