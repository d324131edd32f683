/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of clients, and the clients behind a device as the kernel's bridge,
 * neighbour and route tables show them.
 *
 * Events wait in their socket until the next tick: neighbours change state all
 * the time, and no event is worth a wake-up. Events only add clients. Removals,
 * lost events and anything doubtful cause a new dump, at most one per second.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>

#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "nl80211.h"
#include "wifirrd.h"

/* Only a client idle for at least this long is dropped to make room for a new one; ms. Limits floods of made-up addresses. */
#define EVICT_IDLE_MS 10000
/* Most events processed at a time; after more of them, the tables are dumped. */
#define EVENTS_MAX 2048
#define REFRESH_MS 1000

static struct {
	struct mnl_socket *nl, *events;
	bool refresh;
	uint64_t refreshed;
} st;

struct addr addr_mac(const uint8_t mac[6])
{
	struct addr a = { .type = ADDR_MAC };

	memcpy(a.bytes, mac, 6);
	return a;
}

/* Six pairs of digits, with colons between. */
static bool is_mac(const char *text)
{
	if (strlen(text) != 17)
		return false;
	for (unsigned i = 0; i < 17; i++)
		if (i % 3 == 2 ? text[i] != ':' : !isxdigit((unsigned char)text[i]))
			return false;
	return true;
}

int addr_parse(struct addr *addr, const char *text)
{
	*addr = (struct addr){ .type = ADDR_MAC };
	if (is_mac(text)) {
		for (unsigned i = 0; i < 6; i++)
			addr->bytes[i] = strtoul(text + 3 * i, NULL, 16);
		return 0;
	}
	addr->type = ADDR_IPV4;
	if (inet_pton(AF_INET, text, addr->bytes) == 1)
		return 0;
	addr->type = ADDR_IPV6;
	return inet_pton(AF_INET6, text, addr->bytes) == 1 ? 0 : -1;
}

const char *addr_text(const struct addr *a, char text[ADDR_TEXT])
{
	if (a->type == ADDR_MAC)
		snprintf(text, ADDR_TEXT, "%02x:%02x:%02x:%02x:%02x:%02x", a->bytes[0], a->bytes[1],
			 a->bytes[2], a->bytes[3], a->bytes[4], a->bytes[5]);
	else
		inet_ntop(a->type == ADDR_IPV4 ? AF_INET : AF_INET6, a->bytes, text, ADDR_TEXT);
	return text;
}

static bool same(const struct addr *a, const struct addr *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static bool group_address(const struct addr *a)
{
	static const uint8_t zero[16];

	if (memcmp(a->bytes, zero, sizeof(zero)) == 0)
		return true;
	switch (a->type) {
	case ADDR_MAC: return a->bytes[0] & 1;
	case ADDR_IPV4: return a->bytes[0] >= 224;
	default: return a->bytes[0] == 0xff;
	}
}

/* Iterates over those of a host's other addresses that are in the mask. */
#define for_each_also(s, at, mask) \
	for (unsigned at = 0; (s)->also_used >> at; at++) \
		if ((s)->also_used & (mask) & 1 << at)

static bool has(const struct station *s, const struct addr *addr)
{
	for_each_also(s, at, ~0U)
		if (same(&s->also[at], addr))
			return true;
	return same(&s->addr, addr);
}

uint16_t station_find(const struct wifirr *w, const struct addr *addr)
{
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].used && has(&w->station[id], addr))
			return id;
	return POLICY_NONE;
}

static unsigned exemption(const struct wifirr *w, const struct station *s)
{
	for (unsigned i = 0; i < w->config.exempt_count; i++)
		if (has(s, &w->config.exempt[i].addr))
			return w->config.exempt[i].flags;
	return s->neighbour ? POLICY_CLIENT_NEIGHBOUR : 0;
}

void stations_exempt(struct wifirr *w)
{
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].used)
			policy_set_flags(&w->policy, id, exemption(w, &w->station[id]));
}

