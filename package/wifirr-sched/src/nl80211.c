/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to nl80211, and parsers for its answers. Knows nothing of the daemon. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "nl80211.h"

/* An answer that has not arrived by then was lost. Drivers may take 3 s (ath10k). */
#define ANSWER_TIMEOUT_S 5

/*
 * The share of the PHY rate that TCP gets over an 802.11 link with short
 * aggregates, for drivers that report no expected throughput (firmware rate
 * control, as in ath10k). An estimate on the low side.
 */
#define RATE_TO_THROUGHPUT_PERCENT 55

/* NL80211_RATE_INFO_EHT_MCS, which headers before Linux 5.18 lack, NL80211_ATTR_MLO_LINKS, before 6.0, and NL80211_ATTR_VIF_RADIO_MASK, before 6.13. */
#define RATE_INFO_EHT_MCS 19
#define ATTR_MLO_LINKS 312
#define ATTR_VIF_RADIO_MASK 333

static uint16_t u16(const struct nlattr *attr)
{
	if (!attr || mnl_attr_get_payload_len(attr) < sizeof(uint16_t))
		return 0;
	return mnl_attr_get_u16(attr);
}

uint32_t nl80211_u32(const struct nlattr *attr)
{
	if (!attr || mnl_attr_get_payload_len(attr) < sizeof(uint32_t))
		return 0;
	return mnl_attr_get_u32(attr);
}

uint64_t nl80211_u64(const struct nlattr *attr)
{
	if (!attr || mnl_attr_get_payload_len(attr) < sizeof(uint64_t))
		return 0;
	return mnl_attr_get_u64(attr);
}

static void parse(const void *data, size_t size, const struct nlattr **tb, uint16_t max)
{
	const struct nlattr *attr;

	memset(tb, 0, (max + 1) * sizeof(*tb));
	mnl_attr_for_each_payload(data, size)
		if (mnl_attr_get_type(attr) <= max)
			tb[mnl_attr_get_type(attr)] = attr;
}

void nl80211_parse_nested(const struct nlattr *attr, const struct nlattr **tb, uint16_t max)
{
	parse(mnl_attr_get_payload(attr), mnl_attr_get_payload_len(attr), tb, max);
}

bool netlink_parse(const struct nlmsghdr *nlh, size_t header, const struct nlattr **tb, uint16_t max)
{
	size_t size = mnl_nlmsg_get_payload_len(nlh);

	if (size < header)
		return false;
	parse(mnl_nlmsg_get_payload_offset(nlh, header), size - header, tb, max);
	return true;
}

bool nl80211_parse_message(const struct nlmsghdr *nlh, const struct nlattr **tb, uint16_t max)
{
	return netlink_parse(nlh, GENL_HDRLEN, tb, max);
}

static int fail(struct nl80211 *n, int error, const char *what)
{
	snprintf(n->error, sizeof(n->error), "%s: %s", what, strerror(error));
	errno = error;
	return -1;
}

/* The kernel's errors are -1..-4095. */
static int positive(int32_t error)
{
	return error < 0 && error >= -4095 ? -error : EBADMSG;
}

int netlink_error(const struct nlmsghdr *nlh, char *text, size_t room)
{
	const struct nlmsgerr *err = mnl_nlmsg_get_payload(nlh);
	size_t size = mnl_nlmsg_get_payload_len(nlh), offset = sizeof(*err);
	const struct nlattr *tb[NLMSGERR_ATTR_MSG + 1], *said;
	bool whole = size >= sizeof(*err);
	int error;

	if (whole && !err->error)
		return 0;
	error = whole ? positive(err->error) : EBADMSG;
	snprintf(text, room, "%s", strerror(error));
	if (!whole || !(nlh->nlmsg_flags & NLM_F_ACK_TLVS))
		return error;
	if (!(nlh->nlmsg_flags & NLM_F_CAPPED) && err->msg.nlmsg_len >= sizeof(err->msg))
		offset += MNL_ALIGN(err->msg.nlmsg_len - sizeof(err->msg));
	if (offset > size)
		return error;
	parse((const char *)err + offset, size - offset, tb, NLMSGERR_ATTR_MSG);
	said = tb[NLMSGERR_ATTR_MSG];
	if (said)
		snprintf(text, room, "%s: %.*s", strerror(error),
			 (int)strnlen(mnl_attr_get_payload(said), mnl_attr_get_payload_len(said)), (const char *)mnl_attr_get_payload(said));
	return error;
}

