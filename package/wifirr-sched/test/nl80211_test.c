/* SPDX-License-Identifier: Apache-2.0 */
/* How nl80211.c understands the kernel's answers. They are made up: whole, cut short, and late. */
#include <errno.h>
#include <string.h>

#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "expect.h"
#include "nl80211.h"

#define FAMILY 30
#define PORT 77
#define DATAGRAMS 16

static struct nl80211 n = { .family = FAMILY };

/* What the kernel sends: the next one is at first. */
static struct datagram {
	size_t size;
	char data[2048] NL80211_ALIGNED;
} queue[DATAGRAMS];
static unsigned first, count;

static char request[NL80211_REQUEST_SIZE] NL80211_ALIGNED;	/* the last one */
static uint32_t asked;		/* its sequence number */
static unsigned requests;
static void (*answer)(void);	/* makes the answer to a request */

ssize_t mnl_socket_sendto(const struct mnl_socket *socket, const void *data, size_t size)
{
	(void)socket;
	asked = ((const struct nlmsghdr *)data)->nlmsg_seq;
	memcpy(request, data, size);
	if (answer)
		answer();
	requests++;
	return size;
}

ssize_t mnl_socket_recvfrom(const struct mnl_socket *socket, void *data, size_t size)
{
	struct datagram *d = &queue[first];

	(void)socket;
	if (first == count) {
		errno = EAGAIN;
		return -1;
	}
	first++;
	memcpy(data, d->data, d->size < size ? d->size : size);
	return d->size;
}

unsigned mnl_socket_get_portid(const struct mnl_socket *socket)
{
	(void)socket;
	return PORT;
}

/* Begins a message in a datagram of its own. */
static struct nlmsghdr *message(uint16_t type, uint16_t flags, uint32_t seq)
{
	struct datagram *d = &queue[count++];
	struct nlmsghdr *nlh;

	memset(d->data, 0, sizeof(d->data));
	nlh = mnl_nlmsg_put_header(d->data);
	nlh->nlmsg_type = type;
	nlh->nlmsg_flags = flags;
	nlh->nlmsg_seq = seq;
	nlh->nlmsg_pid = PORT;
	if (type == FAMILY)
		mnl_nlmsg_put_extra_header(nlh, sizeof(struct genlmsghdr));
	return nlh;
}

static void sent(const struct nlmsghdr *nlh)
{
	queue[count - 1].size = nlh->nlmsg_len;
}

static void done(int32_t error)
{
	struct nlmsghdr *nlh = message(NLMSG_DONE, NLM_F_MULTI, asked);

	memcpy(mnl_nlmsg_put_extra_header(nlh, sizeof(error)), &error, sizeof(error));
	sent(nlh);
}

static void refused(int error, uint32_t seq)
{
	struct nlmsghdr *nlh = message(NLMSG_ERROR, 0, seq);
	struct nlmsgerr *answer = mnl_nlmsg_put_extra_header(nlh, sizeof(*answer));

	answer->error = -error;
	sent(nlh);
}

/* A station of a dump, with its last byte. */
static struct nlmsghdr *station(uint8_t last)
{
	struct nlmsghdr *nlh = message(FAMILY, NLM_F_MULTI, asked);

	mnl_attr_put(nlh, NL80211_ATTR_MAC, 6, (uint8_t[]){ 2, 0, 0, 0, 0, last });
	return nlh;
}

static void bare_station(uint8_t last)
{
	struct nlmsghdr *nlh = station(last);

	mnl_attr_nest_end(nlh, mnl_attr_nest_start(nlh, NL80211_ATTR_STA_INFO));
	sent(nlh);
}

static void start(void (*answers)(void))
{
	first = count = requests = 0;
	answer = answers;
	errno = 0;
}

static struct nl80211_station last;
static unsigned seen;

static void each(void *data, const struct nl80211_station *s)
{
	(void)data;
	last = *s;
	seen++;
}

static int stations(void)
{
	seen = 0;
	return nl80211_get_stations(&n, 1, each, NULL);
}

static void two_stations(void)
{
	bare_station(1);
	bare_station(2);
	done(0);
}