void station_seen(struct wifirr *w, uint16_t id, int ifindex, bool neighbour)
{
	struct station *s = &w->station[id];

	s->ifindex = ifindex;
	if (s->neighbour == neighbour)
		return;
	s->neighbour = neighbour;
	policy_set_flags(&w->policy, id, exemption(w, s));
}

static void station_drop(struct wifirr *w, uint16_t id)
{
	char text[ADDR_TEXT];

	logmsg(LOG_DEBUG, "client %s left", addr_text(&w->station[id].addr, text));
	backend_del(w, id);
	policy_del(&w->policy, id);
	w->station[id] = (struct station){ .used = false };
}

/* Drops the client that has been without demand for longest. */
static bool make_room(struct wifirr *w)
{
	uint64_t oldest = now_ms();
	uint16_t victim = POLICY_NONE;

	oldest = oldest > EVICT_IDLE_MS ? oldest - EVICT_IDLE_MS : 0;
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		const struct policy_client *c = &w->policy.client[id];

		if (c->flags || c->demand || w->station[id].last_demand >= oldest)
			continue;
		oldest = w->station[id].last_demand;
		victim = id;
	}
	if (victim == POLICY_NONE)
		return false;
	station_drop(w, victim);
	w->evicted++;
	return true;
}

uint16_t station_add(struct wifirr *w, const struct addr *addr, enum station_source source)
{
	struct station new = { .used = true, .sources = source, .addr = *addr };
	char text[ADDR_TEXT];
	uint16_t id;

	if (group_address(addr) || (addr->type == ADDR_MAC && memcmp(addr->bytes, w->mac, 6) == 0))
		return POLICY_NONE;
	id = station_find(w, addr);
	if (id != POLICY_NONE) {
		w->station[id].sources |= source;
		w->station[id].marked &= ~source;
		w->station[id].missed = false;
		return id;
	}
	if (w->policy.clients == POLICY_CLIENTS_MAX && !make_room(w)) {
		w->refused_stations++;
		return POLICY_NONE;
	}
	new.last_demand = now_ms();
	id = policy_add(&w->policy, exemption(w, &new));
	w->station[id] = new;
	logmsg(LOG_DEBUG, "client %s appeared", addr_text(addr, text));
	backend_add(w, id);
	return id;
}

void station_del(struct wifirr *w, const struct addr *addr, enum station_source source)
{
	uint16_t id = station_find(w, addr);

	if (id == POLICY_NONE)
		return;
	w->station[id].sources &= ~source;
	if (!w->station[id].sources)
		station_drop(w, id);
}

void station_mark(struct wifirr *w, enum station_source source)
{
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++) {
		w->station[id].marked |= w->station[id].sources & source;
		w->station[id].also_marked = source & STATION_NEIGH ? w->station[id].also_used : 0;
	}
}

/* Removes a host's other addresses that are in the mask. */
static void forget(struct wifirr *w, uint16_t id, unsigned mask)
{
	struct station *s = &w->station[id];

	if (!mask)
		return;
	st.refresh = true;	/* a route to one of them may remain: it is a client then */
	for_each_also(s, at, mask)
		backend_also(w, id, at, false);
	s->also_used &= ~mask;
	s->also_marked &= ~mask;
	policy_set_flags(&w->policy, id, exemption(w, s));
}

bool station_sweep(struct wifirr *w, enum station_source source)
{
	bool again = false;

	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		struct station *s = &w->station[id];

		if (!s->used)
			continue;
		forget(w, id, s->also_marked);
		if (!(s->marked & source))
			continue;
		/* the kernel counts places in a list: if another one leaves while it is read, one is left out */
		if (!(s->sources & ~s->marked) && !s->missed) {
			s->missed = again = true;
			continue;
		}
		st.refresh |= s->also_used;	/* its other addresses may still exist */
		s->marked &= ~source;
		s->sources &= ~source;
		if (!s->sources)
			station_drop(w, id);
	}
	return again;
}

/* Copies the attribute's value if it has exactly size bytes. */
static bool copy(void *data, const struct nlattr *attr, size_t size)
{
	if (!attr || mnl_attr_get_payload_len(attr) != size)
		return false;
	memcpy(data, mnl_attr_get_payload(attr), size);
	return true;
}

