/* SPDX-License-Identifier: Apache-2.0 */
/* What airtime.c knows of the clients, and what it says of a driver that refuses weights or ignores them. The driver and the time are made up. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "../src/hostapd.h"
#include "../src/nl80211.h"
#include "../src/radio.h"
#include "../src/wifirrd.h"

#define CLIENTS 70		/* more than fit into two messages */
#define BATCH_MAX 32
#define IFINDEX 1

static struct wifirr w;
static uint64_t clock_ms = 1000;
static unsigned lines;

/* The driver. */
static unsigned present;		/* clients in the dump */
static uint16_t weight[CLIENTS];
static uint64_t airtime[CLIENTS];
static uint64_t sent[CLIENTS], since[CLIENTS];	/* bytes, since the client came */
static int refusal;			/* of a weight; 0: it takes them */
static unsigned refused = CLIENTS;	/* by it; CLIENTS: of all clients */
static struct { uint32_t seq; uint8_t client; uint16_t weight; } asked[CLIENTS];
static unsigned asked_count;
static unsigned lost;			/* how often the backend has given up */

static bool hostapd_weighs;
static bool surveying;

uint64_t now_ms(void)
{
	return clock_ms;
}

void logmsg(int priority, const char *fmt, ...)
{
	(void)priority;
	(void)fmt;
	lines++;
}

void backend_lost(struct wifirr *unused, const char *what)
{
	(void)unused;
	(void)what;
	lost++;
}

int radio_hold_weights(struct wifirr *unused, bool on, char *why, size_t size)
{
	(void)unused;
	(void)on;
	(void)why;
	(void)size;
	return 0;
}

void hostapd_read_own(const char *device, struct hostapd_own *own)
{
	(void)device;
	*own = (struct hostapd_own){ .sets_weights = hostapd_weighs };
}

bool survey_pending(void)
{
	return surveying;
}

int wifi_stations_served(unsigned *place)
{
	return (*place)++ ? 0 : IFINDEX;
}

struct addr addr_mac(const uint8_t mac[6])
{
	struct addr a = { .type = ADDR_MAC };

	memcpy(a.bytes, mac, 6);
	return a;
}

const char *addr_text(const struct addr *a, char text[ADDR_TEXT])
{
	(void)a;
	text[0] = '\0';
	return text;
}

uint16_t station_find(const struct wifirr *unused, const struct addr *addr)
{
	(void)unused;
	return addr->bytes[5];
}

int nl80211_open(struct nl80211 *n)
{
	(void)n;
	return 0;
}

void nl80211_close(struct nl80211 *n)
{
	(void)n;
}

int nl80211_get_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface)
{
	(void)n;
	*interface = (struct nl80211_interface){ .type = NL80211_IFTYPE_AP, .ifindex = ifindex };
	return 0;
}

bool nl80211_is_access_point(const struct nl80211_interface *interface)
{
	return interface->type == NL80211_IFTYPE_AP;
}

int nl80211_get_wiphy(struct nl80211 *n, uint32_t wiphy, struct nl80211_wiphy *info)
{
	(void)n;
	(void)wiphy;
	*info = (struct nl80211_wiphy){ .airtime_fairness = true };
	return 0;
}

/* Something is queued for each client. */
int nl80211_get_stations(struct nl80211 *n, int ifindex, void (*each)(void *data, const struct nl80211_station *station), void *data)
{
	(void)n;
	(void)ifindex;
	for (uint8_t i = 0; i < present; i++)
		each(data, &(struct nl80211_station){
			.mac = (uint8_t[]){ 2, 0, 0, 0, 0, i }, .authorized = true, .backlog = 50000,
			.tx_bytes = sent[i], .rx_bytes = 2 * sent[i], .associated_at = since[i],
			.weight = weight[i], .has_airtime = true, .airtime = airtime[i],
		});
	return 0;
}

struct nlmsghdr *nl80211_weight(struct nl80211 *n, char *buf, int ifindex, const uint8_t mac[6], uint16_t wanted)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);

	(void)ifindex;
	nlh->nlmsg_seq = ++n->seq;
	asked[asked_count].seq = nlh->nlmsg_seq;
	asked[asked_count].client = mac[5];
	asked[asked_count++].weight = wanted;
	return nlh;
}

ssize_t mnl_socket_sendto(const struct mnl_socket *socket, const void *data, size_t size)
{
	const struct nlmsghdr *nlh = data;
	int left = size;
	unsigned count = 0;

	(void)socket;
	for (; mnl_nlmsg_ok(nlh, left); nlh = mnl_nlmsg_next(nlh, &left))
		count++;
	expect("requests in a message", count, asked_count);
	expect("the kernel answers to all of them", count <= BATCH_MAX, true);
	return size;
}