static void lists(void)
{
	start(two_stations);
	expect("a list", stations(), 0);
	expect("its stations", seen, 2);
	expect("requests", requests, 1);
}

/* An older kernel or a driver may leave out all of it. */
static void a_bare_station(void)
{
	bare_station(1);
	done(0);
}

static void no_station(void)
{
	struct nlmsghdr *nlh;

	sent(station(1));	/* nothing is known of it */
	nlh = message(FAMILY, NLM_F_MULTI, asked);	/* no address */
	mnl_attr_nest_end(nlh, mnl_attr_nest_start(nlh, NL80211_ATTR_STA_INFO));
	sent(nlh);
	nlh = message(FAMILY, NLM_F_MULTI, asked);	/* half an address */
	mnl_attr_put(nlh, NL80211_ATTR_MAC, 3, (uint8_t[]){ 2, 0, 0 });
	mnl_attr_nest_end(nlh, mnl_attr_nest_start(nlh, NL80211_ATTR_STA_INFO));
	sent(nlh);
	nlh = message(FAMILY, NLM_F_MULTI, asked);	/* less than a header */
	nlh->nlmsg_len = sizeof(*nlh) + 2;
	sent(nlh);
	done(0);
}

static void a_whole_station(void)
{
	struct nl80211_sta_flag_update flags = {
		.mask = 1 << NL80211_STA_FLAG_AUTHORIZED | 1 << NL80211_STA_FLAG_WME, .set = 1 << NL80211_STA_FLAG_AUTHORIZED,
	};
	struct nlmsghdr *nlh = station(9);
	struct nlattr *info = mnl_attr_nest_start(nlh, NL80211_ATTR_STA_INFO), *rate, *tids, *tid, *queue;

	mnl_attr_put(nlh, NL80211_STA_INFO_STA_FLAGS, sizeof(flags), &flags);
	mnl_attr_put_u32(nlh, NL80211_STA_INFO_TX_PACKETS, 11);
	mnl_attr_put_u32(nlh, NL80211_STA_INFO_TX_RETRIES, 12);
	mnl_attr_put_u64(nlh, NL80211_STA_INFO_TX_BYTES64, 1ULL << 40);
	mnl_attr_put_u64(nlh, NL80211_STA_INFO_RX_BYTES64, 1ULL << 41);
	mnl_attr_put_u64(nlh, NL80211_STA_INFO_ASSOC_AT_BOOTTIME, 1ULL << 42);
	mnl_attr_put_u64(nlh, NL80211_STA_INFO_TX_DURATION, 13);
	mnl_attr_put_u16(nlh, NL80211_STA_INFO_AIRTIME_WEIGHT, 384);
	rate = mnl_attr_nest_start(nlh, NL80211_STA_INFO_TX_BITRATE);
	mnl_attr_put_u32(nlh, NL80211_RATE_INFO_BITRATE32, 650);	/* 100 kbit/s */
	mnl_attr_put_u8(nlh, NL80211_RATE_INFO_MCS, 7);
	mnl_attr_nest_end(nlh, rate);
	tids = mnl_attr_nest_start(nlh, NL80211_STA_INFO_TID_STATS);
	for (unsigned i = 1; i <= 3; i++) {
		tid = mnl_attr_nest_start(nlh, i);
		if (i < 3) {
			queue = mnl_attr_nest_start(nlh, NL80211_TID_STATS_TXQ_STATS);
			mnl_attr_put_u32(nlh, NL80211_TXQ_STATS_BACKLOG_BYTES, 1000 * i);
			mnl_attr_nest_end(nlh, queue);
		}
		mnl_attr_nest_end(nlh, tid);
	}
	mnl_attr_nest_end(nlh, tids);
	mnl_attr_nest_end(nlh, info);
	sent(nlh);
	done(0);
}