struct nlmsghdr *nl80211_request(struct nl80211 *n, char *buf, uint8_t cmd, uint16_t flags)
{
	struct genlmsghdr *genl;
	struct nlmsghdr *nlh;

	/* libmnl before 1.0.5 does not clear the padding of attributes */
	memset(buf, 0, NL80211_REQUEST_SIZE);
	nlh = mnl_nlmsg_put_header(buf);
	genl = mnl_nlmsg_put_extra_header(nlh, sizeof(*genl));
	nlh->nlmsg_type = n->family;
	nlh->nlmsg_flags = NLM_F_REQUEST | flags;
	nlh->nlmsg_seq = ++n->seq;
	genl->cmd = cmd;
	return nlh;
}

struct conversation {
	struct nl80211 *n;
	mnl_cb_t cb;
	void *data;
};

static int on_data(const struct nlmsghdr *nlh, void *data)
{
	struct conversation *c = data;

	return c->cb ? c->cb(nlh, c->data) : MNL_CB_OK;
}

static int on_error(const struct nlmsghdr *nlh, void *data)
{
	struct conversation *c = data;

	errno = netlink_error(nlh, c->n->error, sizeof(c->n->error));
	return errno ? MNL_CB_ERROR : MNL_CB_STOP;
}

/* A dump that failed midway carries the error in its last message. */
static int on_done(const struct nlmsghdr *nlh, void *data)
{
	struct conversation *c = data;
	int32_t error = 0;

	if (mnl_nlmsg_get_payload_len(nlh) >= sizeof(error))
		memcpy(&error, mnl_nlmsg_get_payload(nlh), sizeof(error));
	if (error >= 0)
		return MNL_CB_STOP;
	fail(c->n, positive(error), "dump");
	return MNL_CB_ERROR;
}

int nl80211_talk(struct nl80211 *n, const struct nlmsghdr *nlh, mnl_cb_t cb, void *data)
{
	static mnl_cb_t control[NLMSG_MIN_TYPE] = {
		[NLMSG_ERROR] = on_error,
		[NLMSG_DONE] = on_done,
	};
	struct conversation conversation = { .n = n, .cb = cb, .data = data };
	uint32_t seq = nlh->nlmsg_seq;
	int ret = MNL_CB_OK;
	ssize_t len;

	n->error[0] = '\0';
	if (mnl_socket_sendto(n->socket, nlh, nlh->nlmsg_len) < 0)
		return fail(n, errno, "send");
	while (ret > MNL_CB_STOP) {
		len = mnl_socket_recvfrom(n->socket, n->buffer, sizeof(n->buffer));
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return fail(n, errno, "receive");
		ret = mnl_cb_run2(n->buffer, len, seq, mnl_socket_get_portid(n->socket), on_data,
				  &conversation, control, NLMSG_MIN_TYPE);
		/* The rest of an earlier conversation that was given up. */
		if (ret == MNL_CB_ERROR && errno == EPROTO && !n->error[0])
			ret = MNL_CB_OK;
	}
	if (ret == MNL_CB_ERROR)
		return n->error[0] ? -1 : fail(n, errno, "answer");
	return 0;
}

static void find_group(struct nl80211 *n, const struct nlattr *groups)
{
	const struct nlattr *group, *tb[CTRL_ATTR_MCAST_GRP_MAX + 1];

	mnl_attr_for_each_nested(group, groups) {
		nl80211_parse_nested(group, tb, CTRL_ATTR_MCAST_GRP_MAX);
		if (!tb[CTRL_ATTR_MCAST_GRP_NAME] ||
		    mnl_attr_validate(tb[CTRL_ATTR_MCAST_GRP_NAME], MNL_TYPE_NUL_STRING) < 0)
			continue;
		if (!strcmp(mnl_attr_get_str(tb[CTRL_ATTR_MCAST_GRP_NAME]),
			    NL80211_MULTICAST_GROUP_MLME))
			n->mlme = nl80211_u32(tb[CTRL_ATTR_MCAST_GRP_ID]);
	}
}

