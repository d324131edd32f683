/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which clients wifi_stations.c finds on a radio with two access points and a mesh, and stations.c
 * among neighbours, and when they drop one. The kernel's lists and events are made up: nobody can
 * have a real one change in the midst of an answer.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <linux/genetlink.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "expect.h"
#include "../src/nl80211.h"
#include "../src/wifirrd.h"

static int fake_open(struct nl80211 *n);
static void fake_close(struct nl80211 *n);
static int fake_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface);
static int fake_interfaces(struct nl80211 *n, uint32_t wiphy,
			   void (*each)(void *data, const struct nl80211_interface *interface), void *data);
static int fake_stations(struct nl80211 *n, int ifindex, void (*each)(void *data, const struct nl80211_station *station), void *data);
#define nl80211_open fake_open
#define nl80211_close fake_close
#define nl80211_get_interface fake_interface
#define nl80211_get_interfaces fake_interfaces
#define nl80211_get_stations fake_stations
#define mnl_socket_setsockopt(socket, group, data, size) 0

#include "../src/wifi_stations.c"

#define FAMILY 30

enum { HOME, GUEST, MESH, INTERFACES };	/* interface index - 1 */
enum { HERE = 1, AUTHORIZED = 2 };

static struct wifirr w;
static const struct backend airtime = { .nl80211 = true }, queues = { .nl80211 = false };

/* The kernel. */
static unsigned list[INTERFACES][4];	/* of each interface: what is known of clients 0..3 */
static unsigned since[INTERFACES];	/* when each interface's clients have come to it */
static unsigned mhz[INTERFACES];
static bool repeats;			/* in place of the mesh, another access point that the node is a client of */
static int refusal[INTERFACES];		/* of its list */
static bool surveying;
static unsigned dumps;

/* The backend. */
static unsigned backed, beside;		/* clients that it knows, and their other addresses */

static struct { const char *address; uint8_t mac; } neighbours[8] = {
	{ "10.9.0.1", 1 }, { "fd09::1", 1 }, { "fe80::1", 1 }, { "10.9.0.2", 2 }, { "fd09::2", 2 }, { "fe80::2", 2 },
};
static uint64_t clock_ms = 1000;
static int events_at[2];		/* a socket, and the kernel's end of it */

uint64_t now_ms(void)
{
	return clock_ms;
}

void logmsg(int priority, const char *fmt, ...)
{
	(void)priority;
	(void)fmt;
}

int watch_add(struct watch *watch)
{
	(void)watch;
	return 0;
}

void watch_del(struct watch *watch)
{
	(void)watch;
}

bool survey_pending(void)
{
	return surveying;
}

void backend_add(struct wifirr *unused, uint16_t id)
{
	(void)unused;
	(void)id;
	backed++;
}

void backend_del(struct wifirr *unused, uint16_t id)
{
	(void)unused;
	(void)id;
	backed--;
}

void backend_also(struct wifirr *unused, uint16_t id, unsigned at, bool there)
{
	(void)unused;
	(void)id;
	(void)at;
	beside += there ? 1 : -1;
}

struct mnl_socket *rtnl_open(int bus, unsigned groups)
{
	(void)bus;
	(void)groups;
	return (void *)events_at;	/* any, but NULL */
}

int mnl_socket_close(struct mnl_socket *socket)
{
	(void)socket;
	return 0;
}