static void what_is_known_of_a_station(void)
{
	start(a_bare_station);
	expect("a bare station", stations(), 0);
	expect("stations", seen, 1);
	expect("assumed: authorized", last.authorized, true);
	expect("assumed: WMM", last.wmm, true);
	expect("no airtime", last.has_airtime || last.airtime, false);
	expect("no queues", last.queues || last.backlog, false);
	expect("no weight", last.weight, 0);
	expect("no rate", last.expected_kbit, 0);
	expect("no aggregates", last.aggregates, false);
	start(no_station);
	expect("broken messages", stations(), 0);
	expect("stations", seen, 0);
	start(a_whole_station);
	expect("a whole station", stations(), 0);
	expect("authorized", last.authorized, true);
	expect("WMM", last.wmm, false);
	expect("packets", last.tx_packets, 11);
	expect("retries", last.tx_retries, 12);
	expect("sent, 2^40 bytes", last.tx_bytes >> 40, 1);
	expect("received, 2^41 bytes", last.rx_bytes >> 41, 1);
	expect("since", last.associated_at >> 42, 1);
	expect("airtime is known", last.has_airtime, true);
	expect("airtime", last.airtime, 13);
	expect("weight", last.weight, 384);
	expect("expected throughput, kbit/s", last.expected_kbit, 65000 * 55 / 100);
	expect("aggregates", last.aggregates, true);
	expect("queues are known", last.queues, true);
	expect("backlog", last.backlog, 3000);
}

/* The station could not get an answer in time before: the rest of that conversation comes first. */
static void a_late_answer(void)
{
	refused(EBUSY, asked - 1);
	two_stations();
}

static void a_refusal(void)
{
	refused(EOPNOTSUPP, asked);
}

static void a_failure_midway(void)
{
	bare_station(1);
	done(-ENODEV);
}

static void failures_are_told(void)
{
	start(a_late_answer);
	expect("after a late answer", stations(), 0);
	expect("stations", seen, 2);
	start(a_refusal);
	expect("a refusal", stations(), -1);
	expect("why", errno, EOPNOTSUPP);
	expect("requests", requests, 1);
	expect("in words", strstr(n.error, strerror(EOPNOTSUPP)) != NULL, true);
	start(a_failure_midway);
	expect("a failure midway", stations(), -1);
	expect("why", errno, ENODEV);
	start(NULL);
	expect("no answer", stations(), -1);
	expect("why", errno, EAGAIN);
	expect("in words", n.error[0] != '\0', true);
}

static void a_wiphy_in_parts(void)
{
	uint8_t features[8] = { 0 };
	struct nlmsghdr *nlh;

	features[NL80211_EXT_FEATURE_AIRTIME_FAIRNESS / 8] |= 1 << NL80211_EXT_FEATURE_AIRTIME_FAIRNESS % 8;
	nlh = message(FAMILY, NLM_F_MULTI, asked);
	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY_RTS_THRESHOLD, 2000);
	sent(nlh);
	nlh = message(FAMILY, NLM_F_MULTI, asked);
	/* too short for AQL, which is a later feature */
	mnl_attr_put(nlh, NL80211_ATTR_EXT_FEATURES, NL80211_EXT_FEATURE_AQL / 8, features);
	sent(nlh);
	sent(message(FAMILY, NLM_F_MULTI, asked));
	done(0);
}

static void a_wiphy_comes_in_parts(void)
{
	struct nl80211_wiphy wiphy;

	start(a_wiphy_in_parts);
	expect("a wiphy", nl80211_get_wiphy(&n, 0, &wiphy), 0);
	expect("its RTS threshold", wiphy.rts, 2000);
	expect("airtime fairness", wiphy.airtime_fairness, true);
	expect("AQL", wiphy.aql, false);
}

static void an_interface(void)
{
	static const char name[] = "phy0-ap0-longer-than-the-kernel's";
	struct nlmsghdr *nlh = message(FAMILY, 0, asked);
	struct nlattr *links, *link;

	mnl_attr_put_u32(nlh, NL80211_ATTR_IFTYPE, NL80211_IFTYPE_AP_VLAN);
	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, 3);
	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY, 1);
	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY_FREQ, 5180);
	mnl_attr_put_u8(nlh, NL80211_ATTR_4ADDR, requests);
	mnl_attr_put(nlh, NL80211_ATTR_IFNAME, sizeof(name) - 1, name);	/* without its end */
	mnl_attr_put_u32(nlh, 333, 4);	/* NL80211_ATTR_VIF_RADIO_MASK */
	if (requests == 2) {
		links = mnl_attr_nest_start(nlh, 312);	/* NL80211_ATTR_MLO_LINKS */
		for (unsigned i = 0; i < 2; i++) {
			link = mnl_attr_nest_start(nlh, i + 1);
			mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY_FREQ, i ? 5955 : 2484);
			mnl_attr_nest_end(nlh, link);
		}
		mnl_attr_nest_end(nlh, links);
	}
	sent(nlh);
	refused(0, asked);
}