static bool has_ipv4(const struct station *s)
{
	for_each_also(s, at, ~0U)
		if (s->also[at].type == ADDR_IPV4)
			return true;
	return s->addr.type == ADDR_IPV4;
}

/*
 * Adds a neighbour's address. A host may have several addresses, but only one IPv4 address. A MAC with more stands for
 * several hosts (proxy ARP), and their IPv6 addresses cannot be attributed, so each address counts as a client.
 */
static void host_address(struct wifirr *w, const struct addr *addr, const uint8_t mac[6])
{
	uint16_t id, host = POLICY_NONE;
	unsigned hosts = 0;
	struct station *s;
	bool his;

	for (id = 0; id < POLICY_CLIENTS_MAX; id++) {
		s = &w->station[id];
		his = s->used && memcmp(s->mac, mac, 6) == 0;
		for_each_also(s, at, ~0U) {
			if (!same(&s->also[at], addr))
				continue;
			if (his) {
				s->also_marked &= ~(1 << at);
				return;
			}
			forget(w, id, 1 << at);	/* it was another host's */
			break;
		}
		hosts += his;
		host = his ? id : host;
	}
	if (hosts == 1 && station_find(w, addr) == POLICY_NONE) {
		s = &w->station[host];
		for (unsigned at = 0; at < ALSO_MAX && !(addr->type == ADDR_IPV4 && has_ipv4(s)); at++) {
			if (s->also_used & 1 << at)
				continue;
			s->also[at] = *addr;
			s->also_used |= 1 << at;
			policy_set_flags(&w->policy, host, exemption(w, s));
			backend_also(w, host, at, true);
			return;
		}
		if (addr->type == ADDR_IPV4)
			forget(w, host, ~0U);
	}
	id = station_add(w, addr, STATION_NEIGH);
	if (id != POLICY_NONE)
		memcpy(w->station[id].mac, mac, 6);
}

static void neighbour(struct wifirr *w, const struct nlmsghdr *nlh)
{
	const struct ndmsg *nd = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *tb[NDA_MASTER + 1];
	bool fdb = nd->ndm_family == AF_BRIDGE;
	struct addr addr = { .type = ADDR_MAC };

	if (!netlink_parse(nlh, sizeof(*nd), tb, NDA_MASTER) ||
	    (nd->ndm_ifindex != w->ifindex && (!fdb || (int)nl80211_u32(tb[NDA_MASTER]) != w->ifindex)))
		return;
	if (nlh->nlmsg_type == RTM_DELNEIGH) {
		st.refresh = true;
		return;
	}
	if (fdb) {
		/* permanent: the bridge's own address; self: the driver's filter, not a learnt client */
		if (nd->ndm_state & NUD_PERMANENT || nd->ndm_flags & NTF_SELF || w->config.match == MATCH_IP)
			return;
		if (copy(addr.bytes, tb[NDA_LLADDR], 6))
			station_add(w, &addr, STATION_FDB);
		return;
	}
	if (nd->ndm_family != AF_INET && nd->ndm_family != AF_INET6)
		return;
	if (!(nd->ndm_state & (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT))) {
		st.refresh = true;
		return;
	}
	if (!copy(addr.bytes, tb[NDA_LLADDR], 6) || addr.bytes[0] & 1)
		return;
	if (w->config.match == MATCH_IP) {
		bool v4 = nd->ndm_family == AF_INET;
		uint8_t mac[6];

		memcpy(mac, addr.bytes, 6);
		addr = (struct addr){ .type = v4 ? ADDR_IPV4 : ADDR_IPV6 };
		if (copy(addr.bytes, tb[NDA_DST], v4 ? 4 : 16) && !group_address(&addr))
			host_address(w, &addr, mac);
		return;
	}
	station_add(w, &addr, STATION_NEIGH);
}