static int on_family(const struct nlmsghdr *nlh, void *data)
{
	const struct nlattr *tb[CTRL_ATTR_MCAST_GROUPS + 1];
	struct nl80211 *n = data;

	if (!nl80211_parse_message(nlh, tb, CTRL_ATTR_MCAST_GROUPS))
		return MNL_CB_OK;
	n->family = u16(tb[CTRL_ATTR_FAMILY_ID]);
	if (tb[CTRL_ATTR_MCAST_GROUPS])
		find_group(n, tb[CTRL_ATTR_MCAST_GROUPS]);
	return MNL_CB_OK;
}

struct mnl_socket *netlink_open(int bus, unsigned groups, unsigned timeout_s)
{
	struct mnl_socket *socket = mnl_socket_open2(bus, SOCK_CLOEXEC);
	struct timeval timeout = { .tv_sec = timeout_s };
	int on = 1;

	if (!socket)
		return NULL;
	if (mnl_socket_bind(socket, groups, MNL_SOCKET_AUTOPID) < 0) {
		mnl_socket_close(socket);
		return NULL;
	}
	/* Optional: error texts, and error messages without the request. */
	mnl_socket_setsockopt(socket, NETLINK_EXT_ACK, &on, sizeof(on));
	mnl_socket_setsockopt(socket, NETLINK_CAP_ACK, &on, sizeof(on));
	setsockopt(mnl_socket_get_fd(socket), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	return socket;
}

int nl80211_open(struct nl80211 *n)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh;

	memset(n, 0, sizeof(*n));
	n->socket = netlink_open(NETLINK_GENERIC, 0, ANSWER_TIMEOUT_S);
	if (!n->socket)
		return fail(n, errno, "netlink socket");
	n->family = GENL_ID_CTRL;
	nlh = nl80211_request(n, buf, CTRL_CMD_GETFAMILY, NLM_F_ACK);
	mnl_attr_put_strz(nlh, CTRL_ATTR_FAMILY_NAME, NL80211_GENL_NAME);
	n->family = 0;
	if (nl80211_talk(n, nlh, on_family, n) < 0)
		goto close;
	if (n->family)
		return 0;
	fail(n, ENOENT, NL80211_GENL_NAME);
close:
	nl80211_close(n);
	return -1;
}

void nl80211_close(struct nl80211 *n)
{
	int error = errno;

	if (n->socket)
		mnl_socket_close(n->socket);
	n->socket = NULL;
	errno = error;
}

static bool parse_interface(const struct nlmsghdr *nlh, struct nl80211_interface *interface)
{
	const struct nlattr *tb[ATTR_VIF_RADIO_MASK + 1], *of[NL80211_ATTR_WIPHY_FREQ + 1], *link;

	if (!nl80211_parse_message(nlh, tb, ATTR_VIF_RADIO_MASK))
		return false;
	*interface = (struct nl80211_interface){
		.type = nl80211_u32(tb[NL80211_ATTR_IFTYPE]),
		.wiphy = nl80211_u32(tb[NL80211_ATTR_WIPHY]),
		.ifindex = nl80211_u32(tb[NL80211_ATTR_IFINDEX]),
		.mhz = nl80211_u32(tb[NL80211_ATTR_WIPHY_FREQ]),
		.radios = nl80211_u32(tb[ATTR_VIF_RADIO_MASK]),
		.four_addresses = tb[NL80211_ATTR_4ADDR] && mnl_attr_get_payload_len(tb[NL80211_ATTR_4ADDR]) &&
			mnl_attr_get_u8(tb[NL80211_ATTR_4ADDR]),
	};
	if (tb[ATTR_MLO_LINKS]) {
		mnl_attr_for_each_nested(link, tb[ATTR_MLO_LINKS]) {
			nl80211_parse_nested(link, of, NL80211_ATTR_WIPHY_FREQ);
			interface->links |= nl80211_band(nl80211_u32(of[NL80211_ATTR_WIPHY_FREQ]));
		}
	}
	if (tb[NL80211_ATTR_IFNAME])
		snprintf(interface->name, sizeof(interface->name), "%.*s",
			 (int)mnl_attr_get_payload_len(tb[NL80211_ATTR_IFNAME]),
			 (const char *)mnl_attr_get_payload(tb[NL80211_ATTR_IFNAME]));
	return true;
}