int rtnl_ask(struct mnl_socket *nl, struct nlmsghdr *nlh, uint16_t flags, mnl_cb_t cb, void *data)
{
	uint8_t family = ((struct ndmsg *)mnl_nlmsg_get_payload(nlh))->ndm_family, address[16];
	char buf[256] NL80211_ALIGNED;

	(void)nl;
	(void)flags;
	for (unsigned i = 0; nlh->nlmsg_type == RTM_GETNEIGH && i < 8 && neighbours[i].address; i++) {
		struct nlmsghdr *entry = mnl_nlmsg_put_header(buf);
		struct ndmsg *nd = mnl_nlmsg_put_extra_header(entry, sizeof(*nd));

		if (inet_pton(family, neighbours[i].address, address) != 1)
			continue;
		entry->nlmsg_type = RTM_NEWNEIGH;
		nd->ndm_family = family;
		nd->ndm_ifindex = w.ifindex;
		nd->ndm_state = NUD_REACHABLE;
		mnl_attr_put(entry, NDA_DST, family == AF_INET ? 4 : 16, address);
		mnl_attr_put(entry, NDA_LLADDR, 6, (uint8_t[]){ 2, 0, 0, 0, 0, neighbours[i].mac });
		cb(entry, data);
	}
	return 0;
}

int mnl_socket_get_fd(const struct mnl_socket *socket)
{
	(void)socket;
	return events_at[0];
}

static int fake_open(struct nl80211 *n)
{
	n->family = FAMILY;
	n->mlme = 1;
	return 0;
}

static void fake_close(struct nl80211 *n)
{
	(void)n;
}

static int fake_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface)
{
	(void)n;
	*interface = (struct nl80211_interface){
		.type = ifindex - 1 != MESH ? NL80211_IFTYPE_AP : repeats ? NL80211_IFTYPE_STATION : NL80211_IFTYPE_MESH_POINT,
		.ifindex = ifindex, .mhz = mhz[ifindex - 1],
	};
	return 0;
}

static int fake_interfaces(struct nl80211 *n, uint32_t wiphy,
			   void (*each)(void *data, const struct nl80211_interface *interface), void *data)
{
	struct nl80211_interface interface;

	expect("the wiphy whose interfaces are listed", wiphy, 0);

	for (unsigned i = 0; i < INTERFACES; i++) {
		fake_interface(n, i + 1, &interface);
		each(data, &interface);
	}
	return 0;
}

static int fake_stations(struct nl80211 *n, int ifindex, void (*each)(void *data, const struct nl80211_station *station), void *data)
{
	(void)n;
	dumps++;
	for (uint8_t i = 0; i < 4; i++)
		if (list[ifindex - 1][i] & HERE)
			each(data, &(struct nl80211_station){
				.mac = (uint8_t[]){ 2, 0, 0, 0, 0, i }, .authorized = list[ifindex - 1][i] & AUTHORIZED, .expected_kbit = 1000 * i,
				.associated_at = since[ifindex - 1],
			});
	errno = refusal[ifindex - 1];
	return errno ? -1 : 0;
}

static struct addr client(uint8_t i)
{
	return addr_mac((uint8_t[]){ 2, 0, 0, 0, 0, i });
}

/* Of the clients that are known, one bit each. */
static unsigned known(void)
{
	unsigned all = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct addr addr = client(i);

		all |= (station_find(&w, &addr) != POLICY_NONE) << i;
	}
	return all;
}

static struct station *station(uint8_t i)
{
	struct addr addr = client(i);

	return &w.station[station_find(&w, &addr)];
}

/* In how many ms it looks again, 1 if it is late; 0: not until something happens. */
static unsigned again(void)
{
	struct pollfd late = { .fd = timer_watch.fd, .events = POLLIN };
	struct itimerspec armed;

	timerfd_gettime(timer_watch.fd, &armed);
	if (poll(&late, 1, 0) == 1)
		return 1;
	return armed.it_value.tv_sec * 1000 + (armed.it_value.tv_nsec + 999999) / 1000000;
}

static void event(uint8_t command, int ifindex, unsigned address, uint8_t i)
{
	char buf[256] NL80211_ALIGNED;
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct genlmsghdr *genl = mnl_nlmsg_put_extra_header(nlh, sizeof(*genl));

	nlh->nlmsg_type = FAMILY;
	genl->cmd = command;
	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, ifindex);
	if (address)
		mnl_attr_put(nlh, NL80211_ATTR_MAC, address, (uint8_t[]){ 2, 0, 0, 0, 0, i });
	send(events_at[1], buf, nlh->nlmsg_len, 0);
	on_events(&w);
}