/* Host routes over the device are clients behind a next hop, in a routed mesh. */
static void route(struct wifirr *w, const struct nlmsghdr *nlh)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(nlh);
	bool v4 = rt->rtm_family == AF_INET;
	struct addr addr = { .type = v4 ? ADDR_IPV4 : ADDR_IPV6 };
	const struct nlattr *tb[RTA_OIF + 1];

	if (!netlink_parse(nlh, sizeof(*rt), tb, RTA_OIF) || (!v4 && rt->rtm_family != AF_INET6) || rt->rtm_type != RTN_UNICAST ||
	    rt->rtm_dst_len != (v4 ? 32 : 128) || rt->rtm_flags & RTM_F_CLONED)
		return;
	if ((int)nl80211_u32(tb[RTA_OIF]) != w->ifindex || !copy(addr.bytes, tb[RTA_DST], v4 ? 4 : 16))
		return;
	if (nlh->nlmsg_type == RTM_DELROUTE)
		st.refresh = true;
	else
		station_add(w, &addr, STATION_ROUTE);
}

static int message(const struct nlmsghdr *nlh, void *data)
{
	switch (nlh->nlmsg_type) {
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		neighbour(data, nlh);
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		route(data, nlh);
		break;
	}
	return MNL_CB_OK;
}

static int dump(struct wifirr *w, int type, int family)
{
	char buf[128] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	/* a route's header is as long, and begins with the family, too */
	struct ndmsg *nd = mnl_nlmsg_put_extra_header(nlh, sizeof(*nd));

	nlh->nlmsg_type = type;
	nd->ndm_family = family;
	return rtnl_ask(st.nl, nlh, NLM_F_DUMP, message, w);
}

static void take_events(struct wifirr *w)
{
	char buf[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
	int fd = mnl_socket_get_fd(st.events);
	ssize_t len;

	for (unsigned i = 0; i < EVENTS_MAX; i++) {
		len = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (len < 0 && errno == ENOBUFS) {
			st.refresh = true;	/* events were lost */
			continue;
		}
		if (len < 0)
			return;
		mnl_cb_run(buf, len, 0, 0, message, w);
	}
	st.refresh = true;
}

void stations_refresh(struct wifirr *w)
{
	static const enum station_source sources = STATION_FDB | STATION_NEIGH | STATION_ROUTE;
	bool ip = w->config.match == MATCH_IP;
	uint64_t now = now_ms();
	int rc = 0;

	if (!st.nl || !w->ifindex)
		return;
	take_events(w);
	if (!st.refresh || (st.refreshed && now - st.refreshed < REFRESH_MS))
		return;
	st.refresh = false;
	st.refreshed = now;
	station_mark(w, sources);
	if (!ip)
		dump(w, RTM_GETNEIGH, AF_BRIDGE);	/* fails without a bridge module: no clients there */
	if ((rc = dump(w, RTM_GETNEIGH, AF_INET)) == 0)
		rc = dump(w, RTM_GETNEIGH, AF_INET6);
	if (ip && rc == 0 && (rc = dump(w, RTM_GETROUTE, AF_INET)) == 0)
		rc = dump(w, RTM_GETROUTE, AF_INET6);
	if (rc == -EAFNOSUPPORT || rc == -EOPNOTSUPP)
		rc = 0;		/* no IPv6 */
	if (rc < 0)
		st.refresh = true;	/* incomplete: drop no client, try again */
	else
		st.refresh |= station_sweep(w, sources);
}

int stations_start(struct wifirr *w, char *reason, size_t size)
{
	unsigned groups = RTMGRP_NEIGH;

	if (w->config.match == MATCH_IP)
		groups |= RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
	st.nl = rtnl_open(NETLINK_ROUTE, 0);
	st.events = rtnl_open(NETLINK_ROUTE, groups);
	if (!st.nl || !st.events) {
		snprintf(reason, size, "netlink: %s", strerror(errno));
		stations_stop();
		return -1;
	}
	st.refresh = true;
	stations_refresh(w);
	return 0;
}

void stations_stop(void)
{
	if (st.events)
		mnl_socket_close(st.events);
	if (st.nl)
		mnl_socket_close(st.nl);
	memset(&st, 0, sizeof(st));
}