static int on_interface(const struct nlmsghdr *nlh, void *data)
{
	parse_interface(nlh, data);
	return MNL_CB_OK;
}

int nl80211_get_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_GET_INTERFACE, NLM_F_ACK);

	*interface = (struct nl80211_interface){ .type = NL80211_IFTYPE_UNSPECIFIED };
	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, ifindex);
	return nl80211_talk(n, nlh, on_interface, interface);
}

struct interface_dump {
	void (*each)(void *data, const struct nl80211_interface *interface);
	void *data;
};

static int on_each_interface(const struct nlmsghdr *nlh, void *data)
{
	struct nl80211_interface interface;
	struct interface_dump *dump = data;

	if (parse_interface(nlh, &interface))
		dump->each(dump->data, &interface);
	return MNL_CB_OK;
}

int nl80211_get_interfaces(struct nl80211 *n, uint32_t wiphy,
			   void (*each)(void *data, const struct nl80211_interface *interface), void *data)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_GET_INTERFACE, NLM_F_DUMP);
	struct interface_dump dump = { .each = each, .data = data };

	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY, wiphy);
	return nl80211_talk(n, nlh, on_each_interface, &dump);
}

int nl80211_set_queue(struct nl80211 *n, int ifindex, const struct nl80211_queue *queue)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_SET_WIPHY, NLM_F_ACK);
	struct nlattr *all, *one;

	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, ifindex);
	all = mnl_attr_nest_start(nlh, NL80211_ATTR_WIPHY_TXQ_PARAMS);
	one = mnl_attr_nest_start(nlh, 1);
	mnl_attr_put_u8(nlh, NL80211_TXQ_ATTR_AC, NL80211_AC_BE);
	mnl_attr_put_u16(nlh, NL80211_TXQ_ATTR_TXOP, queue->txop);
	mnl_attr_put_u16(nlh, NL80211_TXQ_ATTR_CWMIN, queue->cwmin);
	mnl_attr_put_u16(nlh, NL80211_TXQ_ATTR_CWMAX, queue->cwmax);
	mnl_attr_put_u8(nlh, NL80211_TXQ_ATTR_AIFS, queue->aifs);
	mnl_attr_nest_end(nlh, one);
	mnl_attr_nest_end(nlh, all);
	return nl80211_talk(n, nlh, NULL, NULL);
}

int nl80211_set_rts(struct nl80211 *n, uint32_t wiphy, uint32_t rts)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_SET_WIPHY, NLM_F_ACK);

	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY, wiphy);
	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY_RTS_THRESHOLD, rts);
	return nl80211_talk(n, nlh, NULL, NULL);
}

struct nlmsghdr *nl80211_weight(struct nl80211 *n, char *buf, int ifindex, const uint8_t mac[6], uint16_t weight)
{
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_SET_STATION, NLM_F_ACK);

	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, ifindex);
	mnl_attr_put(nlh, NL80211_ATTR_MAC, 6, mac);
	mnl_attr_put_u16(nlh, NL80211_ATTR_AIRTIME_WEIGHT, weight);
	return nlh;
}

bool nl80211_is_access_point(const struct nl80211_interface *interface)
{
	return interface->type == NL80211_IFTYPE_AP || interface->type == NL80211_IFTYPE_P2P_GO;
}

bool nl80211_serves_stations(const struct nl80211_interface *interface)
{
	return nl80211_is_access_point(interface) ||
		(interface->type == NL80211_IFTYPE_AP_VLAN && !interface->four_addresses);
}