/* Clients 0 and 1 at home, 2 is a guest, 3 in the mesh. */
static void start(const struct backend *backend)
{
	char reason[256];

	memset(&w, 0, sizeof(w));
	backed = beside = 0;
	policy_init(&w.policy, &w.config.policy);
	memset(list, 0, sizeof(list));
	memset(refusal, 0, sizeof(refusal));
	memset(since, 0, sizeof(since));
	list[HOME][0] = list[HOME][1] = list[GUEST][2] = list[MESH][3] = HERE | AUTHORIZED;
	mhz[HOME] = mhz[GUEST] = mhz[MESH] = 2412;
	w.ifindex = HOME + 1;
	expect("start", wifi_stations_start(&w, reason, sizeof(reason)), 0);
	w.backend = backend;
	wifi_stations_resync(&w);
	dumps = 0;
}

static void a_backend_serves_the_radio_or_the_device(void)
{
	unsigned place = 0;

	start(&queues);
	expect("clients of the device", known(), 3);
	expect("the first interface that is served", wifi_stations_served(&place), HOME + 1);
	expect("no other one", wifi_stations_served(&place), 0);
	start(&airtime);
	expect("clients of the radio", known(), 15);
	expect("where they are", station(2)->ifindex, GUEST + 1);
	expect("what they can do, kbit/s", station(2)->expected_kbit, 2000);
	expect("clients that the backend knows", backed, 4);
	expect("a neighbour", station(3)->neighbour, true);
	expect("which the policy knows, too", w.policy.client[station(3) - w.station].flags, POLICY_CLIENT_NEIGHBOUR);
	expect("a guest is none", station(2)->neighbour, false);
	mhz[GUEST] = mhz[MESH] = 5180;
	wifi_stations_resync(&w);
	wifi_stations_resync(&w);
	expect("clients when the others are on another channel", known(), 3);
	mhz[HOME] = 5180;
	wifi_stations_resync(&w);
	expect("clients when the device is there, too", known(), 15);
}

static void who_may_not_exchange_data_is_no_client(void)
{
	start(&airtime);
	list[HOME][1] = HERE;
	wifi_stations_resync(&w);
	wifi_stations_resync(&w);
	expect("clients without one that is not authorized", known(), 13);
	expect("it is looked at again", again() > 0 && again() <= LOOK_AGAIN_MS, true);
}

/* The kernel counts places in its list. If one leaves while it is read, it lacks another one, and does not say so. */
static void nobody_is_dropped_because_another_one_leaves(void)
{
	start(&airtime);
	list[HOME][1] = 0;
	wifi_stations_resync(&w);
	expect("clients of which the list lacks one", known(), 15);
	expect("the list is read again", again() > 0 && again() <= LOOK_AGAIN_MS, true);
	list[HOME][1] = HERE | AUTHORIZED;
	wifi_stations_resync(&w);
	list[HOME][1] = 0;
	wifi_stations_resync(&w);
	expect("clients of which it lacks one now and then", known(), 15);
	wifi_stations_resync(&w);
	expect("clients without one that two lists lack", known(), 13);
}

/* The one that it has left keeps its entry for minutes. */
static void a_client_moves_to_another_access_point(void)
{
	start(&airtime);
	list[HOME][2] = HERE | AUTHORIZED;
	since[HOME] = 1;
	wifi_stations_resync(&w);
	expect("where the guest is now", station(2)->ifindex, HOME + 1);
	event(NL80211_CMD_DEL_STATION, GUEST + 1, 6, 2);
	expect("clients when the entry's time is over", known(), 15);
	since[GUEST] = 2;
	wifi_stations_resync(&w);
	expect("where it is when it has returned", station(2)->ifindex, GUEST + 1);
	event(NL80211_CMD_DEL_STATION, GUEST + 1, 6, 2);
	expect("clients when it has left", known(), 11);
}