static void interfaces_are_known_by_their_type(void)
{
	struct nl80211_interface a, b;

	start(an_interface);
	expect("an interface", nl80211_get_interface(&n, 3, &a), 0);
	expect("its index", a.ifindex, 3);
	expect("its wiphy", a.wiphy, 1);
	expect("its channel", a.mhz, 5180);
	expect("its name's length", strlen(a.name), IFNAMSIZ - 1);
	expect("a VLAN's stations are clients", nl80211_serves_stations(&a) && !nl80211_has_neighbours(&a), true);
	expect("a VLAN of WDS", nl80211_get_interface(&n, 3, &b), 0);
	expect("behind WDS are neighbours", nl80211_has_neighbours(&b) && !nl80211_serves_stations(&b), true);
	expect("one radio", nl80211_share_radio(&a, &b), true);
	b.ifindex = 4;
	b.mhz = 0;
	expect("one radio, as far as is known", nl80211_share_radio(&a, &b), true);
	/* MT7996: while it waits for radar, or looks for a channel */
	b.radios = 2;
	expect("another radio, which has no channel", nl80211_share_radio(&a, &b), false);
	b.radios = 6;
	expect("perhaps the same radio", nl80211_share_radio(&a, &b), true);
	b.radios = 0;
	expect("one that may use any", nl80211_share_radio(&a, &b), true);
	b.mhz = 2412;
	expect("another radio of the wiphy", nl80211_share_radio(&a, &b), false);
	b.mhz = 5180;
	expect("no links", a.links || b.links, false);
	expect("one with links", nl80211_get_interface(&n, 3, &b), 0);
	expect("its links", b.links, nl80211_band(2412) | nl80211_band(7115));
	expect("a band without any", b.links & nl80211_band(5180), 0);
	b.ifindex = 4;
	b.mhz = 0;
	expect("beside links", nl80211_share_radio(&a, &b), false);
}

/* As kernels before 6.8: in a list of all wiphys' in several parts, places in one wiphy are counted in the next one, too. */
static void interfaces_of_two_wiphys(void)
{
	const struct nlattr *tb[NL80211_ATTR_WIPHY + 1];
	bool all, parsed = nl80211_parse_message((const struct nlmsghdr *)request, tb, NL80211_ATTR_WIPHY);

	all = !parsed || !tb[NL80211_ATTR_WIPHY];
	for (unsigned wiphy = 0; wiphy < 2; wiphy++)
		for (unsigned i = all && wiphy ? 2 : 0; i < 3 && (all || wiphy == nl80211_u32(tb[NL80211_ATTR_WIPHY])); i++) {
			struct nlmsghdr *nlh = message(FAMILY, NLM_F_MULTI, asked);

			mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, 10 * wiphy + i);
			mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY, wiphy);
			sent(nlh);
		}
	done(0);
}

static void each_interface(void *data, const struct nl80211_interface *interface)
{
	unsigned *sum = data;

	*sum += interface->ifindex;
}

static void all_interfaces_of_a_wiphy_are_listed(void)
{
	unsigned sum = 0;

	start(interfaces_of_two_wiphys);
	expect("a list", nl80211_get_interfaces(&n, 1, each_interface, &sum), 0);
	expect("its interfaces", sum, 10 + 11 + 12);
}

int main(void)
{
	lists();
	what_is_known_of_a_station();
	failures_are_told();
	a_wiphy_comes_in_parts();
	interfaces_are_known_by_their_type();
	all_interfaces_of_a_wiphy_are_listed();
	return verdict();
}