bool nl80211_has_neighbours(const struct nl80211_interface *interface)
{
	return interface->type == NL80211_IFTYPE_MESH_POINT || interface->type == NL80211_IFTYPE_ADHOC ||
	       interface->type == NL80211_IFTYPE_STATION ||
	       (interface->type == NL80211_IFTYPE_AP_VLAN && interface->four_addresses);
}

static bool has_feature(const struct nlattr *features, unsigned bit)
{
	const uint8_t *bits = mnl_attr_get_payload(features);

	return mnl_attr_get_payload_len(features) > bit / 8 && bits[bit / 8] & 1 << bit % 8;
}

/* A wiphy comes in many messages, each with some of the attributes. */
static int on_wiphy(const struct nlmsghdr *nlh, void *data)
{
	const struct nlattr *tb[NL80211_ATTR_EXT_FEATURES + 1], *features;
	struct nl80211_wiphy *info = data;

	if (!nl80211_parse_message(nlh, tb, NL80211_ATTR_EXT_FEATURES))
		return MNL_CB_OK;
	if (tb[NL80211_ATTR_WIPHY_RTS_THRESHOLD])
		info->rts = nl80211_u32(tb[NL80211_ATTR_WIPHY_RTS_THRESHOLD]);
	features = tb[NL80211_ATTR_EXT_FEATURES];
	if (!features)
		return MNL_CB_OK;
	info->airtime_fairness = has_feature(features, NL80211_EXT_FEATURE_AIRTIME_FAIRNESS);
	info->aql = has_feature(features, NL80211_EXT_FEATURE_AQL);
	return MNL_CB_OK;
}

int nl80211_get_wiphy(struct nl80211 *n, uint32_t wiphy, struct nl80211_wiphy *info)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_GET_WIPHY, NLM_F_DUMP);

	*info = (struct nl80211_wiphy){ .rts = NL80211_RTS_OFF };
	mnl_attr_put_u32(nlh, NL80211_ATTR_WIPHY, wiphy);
	mnl_attr_put(nlh, NL80211_ATTR_SPLIT_WIPHY_DUMP, 0, NULL);
	return nl80211_talk(n, nlh, on_wiphy, info);
}

static uint64_t sum_backlog(const struct nlattr *tids, bool *known)
{
	const struct nlattr *tid, *tb[NL80211_TID_STATS_MAX + 1], *txq[NL80211_TXQ_STATS_MAX + 1];
	uint64_t sum = 0;

	mnl_attr_for_each_nested(tid, tids) {
		nl80211_parse_nested(tid, tb, NL80211_TID_STATS_MAX);
		if (!tb[NL80211_TID_STATS_TXQ_STATS])
			continue;
		nl80211_parse_nested(tb[NL80211_TID_STATS_TXQ_STATS], txq, NL80211_TXQ_STATS_MAX);
		*known = true;
		sum += nl80211_u32(txq[NL80211_TXQ_STATS_BACKLOG_BYTES]);
	}
	return sum;
}

static uint32_t estimate_throughput(const struct nlattr *rate)
{
	const struct nlattr *tb[NL80211_RATE_INFO_MAX + 1];
	uint64_t hundred_kbit;

	nl80211_parse_nested(rate, tb, NL80211_RATE_INFO_MAX);
	hundred_kbit = nl80211_u32(tb[NL80211_RATE_INFO_BITRATE32]);
	if (!hundred_kbit)
		hundred_kbit = u16(tb[NL80211_RATE_INFO_BITRATE]);
	if (hundred_kbit > UINT32_MAX / 100)
		return 0;
	return hundred_kbit * 100 * RATE_TO_THROUGHPUT_PERCENT / 100;
}