/* The answer to each request. */
ssize_t mnl_socket_recvfrom(const struct mnl_socket *socket, void *data, size_t size)
{
	size_t used = 0;

	(void)socket;
	(void)size;
	for (unsigned i = 0; i < asked_count; i++) {
		struct nlmsghdr *nlh = mnl_nlmsg_put_header((char *)data + used);
		struct nlmsgerr *answer = mnl_nlmsg_put_extra_header(nlh, sizeof(*answer));

		nlh->nlmsg_type = NLMSG_ERROR;
		nlh->nlmsg_seq = asked[i].seq;
		answer->error = refused == CLIENTS || refused == asked[i].client ? -refusal : 0;
		if (!answer->error)
			weight[asked[i].client] = asked[i].weight;
		used += MNL_ALIGN(nlh->nlmsg_len);
	}
	asked_count = 0;
	return used;
}

int netlink_error(const struct nlmsghdr *nlh, char *text, size_t size)
{
	const struct nlmsgerr *answer = mnl_nlmsg_get_payload(nlh);

	snprintf(text, size, "%s", strerror(-answer->error));
	return -answer->error;
}

/* Client 0 has its turn, the others wait. */
static void start(void)
{
	char why[160];

	present = CLIENTS;
	refusal = 0;
	lines = lost = 0;
	for (unsigned i = 0; i < CLIENTS; i++) {
		w.station[i].used = true;
		w.station[i].addr = addr_mac((uint8_t[]){ 2, 0, 0, 0, 0, i });
		w.station[i].ifindex = IFINDEX;
		w.policy.client[i].level = i ? POLICY_WAITING : POLICY_ACTIVE;
		weight[i] = NL80211_WEIGHT_DEFAULT;
	}
	expect("it starts", airtime_backend.start(&w, why, sizeof(why)), 0);
}

/* With so much airtime for each. */
static void run(unsigned seconds, uint64_t active_us, uint64_t waiting_us)
{
	for (unsigned i = 0; i < 10 * seconds; i++) {
		clock_ms += 100;
		for (unsigned client = 0; client < CLIENTS; client++)
			airtime[client] += client ? waiting_us : active_us;
		airtime_backend.read(&w);
	}
}

static void who_leaves_has_nothing_queued(void)
{
	start();
	run(1, 1000, 1000);
	expect("queued", w.station[CLIENTS - 1].waiting, 50000);
	present--;
	clock_ms += 100;
	airtime_backend.read(&w);
	expect("queued for one that one dump lacks, perhaps because another one left", w.station[CLIENTS - 1].waiting, 50000);
	run(1, 1000, 1000);
	expect("queued for one that is not in the dump", w.station[CLIENTS - 1].waiting, 0);
	expect("queued for one that is", w.station[0].waiting, 50000);
	airtime_backend.stop(&w);
}

/* During a survey, only a client that has left goes, and the answer would come when the survey is done: until then, nobody could ask the kernel. */
static void a_client_goes(void)
{
	start();
	run(1, 1000, 1000);
	airtime_backend.del(&w, 1);
	expect("the weight of a client whose place is needed", weight[1], NL80211_WEIGHT_DEFAULT);
	surveying = true;
	airtime_backend.del(&w, 2);
	expect("the weight of one that leaves during a survey", weight[2], 1);
	surveying = false;
	airtime_backend.stop(&w);
}

/* A line at each tick would fill the log. */
static void a_refusal_is_said_once(void)
{
	start();
	refusal = EINVAL;
	run(60, 50000, 500);
	expect("lines about a driver that refuses", lines, CLIENTS);
	refusal = 0;
	run(1, 50000, 500);
	expect("the weight of an active client", weight[0], 384);
	expect("the weight of a waiting client", weight[1], 1);
	w.policy.client[1].level = POLICY_OPEN;
	run(1, 50000, 500);
	expect("the weight of an open client", weight[1], NL80211_WEIGHT_DEFAULT);
	airtime_backend.stop(&w);
	expect("the weight at the end", weight[0], NL80211_WEIGHT_DEFAULT);
}

static void weights_without_effect_are_noticed(void)
{
	start();
	run(60, 50000, 500);
	expect("weights that have an effect", w.weights_idle, false);
	airtime_backend.stop(&w);
	start();
	run(60, 20000, 20000);
	expect("weights without effect", w.weights_idle, true);
	expect("the status says so", strstr(w.warning, "no effect") != NULL, true);
	expect("lines about that", lines, 1);
	airtime_backend.stop(&w);
	expect("a new start finds out again", w.weights_idle, false);
}