static void a_list_that_fails_drops_nobody(void)
{
	start(&airtime);
	memset(list, 0, sizeof(list));
	refusal[HOME] = EBUSY;
	wifi_stations_resync(&w);
	expect("clients without a list", known(), 15);
	expect("no other list is asked for", dumps, 1);
	expect("it is asked for again", again() > 0, true);
	/* the device is gone: device.c knows it, too */
	refusal[HOME] = ENODEV;
	wifi_stations_resync(&w);
	expect("clients of a device that has vanished", known(), 15);
	start(&airtime);
	list[GUEST][2] = 0;
	refusal[GUEST] = ENODEV;
	wifi_stations_resync(&w);
	wifi_stations_resync(&w);
	expect("clients of another access point that has vanished", known(), 11);
}

static void events_are_few_lists(void)
{
	start(&airtime);
	event(NL80211_CMD_DEL_STATION, HOME + 1, 6, 1);
	expect("clients after one has left", known(), 13);
	expect("clients that the backend knows then", backed, 3);
	expect("no list for that", dumps, 0);
	expect("no list later", again(), 0);
	/* the kernel may name the device of an access point's VLAN, or the one before */
	event(NL80211_CMD_DEL_STATION, HOME + 1, 6, 2);
	expect("clients after one has left another interface", known(), 13);
	expect("a list for that, ms", again() > 0 && again() <= LOOK_AGAIN_FIRST_MS, true);
	start(&airtime);
	event(NL80211_CMD_DEL_STATION, HOME + 1, 3, 1);
	event(NL80211_CMD_DEL_STATION, HOME + 1, 0, 1);
	event(NL80211_CMD_NEW_INTERFACE, HOME + 1, 6, 1);
	expect("clients after events that say nothing", known(), 15);
	expect("no list for those", again(), 0);
	for (unsigned i = 0; i < 100; i++)
		event(NL80211_CMD_NEW_STATION, HOME + 1, 6, i);
	expect("clients after made-up addresses", known(), 15);
	expect("lists for them now", dumps, 0);
	expect("a list for all of them", again() > 0 && again() <= LOOK_AGAIN_FIRST_MS, true);
}

static void nothing_is_asked_during_a_survey(void)
{
	start(&airtime);
	surveying = true;
	wifi_stations_resync(&w);
	expect("lists during a survey", dumps, 0);
	expect("lists after it", again() > 0, true);
	surveying = false;
}

static void a_mesh_is_refused(void)
{
	char reason[256];

	start(&airtime);
	w.ifindex = MESH + 1;
	expect("a mesh", wifi_stations_start(&w, reason, sizeof(reason)), -1);
	expect("why", strstr(reason, "neighbours") != NULL, true);
}

/* It shares the air with the node's own clients. */
static void the_access_point_of_a_repeater_is_a_neighbour(void)
{
	char reason[256];

	repeats = true;
	start(&airtime);
	expect("clients of a repeater, and its access point", known(), 15);
	expect("the access point is a neighbour", known() == 15 && station(3)->neighbour, true);
	w.ifindex = MESH + 1;
	expect("a station has no clients", wifi_stations_start(&w, reason, sizeof(reason)), -1);
	expect("but is not refused: clients behind it have other sources", *reason, '\0');
	repeats = false;
}

/* The id of the client with this address. */
static unsigned whose(const char *text)
{
	struct addr addr;

	addr_parse(&addr, text);
	return station_find(&w, &addr);
}

/* As after the end of a neighbour. */
static void refresh(void)
{
	char buf[64] NL80211_ALIGNED;
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *nd = mnl_nlmsg_put_extra_header(nlh, sizeof(*nd));

	nlh->nlmsg_type = RTM_DELNEIGH;
	nd->ndm_ifindex = w.ifindex;
	send(events_at[1], buf, nlh->nlmsg_len, 0);
	clock_ms += 1000;
	for (unsigned i = 0; i < 3; i++, clock_ms += 1000)
		stations_refresh(&w);
}

