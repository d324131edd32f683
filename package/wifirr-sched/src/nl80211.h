/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the kernel's nl80211 family, for nl80211.c, airtime.c and
 * survey.c. One struct nl80211 per thread.
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
#define NL80211_REQUEST_SIZE 64	/* no request here takes more */

struct nl80211 {
	struct mnl_socket *socket;
	uint16_t family;
	uint32_t mlme;		/* multicast group of station events */
	uint32_t seq;
	char error[128];	/* why the last call failed: the kernel's own words where it has some */
	char buffer[16384] NL80211_ALIGNED;	/* a station with its 17 TIDs takes up to 5 KB */
};

/* What a station dump tells. Fields that the driver leaves out are 0. */
struct nl80211_station {
	const uint8_t *mac;
	bool authorized;	/* may exchange data */
	uint64_t tx_bytes;	/* sent to the station */
	uint64_t rx_bytes;	/* received from it */
	uint32_t tx_packets, tx_retries;	/* frames to it, and how often one was sent again */
	uint64_t backlog;	/* bytes waiting for it in mac80211's queues */
	uint64_t associated_at;	/* ns since boot: tells a returned station from the one before */
	uint32_t expected_kbit;	/* expected throughput */
	uint16_t weight;	/* airtime weight */
	bool queues;		/* the backlog is known: statistics of its queues */
	bool has_airtime;	/* the driver says how long it sent to it: */
	uint64_t airtime;	/* us */
	bool wmm;		/* takes the windows that the access point announces */
	bool aggregates;	/* last frame to or from it had a rate of 802.11n or later: A-MPDUs */
};

struct nl80211_interface {
	uint32_t type;		/* enum nl80211_iftype */
	uint32_t wiphy;
	int ifindex;		/* 0: none (P2P device) */
	char name[IFNAMSIZ];
	bool four_addresses;	/* WDS */
	uint32_t mhz;		/* of its channel's primary 20 MHz; 0: has none */
};

struct nl80211_wiphy {
	bool airtime_fairness;	/* NL80211_EXT_FEATURE_AIRTIME_FAIRNESS */
	bool aql;		/* NL80211_EXT_FEATURE_AQL: what may wait in hardware is limited by its airtime */
	uint32_t rts;		/* bytes; NL80211_RTS_OFF */
};
#define NL80211_RTS_OFF UINT32_MAX

/* All: 0, or -1 with errno and n->error set. */
int nl80211_open(struct nl80211 *n);
void nl80211_close(struct nl80211 *n);

/* Of a message in buf, NL80211_REQUEST_SIZE bytes. */
struct nlmsghdr *nl80211_request(struct nl80211 *n, char *buf, uint8_t cmd, uint16_t flags);
/* Sends and calls cb (may be NULL) with every answer until the kernel is done. */
int nl80211_talk(struct nl80211 *n, const struct nlmsghdr *nlh, mnl_cb_t cb, void *data);
/* errno of an NLMSG_ERROR message (0: an acknowledgement), its text in n->error. */
int nl80211_error(struct nl80211 *n, const struct nlmsghdr *nlh);
/* A message's or an attribute's attributes into tb[0..max]. Broken ones end the list. False: too short. */
bool nl80211_parse_message(const struct nlmsghdr *nlh, const struct nlattr **tb, uint16_t max);
void nl80211_parse_nested(const struct nlattr *attr, const struct nlattr **tb, uint16_t max);

int nl80211_get_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface);
/* All interfaces there are, of any radio. */
int nl80211_get_interfaces(struct nl80211 *n, void (*each)(void *data, const struct nl80211_interface *interface), void *data);
/* The access point's threshold for RTS, bytes or NL80211_RTS_OFF; the radio's, for all its interfaces. */
int nl80211_set_rts(struct nl80211 *n, uint32_t wiphy, uint32_t rts);
/* A request to give a station that airtime weight, in buf, NL80211_REQUEST_SIZE bytes. */
struct nlmsghdr *nl80211_weight(struct nl80211 *n, char *buf, int ifindex, const uint8_t mac[6], uint16_t weight);
#define NL80211_WEIGHT_DEFAULT 256	/* mac80211: IEEE80211_DEFAULT_AIRTIME_WEIGHT */
int nl80211_get_wiphy(struct nl80211 *n, uint32_t wiphy, struct nl80211_wiphy *info);
/* Retries a dump that changed meanwhile; then -1 with errno EINTR, and stations may be missing. */
int nl80211_get_stations(struct nl80211 *n, int ifindex,
			 void (*each)(void *data, const struct nl80211_station *station), void *data);

/* Unsigned values of attributes of at least that size; 0 for absent or short ones. */
uint16_t nl80211_u16(const struct nlattr *attr);
uint32_t nl80211_u32(const struct nlattr *attr);
uint64_t nl80211_u64(const struct nlattr *attr);

/* An interface whose stations are clients: an access point's, or one of its VLANs. */
bool nl80211_serves_stations(const struct nl80211_interface *interface);
/* One whose stations are other nodes: the way to the Internet may be among them. */
bool nl80211_has_neighbours(const struct nl80211_interface *interface);
/* An access point itself. */
bool nl80211_is_access_point(const struct nl80211_interface *interface);

#endif