static void one_that_comes_back_counts_from_0(void)
{
	start();
	sent[5] = 1000;
	run(1, 0, 0);
	expect("sent before it was known", w.station[5].bytes, 0);
	sent[5] = 1500;
	run(1, 0, 0);
	expect("sent", w.station[5].bytes, 500);
	expect("received", w.station[5].received, 1000);
	expect("its weight", weight[5], 1);
	/* it has left and come back, between two looks */
	sent[5] = 1600;
	since[5] = 7;
	weight[5] = 100;
	run(1, 0, 0);
	expect("sent since it came back", w.station[5].bytes, 0);
	expect("its weight as of the others", weight[5], 1);
	expect("nobody else has changed it", lost, 0);
	airtime_backend.stop(&w);
	expect("the weight that it came with", weight[5], 100);
	weight[5] = NL80211_WEIGHT_DEFAULT;
	sent[5] = 0;
}

static void weights_of_another_program(void)
{
	char why[160];

	start();
	run(1, 0, 0);
	/* now and then */
	for (unsigned i = 0; i < 5; i++) {
		weight[3] = 77;
		run(40, 0, 0);
		expect("ours again", weight[3], 1);
	}
	expect("given up", lost, 0);
	airtime_backend.stop(&w);
	expect("the other program's at the end", weight[3], 77);
	start();
	run(61, 0, 0);
	for (unsigned i = 0; i < 3; i++) {
		weight[3] = 77;
		run(1, 0, 0);
	}
	expect("given up because of another program", lost, 1);
	expect("the other program's stays", weight[3], 77);
	airtime_backend.stop(&w);
	expect("a new start on the same device", airtime_backend.start(&w, why, sizeof(why)), -1);
	w.ifindex = IFINDEX + 1;	/* which has been made again */
	expect("a new start on another device", airtime_backend.start(&w, why, sizeof(why)), 0);
	airtime_backend.stop(&w);
	w.ifindex = IFINDEX;
}

/* Another access point's clients vanish with it, and that is no fault of the device's. */
static void an_interface_has_vanished(void)
{
	const uint16_t ids[] = { 0, 1 };

	w.ifindex = IFINDEX + 1;
	start();
	run(1, 0, 0);
	lines = 0;
	w.policy.client[1].level = POLICY_ACTIVE;
	refusal = ENODEV;
	expect("clients of another access point that has vanished", airtime_backend.apply(&w, ids, 2), 0);
	expect("lines about them", lines, 0);
	w.ifindex = IFINDEX;
	expect("the device has vanished", airtime_backend.apply(&w, ids, 2), -1);
	refusal = 0;
	airtime_backend.stop(&w);
}

/* Its clients' answers come before those of another access point, which stays. */
static void the_device_has_vanished_but_not_all_clients(void)
{
	const uint16_t ids[] = { 0, 1 };

	start();
	w.policy.client[0].level = w.policy.client[1].level = POLICY_OPEN;
	run(1, 0, 0);
	w.station[1].ifindex = IFINDEX + 1;
	refusal = ENODEV;
	refused = 0;
	w.policy.client[0].level = POLICY_ACTIVE;
	w.policy.client[1].level = POLICY_WAITING;
	expect("the device has vanished", airtime_backend.apply(&w, ids, 2), -1);
	expect("the weight of a client that is still there", weight[1], 1);
	w.ifindex = 0;
	airtime_backend.stop(&w);
	expect("its weight at the end", weight[1], NL80211_WEIGHT_DEFAULT);
	w.ifindex = IFINDEX;
	refused = CLIENTS;
}

/* As long as hostapd's weights stay what they are, it does not repeat them. */
static void beside_hostapds_own_weights(void)
{
	char why[160];

	hostapd_weighs = true;
	expect("it starts beside hostapd's own weights", airtime_backend.start(&w, why, sizeof(why)), -1);
	expect("it says why", strstr(why, "hostapd's airtime_mode") != NULL, true);
	hostapd_weighs = false;
}

int main(void)
{
	w.ifindex = IFINDEX;
	w.config.weight_active = 384;
	w.config.weight_waiting = 1;
	who_leaves_has_nothing_queued();
	a_client_goes();
	a_refusal_is_said_once();
	weights_without_effect_are_noticed();
	beside_hostapds_own_weights();
	one_that_comes_back_counts_from_0();
	an_interface_has_vanished();
	the_device_has_vanished_but_not_all_clients();
	weights_of_another_program();
	return verdict();
}
