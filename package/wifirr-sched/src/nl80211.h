/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the kernel's nl80211 family. One struct nl80211 per thread.
 */
#ifndef WIFIRRD_NL80211_H
#define WIFIRRD_NL80211_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <net/if.h>

#include <libmnl/libmnl.h>
#include <linux/nl80211.h>

#define NL80211_ALIGNED __attribute__((aligned(NLMSG_ALIGNTO)))
#define NL80211_REQUEST_SIZE 96	/* no request here is larger */

struct nl80211 {
	struct mnl_socket *socket;
	uint16_t family;
	uint32_t mlme;		/* multicast group of station events */
	uint32_t seq;
	char error[128];	/* why the last call failed, in the kernel's words if it gave any */
	char buffer[16384] NL80211_ALIGNED;	/* a station with its 17 TIDs takes up to 5 KB */
};

/* A station in a dump. Fields that the driver leaves out are 0. */
struct nl80211_station {
	const uint8_t *mac;
	bool authorized;	/* may exchange data */
	uint64_t tx_bytes;	/* sent to the station */
	uint64_t rx_bytes;	/* received from it */
	uint32_t tx_packets, tx_retries;	/* frames to it, and retransmissions of these */
	uint64_t backlog;	/* bytes queued for it in mac80211 */
	uint64_t associated_at;	/* ns since boot: tells apart two associations of a station */
	uint32_t expected_kbit;	/* expected throughput */
	uint16_t weight;	/* airtime weight */
	bool queues;		/* the backlog is known from statistics of its queues */
	bool has_airtime;	/* the driver reports the airtime of frames to it: */
	uint64_t airtime;	/* us */
	bool wmm;		/* uses the windows that the access point announces */
	bool aggregates;	/* the last frame to or from it had a rate of 802.11n or later: A-MPDUs */
};

struct nl80211_interface {
	uint32_t type;		/* enum nl80211_iftype */
	uint32_t wiphy;
	int ifindex;		/* 0: none (P2P device) */
	char name[IFNAMSIZ];
	bool four_addresses;	/* WDS */
	uint32_t mhz;		/* centre of its channel's primary 20 MHz; 0: no channel, or links */
	unsigned links;		/* it has links (MLO), each with a channel of its own: see nl80211_band() */
	uint32_t radios;	/* of its wiphy that it may use, a bit each; 0: any */
};

struct nl80211_wiphy {
	bool airtime_fairness;	/* NL80211_EXT_FEATURE_AIRTIME_FAIRNESS */
	bool aql;		/* NL80211_EXT_FEATURE_AQL: hardware queues are limited by airtime */
	uint32_t rts;		/* bytes; NL80211_RTS_OFF */
};
#define NL80211_RTS_OFF UINT32_MAX

/*
 * Two interfaces of one wiphy are of one radio: on one channel, or, while one of
 * them has none, allowed to use one radio. Some wiphys have several (MT7996), each
 * with a channel of its own. Of an interface with links, nobody knows which of them
 * its stations use.
 */
static inline bool nl80211_share_radio(const struct nl80211_interface *a, const struct nl80211_interface *b)
{
	bool meet = !a->radios || !b->radios || a->radios & b->radios;

	return a->ifindex == b->ifindex || (!a->links && !b->links && meet && (a->mhz == b->mhz || !a->mhz || !b->mhz));
}

/* The band of a channel, a bit; all bits: not known. No two radios of a link are on one band. */
static inline unsigned nl80211_band(uint32_t mhz)
{
	return !mhz ? 7 : mhz < 4000 ? 1 : mhz < 5925 ? 2 : 4;
}

/* All return 0, or -1 with errno and n->error set. */
int nl80211_open(struct nl80211 *n);
void nl80211_close(struct nl80211 *n);

/* Begins a request in buf, which has NL80211_REQUEST_SIZE bytes. */
struct nlmsghdr *nl80211_request(struct nl80211 *n, char *buf, uint8_t cmd, uint16_t flags);
/* Sends the request, and calls cb (may be NULL) for every answer until the kernel is done. */
int nl80211_talk(struct nl80211 *n, const struct nlmsghdr *nlh, mnl_cb_t cb, void *data);
/* A socket for any family of the bus, which waits so long for an answer. NULL and errno on failure. */
struct mnl_socket *netlink_open(int bus, unsigned groups, unsigned timeout_s);
/* Returns the errno of an NLMSG_ERROR message of any family, with its text, or 0: an acknowledgement. */
int netlink_error(const struct nlmsghdr *nlh, char *text, size_t size);
/*
 * Parse the attributes of a message, after its header of so many bytes, or of a nested attribute into tb[0..max]. A
 * malformed one ends the list. False: too short.
 */
bool netlink_parse(const struct nlmsghdr *nlh, size_t header, const struct nlattr **tb, uint16_t max);
bool nl80211_parse_message(const struct nlmsghdr *nlh, const struct nlattr **tb, uint16_t max);
void nl80211_parse_nested(const struct nlattr *attr, const struct nlattr **tb, uint16_t max);

int nl80211_get_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface);
/*
 * All interfaces of a wiphy. (Of a list of all wiphys' in several parts, older kernels leave out some.) If one vanishes
 * between two parts, another one is left out.
 */
int nl80211_get_interfaces(struct nl80211 *n, uint32_t wiphy,
			   void (*each)(void *data, const struct nl80211_interface *interface), void *data);
/* How an access point contends for the air with best-effort frames. */
struct nl80211_queue {
	uint16_t cwmin, cwmax;	/* slots */
	uint8_t aifs;		/* slots */
	uint16_t txop;		/* 32 us */
};
int nl80211_set_queue(struct nl80211 *n, int ifindex, const struct nl80211_queue *queue);
/* Sets the radio's RTS threshold, for all its interfaces; bytes or NL80211_RTS_OFF. */
int nl80211_set_rts(struct nl80211 *n, uint32_t wiphy, uint32_t rts);
/* Makes a request to set a station's airtime weight in buf, which has NL80211_REQUEST_SIZE bytes. */
struct nlmsghdr *nl80211_weight(struct nl80211 *n, char *buf, int ifindex, const uint8_t mac[6], uint16_t weight);
#define NL80211_WEIGHT_DEFAULT 256	/* mac80211: IEEE80211_DEFAULT_AIRTIME_WEIGHT */
int nl80211_get_wiphy(struct nl80211 *n, uint32_t wiphy, struct nl80211_wiphy *info);
/* If a station leaves meanwhile, another one may be missing, and the kernel does not say so. */
int nl80211_get_stations(struct nl80211 *n, int ifindex,
			 void (*each)(void *data, const struct nl80211_station *station), void *data);

/* The value of an attribute of at least that size; 0 if it is absent or shorter. */
uint32_t nl80211_u32(const struct nlattr *attr);
uint64_t nl80211_u64(const struct nlattr *attr);

/* The interface's stations are clients: it is an access point, or one of its VLANs. */
bool nl80211_serves_stations(const struct nl80211_interface *interface);
/* The interface's stations are other nodes; one of them may lead to the Internet. A station's is its access point. */
bool nl80211_has_neighbours(const struct nl80211_interface *interface);
/* The interface is an access point itself. */
bool nl80211_is_access_point(const struct nl80211_interface *interface);

#endif