/* The rate has an MCS of any kind; rates before 802.11n have none. */
static bool has_mcs(const struct nlattr *rate)
{
	const struct nlattr *tb[RATE_INFO_EHT_MCS + 1];

	if (!rate)
		return false;
	nl80211_parse_nested(rate, tb, RATE_INFO_EHT_MCS);
	return tb[NL80211_RATE_INFO_MCS] || tb[NL80211_RATE_INFO_VHT_MCS] ||
		tb[NL80211_RATE_INFO_HE_MCS] || tb[RATE_INFO_EHT_MCS];
}

/* Without a report from the driver, assume that a station may exchange data and uses WMM. */
static bool has_flag(const struct nlattr *flags, enum nl80211_sta_flags flag)
{
	const uint32_t bit = 1 << flag;
	struct nl80211_sta_flag_update update;

	if (!flags || mnl_attr_get_payload_len(flags) < sizeof(update))
		return true;
	memcpy(&update, mnl_attr_get_payload(flags), sizeof(update));
	return !(update.mask & bit) || update.set & bit;
}

struct station_dump {
	void (*each)(void *data, const struct nl80211_station *station);
	void *data;
};

static int on_station(const struct nlmsghdr *nlh, void *data)
{
	const struct nlattr *tb[NL80211_ATTR_STA_INFO + 1], *info[NL80211_STA_INFO_MAX + 1];
	struct nl80211_station station = { 0 };
	struct station_dump *dump = data;

	if (!nl80211_parse_message(nlh, tb, NL80211_ATTR_STA_INFO))
		return MNL_CB_OK;
	if (!tb[NL80211_ATTR_MAC] || mnl_attr_get_payload_len(tb[NL80211_ATTR_MAC]) != 6 ||
	    !tb[NL80211_ATTR_STA_INFO])
		return MNL_CB_OK;

	nl80211_parse_nested(tb[NL80211_ATTR_STA_INFO], info, NL80211_STA_INFO_MAX);
	station.mac = mnl_attr_get_payload(tb[NL80211_ATTR_MAC]);
	station.authorized = has_flag(info[NL80211_STA_INFO_STA_FLAGS], NL80211_STA_FLAG_AUTHORIZED);
	station.wmm = has_flag(info[NL80211_STA_INFO_STA_FLAGS], NL80211_STA_FLAG_WME);
	station.tx_packets = nl80211_u32(info[NL80211_STA_INFO_TX_PACKETS]);
	station.tx_retries = nl80211_u32(info[NL80211_STA_INFO_TX_RETRIES]);
	station.tx_bytes = nl80211_u64(info[NL80211_STA_INFO_TX_BYTES64]);
	station.rx_bytes = nl80211_u64(info[NL80211_STA_INFO_RX_BYTES64]);
	station.associated_at = nl80211_u64(info[NL80211_STA_INFO_ASSOC_AT_BOOTTIME]);
	station.has_airtime = info[NL80211_STA_INFO_TX_DURATION];
	station.airtime = nl80211_u64(info[NL80211_STA_INFO_TX_DURATION]);
	station.weight = u16(info[NL80211_STA_INFO_AIRTIME_WEIGHT]);
	station.expected_kbit = nl80211_u32(info[NL80211_STA_INFO_EXPECTED_THROUGHPUT]);
	if (!station.expected_kbit && info[NL80211_STA_INFO_TX_BITRATE])
		station.expected_kbit = estimate_throughput(info[NL80211_STA_INFO_TX_BITRATE]);
	station.aggregates = has_mcs(info[NL80211_STA_INFO_TX_BITRATE]) ||
		has_mcs(info[NL80211_STA_INFO_RX_BITRATE]);
	if (info[NL80211_STA_INFO_TID_STATS])
		station.backlog = sum_backlog(info[NL80211_STA_INFO_TID_STATS], &station.queues);
	dump->each(dump->data, &station);
	return MNL_CB_OK;
}

int nl80211_get_stations(struct nl80211 *n, int ifindex,
			 void (*each)(void *data, const struct nl80211_station *station), void *data)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nlmsghdr *nlh = nl80211_request(n, buf, NL80211_CMD_GET_STATION, NLM_F_DUMP);
	struct station_dump dump = { .each = each, .data = data };

	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, ifindex);
	return nl80211_talk(n, nlh, on_station, &dump);
}
