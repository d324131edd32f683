/* SPDX-License-Identifier: Apache-2.0 */
/* The life cycle of the device: it appears, is scheduled tick by tick, changes, and vanishes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>
#include <time.h>

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include "nl80211.h"
#include "radio.h"
#include "wifirrd.h"

#define EXPECTED_REFRESH_MS 60000	/* between reads of the stations' expected throughput */
#define EXPECTED_SHAPING_MS 1000	/* the same while htb shapes without another link rate */
#define RECOVER_MS 1000			/* between attempts to set up the backend again */
#define SURVEYED_MS 50			/* between checks whether the driver has answered a survey */
#define RECOVER_TRIES 5			/* failed attempts in a row before giving up */

static struct {
	struct mnl_socket *requests, *events;
	struct watch links;
	bool attached, reload;
	bool changed;			/* no backend has started with the current options yet */
	struct config before;		/* the options that the backend last started with */
	unsigned failures;
	uint64_t recovered_at, expected_at;
} device;

/* The device's attributes from its RTM_NEWLINK. */
static int link_info(const struct nlmsghdr *nlh, void *data)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *tb[IFLA_MTU + 1];
	struct wifirr *w = data;
	uint32_t mtu;

	if (!netlink_parse(nlh, sizeof(*ifi), tb, IFLA_MTU))
		return MNL_CB_OK;
	w->ifindex = ifi->ifi_index;
	mtu = nl80211_u32(tb[IFLA_MTU]);
	if (mtu && mtu != w->mtu) {
		w->mtu = mtu;
		w->apply_all = true;	/* the queues segment packets to the MTU */
		tick_in(0);
	}
	if (tb[IFLA_ADDRESS] && mnl_attr_get_payload_len(tb[IFLA_ADDRESS]) == 6)
		memcpy(w->mac, mnl_attr_get_payload(tb[IFLA_ADDRESS]), 6);
	return MNL_CB_OK;
}

/*
 * Looks up the device by its name. Sets ifindex (0: no such device) and the other
 * attributes. A dump of all devices could miss it while others come and go. Returns a
 * negative errno if the kernel gave no answer; then all stays as it is.
 */
static int find_device(struct wifirr *w)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	int before = w->ifindex, rc;

	w->ifindex = 0;
	nlh->nlmsg_type = RTM_GETLINK;
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(nlh, IFLA_IFNAME, w->config.device);
	rc = rtnl_ask(device.requests, nlh, NLM_F_ACK, link_info, w);
	if (rc == 0 || rc == -ENODEV)
		return 0;
	w->ifindex = before;
	return rc;
}

static int backend_try(struct wifirr *w, const struct backend *backend, char *reason, size_t size)
{
	char why[224];

	options_turns(&w->config, backend == &htb_backend);
	policy_configure(&w->policy, &w->config.policy);
	if (backend->start(w, why, sizeof(why)) < 0) {
		snprintf(reason, size, "%s: %s", backend->name, why);
		return -1;
	}
	w->backend = backend;
	w->apply_all = true;
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].used)
			backend_add(w, id);
	if (backend->flush)
		backend->flush(w);
	return 0;
}

static int backend_start(struct wifirr *w, char *reason, size_t size)
{
	w->refused[0] = '\0';
	if (w->config.backend != BACKEND_HTB) {
		if (backend_try(w, &airtime_backend, reason, size) == 0)
			return 0;
		if (w->config.backend == BACKEND_AIRTIME)
			return -1;
		snprintf(w->refused, sizeof(w->refused), "%s", reason);
		logmsg(LOG_INFO, "%s", reason);
	}
	return backend_try(w, &htb_backend, reason, size);
}

void device_stop(struct wifirr *w)
{
	bool owing;

	if (!device.attached)
		return;
	owing = backend_stop(w);
	owing |= radio_stop(w);
	survey_stop();
	guard_stop(owing);
	wifi_stations_stop();
	stations_stop();
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (!w->station[id].used)
			continue;
		policy_del(&w->policy, id);
		w->station[id] = (struct station){ .used = false };
	}
	/* nobody takes turns any more; the next start configures it again */
	w->policy.config.engage_delay_ms = 0;
	policy_tick(&w->policy, now_ms(), POLICY_BUSY_UNKNOWN);
	device.attached = w->lost = false;
}

int device_start(struct wifirr *w, char *reason, size_t size)
{
	device.attached = true;
	*reason = '\0';
	w->wireless = w->config.match == MATCH_MAC && wifi_stations_start(w, reason, size) == 0;
	if (*reason)
		goto fail;
	if (htb_remains(w) < 0)
		logmsg(LOG_WARNING, "%s: cannot restore everything that a killed wifirrd has changed", w->config.device);
	/* nl80211 knows an access point's clients best; without it, use the kernel's tables */
	if (!w->wireless && stations_start(w, reason, size) < 0)
		goto fail;
	if (w->wireless) {
		survey_start(w);
		radio_start(w);
	}
	/* weights act on the whole radio */
	if (w->wireless && radio_taken() && w->config.backend != BACKEND_HTB) {
		snprintf(reason, size, "--device %s: another wifirrd schedules its radio, with all its interfaces", w->config.device);
		goto fail;
	}
	if (backend_start(w, reason, size) < 0)
		goto fail;
	wifi_stations_resync(w);
	classify_warn_offload(w);
	if (w->warning[0])
		logmsg(LOG_WARNING, "%s: %s", w->config.device, w->warning);
	logmsg(LOG_NOTICE, "%s: scheduling by %s", w->config.device, w->backend->name);
	return 0;
fail:
	device_stop(w);
	return -1;
}