/* A host has one IPv4 address. Each of a MAC with more is a client, as behind a proxy for ARP. */
static void hosts_have_addresses(void)
{
	char reason[256];
	unsigned first;

	memset(&w, 0, sizeof(w));
	backed = beside = 0;
	policy_init(&w.policy, &w.config.policy);
	w.ifindex = 1;
	w.config.match = MATCH_IP;
	expect("start", stations_start(&w, reason, sizeof(reason)), 0);
	expect("hosts", w.policy.clients, 2);
	first = whose("10.9.0.1");
	expect("a host's other address", whose("fd09::1"), first);
	/* the other host's address is its own now */
	neighbours[4].mac = 1;
	refresh();
	expect("hosts after an address has moved", w.policy.clients, 2);
	expect("addresses that the backend knows", backed * 10 + beside, 24);
	expect("the address that has moved", whose("fd09::2"), first);
	expect("one that has not", whose("fe80::2"), whose("10.9.0.2"));
	neighbours[4].mac = 2;
	refresh();
	expect("the address that has moved back", whose("fd09::2"), whose("10.9.0.2"));
	neighbours[6].address = "10.9.0.3";
	neighbours[6].mac = 1;
	refresh();
	expect("clients with a second IPv4 address behind the MAC", w.policy.clients, 5);
	neighbours[2].address = NULL;
	refresh();
	expect("clients after all but two addresses have gone", w.policy.clients, 2);
	expect("addresses that the backend knows in the end", backed * 10 + beside, 20);
	stations_stop();
}

/* Who is exempt, or was busy a while ago, stays. */
static void a_full_table_drops_who_is_idle(void)
{
	struct addr addr;
	uint16_t busy, idle;

	memset(&w, 0, sizeof(w));
	backed = beside = 0;
	policy_init(&w.policy, &w.config.policy);
	w.config.exempt[0].addr = addr_mac((uint8_t[]){ 2, 0, 0, 0, 0, 0 });
	w.config.exempt[0].flags = POLICY_CLIENT_ALWAYS;
	w.config.exempt_count = 1;
	for (unsigned i = 0; i <= POLICY_CLIENTS_MAX; i++, clock_ms += i < POLICY_CLIENTS_MAX) {
		addr = addr_mac((uint8_t[]){ 2, 0, 0, 0, i >> 8, i });
		station_add(&w, &addr, STATION_FDB);
	}
	expect("refused", w.refused_stations, 1);
	expect("dropped", w.evicted, 0);
	busy = 1;
	idle = 2;
	w.policy.client[busy].demand = true;
	clock_ms += 9999;
	expect("the place of the one that has been idle for longest", station_add(&w, &addr, STATION_FDB) == idle, true);
	clock_ms += 9000;
	expect("a known client's place", station_add(&w, &addr, STATION_FDB), idle);
	expect("dropped", w.evicted, 1);
	addr = addr_mac((uint8_t[]){ 2, 0, 0, 0, 0, 0 });
	expect("the exempt one's place", station_find(&w, &addr), 0);
	addr.bytes[5] = 1;
	expect("the busy one's place", station_find(&w, &addr), busy);
}

int main(void)
{
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, events_at) < 0)
		return 1;
	a_backend_serves_the_radio_or_the_device();
	who_may_not_exchange_data_is_no_client();
	nobody_is_dropped_because_another_one_leaves();
	a_client_moves_to_another_access_point();
	a_list_that_fails_drops_nobody();
	events_are_few_lists();
	nothing_is_asked_during_a_survey();
	a_mesh_is_refused();
	the_access_point_of_a_repeater_is_a_neighbour();
	hosts_have_addresses();
	a_full_table_drops_who_is_idle();
	return verdict();
}