static int link_event(const struct nlmsghdr *nlh, void *data)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *tb[IFLA_IFNAME + 1];
	struct wifirr *w = data;
	bool named;

	if (!netlink_parse(nlh, sizeof(*ifi), tb, IFLA_IFNAME))
		return MNL_CB_OK;
	if (nlh->nlmsg_type == RTM_DELLINK && ifi->ifi_index == w->ifindex)
		device.reload = ifi->ifi_family != AF_BRIDGE || device.reload;
	if (nlh->nlmsg_type != RTM_NEWLINK)
		return MNL_CB_OK;
	if (ifi->ifi_index == w->ifindex)
		link_info(nlh, w);
	else if (w->wireless && ifi->ifi_family != AF_BRIDGE)
		wifi_stations_look_again();
	named = tb[IFLA_IFNAME] && strcmp(mnl_attr_get_str(tb[IFLA_IFNAME]), w->config.device) == 0;
	/* our device appeared, or was renamed */
	if (named != (ifi->ifi_index == w->ifindex))
		device.reload = true;
	return MNL_CB_OK;
}

static void link_readable(struct wifirr *w)
{
	char buf[16384] __attribute__((aligned(NLMSG_ALIGNTO)));

	for (unsigned i = 0; i < 64; i++) {
		ssize_t len = recv(device.links.fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (len < 0 && errno == ENOBUFS) {
			device.reload = true;
			continue;
		}
		if (len < 0)
			break;
		mnl_cb_run(buf, len, 0, 0, link_event, w);
	}
	if (device.reload)
		tick_in(0);
}

/* What could not be set up is tried again, but not for ever: a new device may not be usable at once. */
static void not_set_up(struct wifirr *w, const char *reason)
{
	if (++device.failures < RECOVER_TRIES) {
		logmsg(LOG_WARNING, "%s (trying again)", reason);
		return;
	}
	logmsg(LOG_ERR, "%s", reason);
	w->failed = true;
	loop_end();
}

static void take_options(struct wifirr *w, const struct config *config)
{
	w->config = *config;
	log_verbosity(config->verbose);
	stations_exempt(w);
}

/* If nothing can be set up with new options, those before them are used. */
static bool set_up(struct wifirr *w, int (*start)(struct wifirr *w, char *reason, size_t size))
{
	bool changed = device.changed;
	char reason[256];
	int started;

	device.changed = false;
	started = start(w, reason, sizeof(reason));
	if (started < 0 && changed) {
		device_options_refused(w, reason);
		take_options(w, &device.before);
		started = start(w, reason, sizeof(reason));
	}
	if (started < 0) {
		not_set_up(w, reason);
		return false;
	}
	device.failures = 0;
	return true;
}

/* The device appeared, vanished or changed its identity, or all must be read again. */
static void reload(struct wifirr *w)
{
	int before = w->ifindex;

	device.reload = find_device(w) < 0;
	if (device.attached && w->ifindex == before)
		return;
	if (device.attached) {
		logmsg(LOG_NOTICE, "%s: the device has disappeared", w->config.device);
		/* if it has only another name now, its queues are still there; otherwise nothing is left to restore */
		w->ifindex = w->backend == &htb_backend ? before : 0;
		device_stop(w);
		w->ifindex = 0;
		device.reload = find_device(w) < 0;
	}
	if (w->ifindex && !set_up(w, device_start))
		device.reload = true;
}

/* Sets up the backend again, after another program removed its settings, or with new options. */
static void recover(struct wifirr *w)
{
	w->lost = false;
	device.recovered_at = now_ms();
	backend_stop(w);
	htb_remains(w);		/* what it could not remove */
	w->restarts += !device.changed;
	if (set_up(w, backend_start))
		wifi_stations_resync(w);
	else
		w->lost = true;
}

/* For tests and debugging: logs every change. */
static void trace_levels(const struct wifirr *w, const uint16_t *ids, size_t n)
{
	char text[ADDR_TEXT];
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	for (size_t i = 0; i < n; i++)
		logmsg(LOG_DEBUG, "%lld.%06ld %s %s", (long long)t.tv_sec, t.tv_nsec / 1000,
		       addr_text(&w->station[ids[i]].addr, text),
		       policy_level_name(w->policy.client[ids[i]].level));
}

/* An idle station's rate says nothing about its rate under load, so htb needs fresh values. */
static unsigned expected_refresh_ms(const struct wifirr *w)
{
	bool shaping = w->backend == &htb_backend && !w->config.rate_kbit &&
		(w->policy.scheduling || w->policy.demanding > w->config.policy.active);

	return shaping ? EXPECTED_SHAPING_MS : EXPECTED_REFRESH_MS;
}

/* The growth of a counter that may restart at 0. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

void device_tick(struct wifirr *w)
{
	static uint16_t changed[POLICY_CLIENTS_MAX];
	uint64_t now, begun, radio_due;
	bool scheduling, surveyed;
	int busy;
	size_t n = 0;

	if (device.reload)
		reload(w);
	/* requests to nl80211 must wait for the survey's end */
	surveyed = survey_pending();
	if (surveyed && (w->lost || (w->backend && w->backend->nl80211))) {
		tick_in(SURVEYED_MS);
		return;
	}
	if (w->lost && device.attached && (!device.recovered_at || now_ms() - device.recovered_at >= RECOVER_MS))
		recover(w);
	if (w->failed)
		return;
	if (w->lost)
		tick_at(device.recovered_at + RECOVER_MS);
	else if (device.reload)
		tick_in(RECOVER_MS);
	if (w->lost || !w->backend)
		return;

	guard_start(NULL, 0);	/* it may have been killed; there will be another try */
	stations_refresh(w);
	if (w->backend->flush && w->backend->flush(w) < 0)
		backend_lost(w, "classification");
	now = now_ms();
	if (w->wireless && !surveyed && now - device.expected_at >= expected_refresh_ms(w)) {
		device.expected_at = now;
		wifi_stations_resync(w);
	}
	if (w->backend->read(w) < 0)
		backend_lost(w, w->backend->name);
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		struct station *s = &w->station[id];

		if (!s->used)
			continue;
		policy_sample(&w->policy, id, s->waiting, grown(s->bytes, s->bytes_before));
		policy_received(&w->policy, id, grown(s->received, s->received_before));
		s->bytes_before = s->bytes;
		s->received_before = s->received;
	}

	now = now_ms();
	scheduling = w->policy.scheduling;
	busy = survey_get().busy_permille;
	radio_due = surveyed ? UINT64_MAX : radio_tick(w, now, busy);
	policy_tick(&w->policy, now, busy);
	history_look(&w->history, now, (int[]){
		[HISTORY_DEMANDING] = w->policy.demanding * 10,
		[HISTORY_SERVED] = (w->policy.scheduling ? w->policy.active : w->policy.demanding) * 10,
		[HISTORY_BUSY] = busy,
		[HISTORY_WASTED] = survey_get().wasted_permille,
	});
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (!w->station[id].used)
			continue;
		if (w->policy.client[id].demand)
			w->station[id].last_demand = now;
		if (w->policy.client[id].changed || w->apply_all)
			changed[n++] = id;
	}
	w->apply_all = false;
	if (n || scheduling != w->policy.scheduling) {
		begun = now_ns();
		if (w->backend->apply(w, changed, n) < 0)
			backend_lost(w, w->backend->name);
		w->change_ns += now_ns() - begun;
		w->changes++;
	}
	if (w->config.verbose > 1)
		trace_levels(w, changed, n);
	survey_ask();
	if (!w->lost)
		tick_at(radio_due < w->policy.wake_at ? radio_due : w->policy.wake_at);
}

/*
 * Whether the backend can take the new options without a new setup. A new setup
 * drops the queued packets, and TCP takes seconds to recover from that.
 */
static bool in_place(const struct config *old, const struct config *new)
{
	return old->backend == new->backend && old->match == new->match &&
		old->exempt_voice == new->exempt_voice && !old->rate_kbit == !new->rate_kbit;
}

void device_options_refused(struct wifirr *w, const char *reason)
{
	snprintf(w->reload_error, sizeof(w->reload_error), "%s", reason);
	logmsg(LOG_ERR, "%s; %s: keeping the previous options", reason, w->config.device);
}

void device_options(struct wifirr *w, struct config *config)
{
	w->reload_error[0] = '\0';
	device.reload = true;
	tick_in(0);
	if (w->backend && in_place(&w->config, config)) {
		config->policy.next_lead_ms = w->policy.config.next_lead_ms;	/* the backend's */
		config->policy.soon_lead_ms = w->policy.config.soon_lead_ms;
		options_turns(config, w->backend == &htb_backend);
		take_options(w, config);
		policy_configure(&w->policy, &config->policy);
		w->apply_all = true;
		return;
	}
	if (!device.changed)
		device.before = w->config;
	device.changed = true;
	w->lost |= device.attached;
	take_options(w, config);
	if (config->match != device.before.match)
		device_stop(w);	/* clients have other keys now */
}

int device_open(struct wifirr *w)
{
	device.requests = rtnl_open(NETLINK_ROUTE, 0);
	device.events = rtnl_open(NETLINK_ROUTE, RTMGRP_LINK);
	if (!device.requests || !device.events)
		return -1;
	device.links = (struct watch){ .fd = mnl_socket_get_fd(device.events), .readable = link_readable };
	if (watch_add(&device.links) < 0)
		return -1;
	return find_device(w);
}
