/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The htb backend: one class per client on the device's egress. To throttle or
 * release clients, it changes rate and ceil of their classes in one netlink batch.
 *
 *	5746:		htb, root
 *	  5746:1	the link: --rate while clients are throttled, else wide open
 *	    5746:2	traffic that belongs to no client: never throttled
 *	    5746:3	voice, with --exempt-voice
 *	    5746:a000+	clients
 *
 * Constraints of HTB (net/sched/sch_htb.c):
 * - A class that has overdrawn its ceil sleeps for MTU*8/ceil, 0.6 s at 20 kbit/s,
 *   and a change does not wake it. So a client is readied before its turn in two
 *   steps of growing ceil (POLICY_NEXT, POLICY_SOON). The last one leaves a debt of
 *   a few ms. The same goes for rate: a class in debt to its rate can only borrow.
 * - A packet is charged whole, GSO or not: 64 KB at 20 kbit/s is 26 s of debt. So a
 *   tbf below each class cuts large packets, those of this host and those that arrive
 *   so (GRO).
 * - The children's rates must not exceed the parent's, or the parent falls into
 *   debt and stops lending. The shares below add up to 100.
 * - HTB does not reread prio while a class has packets, so it is never changed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include <libmnl/libmnl.h>
#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include "nl80211.h"
#include "wifirrd.h"

#define FRAME 1514U			/* bytes, what HTB charges for a full packet */
#define OPEN_KBIT 10000000U		/* "wide open": faster than any WiFi */
#define TBF_HANDLE(id) ((0x6000U + (id)) << 16)

/* Guaranteed shares of the link, in percent; unused bandwidth is lent. */
#define SHARE_DEFAULT 3
#define SHARE_VOICE 5
#define SHARE_EXEMPT 2			/* all clients that are never throttled */
#define SHARE_WAITING 20		/* all trickles; caps their sum */
#define SHARE_SOON 10			/* clients being readied; approximate, as the rest, for next_rate() */
#define SHARE_ACTIVE 55

#define LEAD_SLACK_MS 5			/* allowance for late ticks */

#define LEAF_BYTES 131072		/* bound of a client's queue */
#define CODEL_FLOWS 32			/* the default of 1024 costs 64 KB a client */

#define BATCH (POLICY_CLIENTS_MAX * 192)	/* bytes: a class change takes 156 */

static struct {
	struct mnl_socket *nl;
	bool scheduling;		/* what the classes are configured for */
	uint32_t rate_kbit;
	uint32_t trickle_bps;		/* of each waiting client, bytes/s */
	unsigned slot_ms;		/* what the leaf qdiscs are configured for */
	uint32_t mtu;			/* likewise */
	bool tbf, fq_codel;
	bool failed;			/* a client's class could not be made, and that has been logged */
	bool created[POLICY_CLIENTS_MAX];
} htb;

/* bytes per second */
static uint32_t bytes_per_s(uint32_t kbit)
{
	return (uint64_t)kbit * 1000 / 8;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t link_rate(void)
{
	return bytes_per_s(htb.rate_kbit);
}

static uint32_t soon_rate(const struct policy_config *policy)
{
	/* how many clients are readied at a time: a group, or those whose turns begin within about 20 ms */
	unsigned n = policy->mode == POLICY_PAPER ? policy->active : 1 + 20 * policy->active / policy->slot_ms;

	return max_u32(htb.trickle_bps, link_rate() / 100 * SHARE_SOON / n);
}

/* The geometric mean, rounded down. */
static uint32_t middle(uint32_t a, uint32_t b)
{
	uint64_t product = (uint64_t)a * b;
	uint64_t root = 0;

	for (uint64_t bit = 1ULL << 31; bit; bit >>= 1)
		if ((root + bit) * (root + bit) <= product)
			root += bit;
	return root;
}

/* The geometric mean of the trickle and soon_rate(). */
static uint32_t next_rate(const struct policy_config *policy)
{
	return middle(htb.trickle_bps, soon_rate(policy));
}

/* How long one packet at this rate puts a class to sleep. */
static unsigned debt_ms(uint32_t rate)
{
	return FRAME * 1000 / rate + 1;
}

/* Time to send size bytes, in the kernel's 64 ns ticks. */
static uint32_t ticks(uint32_t rate, uint32_t size)
{
	uint64_t t = (uint64_t)size * (1000000000 / 64) / rate;

	return t > UINT32_MAX ? UINT32_MAX : t;
}

/* Two packets, or 2 ms if that is more, because the kernel's timers are no finer. */
static uint32_t burst(uint32_t rate)
{
	return max_u32(2 * FRAME, rate / 500);
}

static void class_put(struct nlmsghdr *nlh, uint32_t rate, uint32_t ceil, unsigned quantum, unsigned prio)
{
	struct tc_htb_opt opt = {
		.rate = { .rate = rate, .linklayer = TC_LINKLAYER_ETHERNET },
		.ceil = { .rate = ceil, .linklayer = TC_LINKLAYER_ETHERNET },
		.buffer = ticks(rate, burst(rate)),
		.cbuffer = ticks(ceil, burst(ceil)),
		.quantum = quantum,
		.prio = prio,
	};
	struct nlattr *options = mnl_attr_nest_start(nlh, TCA_OPTIONS);

	mnl_attr_put(nlh, TCA_HTB_PARMS, sizeof(opt), &opt);
	mnl_attr_nest_end(nlh, options);
}

static struct nlmsghdr *link_class(void *buf, const struct wifirr *w, unsigned flags)
{
	uint32_t rate = htb.scheduling ? link_rate() : bytes_per_s(OPEN_KBIT);
	struct nlmsghdr *nlh = rtnl_tc(buf, w, RTM_NEWTCLASS, flags, TC_H_ROOT, HTB_CLASS_LINK, "htb");

	class_put(nlh, rate, rate, FRAME, 0);
	return nlh;
}

static struct nlmsghdr *fixed_class(void *buf, const struct wifirr *w, unsigned flags, uint32_t handle, unsigned share)
{
	uint32_t ceil = htb.scheduling ? link_rate() : bytes_per_s(OPEN_KBIT);
	struct nlmsghdr *nlh = rtnl_tc(buf, w, RTM_NEWTCLASS, flags, HTB_CLASS_LINK, handle, "htb");

	class_put(nlh, ceil / 100 * share, ceil, FRAME, handle == HTB_CLASS_VOICE ? 0 : 1);
	return nlh;
}

/* The classes that are always there. Returns the last message, and adds the length of all. */
static struct nlmsghdr *link_classes(char *buf, size_t *len, const struct wifirr *w, unsigned flags)
{
	struct nlmsghdr *nlh = link_class(buf, w, flags);

	*len = nlh->nlmsg_len;
	nlh = fixed_class(buf + *len, w, flags, HTB_CLASS_DEFAULT, SHARE_DEFAULT);
	*len += nlh->nlmsg_len;
	nlh = fixed_class(buf + *len, w, flags, HTB_CLASS_VOICE, SHARE_VOICE);
	*len += nlh->nlmsg_len;
	return nlh;
}

static struct nlmsghdr *client_class(void *buf, const struct wifirr *w, unsigned flags, uint16_t id)
{
	struct nlmsghdr *nlh = rtnl_tc(buf, w, RTM_NEWTCLASS, flags, HTB_CLASS_LINK, HTB_CLASS_CLIENT(id), "htb");
	enum policy_level level = htb.scheduling ? w->policy.client[id].level : POLICY_OPEN;
	uint32_t link = htb.scheduling ? link_rate() : bytes_per_s(OPEN_KBIT);
	uint32_t rate = htb.trickle_bps, ceil = htb.trickle_bps;

	switch (level) {
	case POLICY_OPEN:
		rate = max_u32(1, link / 100 * SHARE_EXEMPT / POLICY_CLIENTS_MAX);
		ceil = link;
		break;
	case POLICY_ACTIVE:
		rate = link / 100 * SHARE_ACTIVE / w->policy.config.active;
		ceil = link;
		break;
	case POLICY_SOON:
		rate = ceil = soon_rate(&w->policy.config);
		break;
	case POLICY_NEXT:
		rate = ceil = next_rate(&w->policy.config);
		break;
	case POLICY_IDLE:
	case POLICY_LIGHT:
	case POLICY_WAITING:
		break;
	}
	/* the quantum of the round robin among classes; larger on a fast link, to save CPU */
	class_put(nlh, max_u32(rate, 1), ceil, max_u32(FRAME, min_u32(ceil / 1000, 60000)), 1);
	return nlh;
}

/* Trickle and lead times follow from the link's rate and the number of clients. */
static bool update_rates(struct wifirr *w)
{
	struct policy_config *policy = &w->policy.config;
	uint32_t want = bytes_per_s(w->config.trickle_kbit);
	uint32_t cap = link_rate() / 100 * SHARE_WAITING / max_u32(1, w->policy.clients);
	uint32_t trickle = max_u32(1, min_u32(want, cap));
	bool changed = trickle != htb.trickle_bps;

	htb.trickle_bps = trickle;
	/* at most a few slots: on a slow link with many clients, debts last minutes */
	policy->next_lead_ms = min_u32(debt_ms(trickle) + LEAD_SLACK_MS, 2 * policy->slot_ms);
	policy->soon_lead_ms = min_u32(debt_ms(next_rate(policy)) + LEAD_SLACK_MS, policy->slot_ms);
	return changed;
}

/* A client's own queue: creates it, or changes it if there are no flags. */
static struct nlmsghdr *codel(void *buf, const struct wifirr *w, unsigned flags, uint32_t parent)
{
	struct nlmsghdr *nlh = rtnl_tc(buf, w, RTM_NEWQDISC, flags, parent, 0, "fq_codel");
	struct nlattr *options = mnl_attr_nest_start(nlh, TCA_OPTIONS);

	if (flags)
		mnl_attr_put_u32(nlh, TCA_FQ_CODEL_FLOWS, CODEL_FLOWS);	/* cannot be changed later */
	mnl_attr_put_u32(nlh, TCA_FQ_CODEL_LIMIT, 2 * LEAF_BYTES / FRAME);
	mnl_attr_put_u32(nlh, TCA_FQ_CODEL_MEMORY_LIMIT, 2 * LEAF_BYTES);
	/* waiting for a turn is not congestion; us */
	mnl_attr_put_u32(nlh, TCA_FQ_CODEL_TARGET, 50000);
	mnl_attr_put_u32(nlh, TCA_FQ_CODEL_INTERVAL, w->config.policy.slot_ms * 1000);
	mnl_attr_nest_end(nlh, options);
	return nlh;
}

/* A tbf too fast to delay packets; it segments those longer than its burst. Creates it, or changes it if there are no flags. */
static struct nlmsghdr *cutter(void *buf, const struct wifirr *w, unsigned flags, uint16_t id)
{
	struct nlmsghdr *nlh = rtnl_tc(buf, w, RTM_NEWQDISC, flags, HTB_CLASS_CLIENT(id), TBF_HANDLE(id), "tbf");
	struct nlattr *options = mnl_attr_nest_start(nlh, TCA_OPTIONS);
	struct tc_tbf_qopt opt = {
		.rate = { .rate = UINT32_MAX, .linklayer = TC_LINKLAYER_ETHERNET },
		.limit = LEAF_BYTES,
	};

	mnl_attr_put(nlh, TCA_TBF_PARMS, sizeof(opt), &opt);
	mnl_attr_put_u64(nlh, TCA_TBF_RATE64, 100000000000ULL);
	mnl_attr_put_u32(nlh, TCA_TBF_BURST, w->mtu + 32);
	mnl_attr_nest_end(nlh, options);
	return nlh;
}

static int put_leaf(struct wifirr *w, uint16_t id, char *why, size_t size)
{
	char buf[512] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct tc_fifo_qopt opt = { .limit = LEAF_BYTES };
	uint32_t parent = HTB_CLASS_CLIENT(id);
	struct nlmsghdr *nlh;
	int rc;

	if (htb.tbf) {
		rc = rtnl_request(htb.nl, cutter(buf, w, NLM_F_CREATE | NLM_F_EXCL, id), why, size);
		htb.tbf = rc != -ENOENT && rc != -EOPNOTSUPP && rc != -EINVAL;
		if (htb.tbf && rc < 0)
			return rc;
		if (htb.tbf)
			parent = TBF_HANDLE(id) | 1;
		else
			logmsg(LOG_INFO, "leaf qdisc tbf: %s: large packets are charged whole", why);
	}
	if (htb.fq_codel) {
		rc = rtnl_request(htb.nl, codel(buf, w, NLM_F_CREATE | NLM_F_EXCL, parent), why, size);
		if (rc != -ENOENT && rc != -EOPNOTSUPP)
			return rc;
		logmsg(LOG_INFO, "leaf qdisc fq_codel: %s: using a byte-bounded fifo", why);
		htb.fq_codel = false;
	}
	if (htb.tbf)
		return 0;	/* which has such a fifo */
	nlh = rtnl_tc(buf, w, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, parent, 0, "bfifo");
	mnl_attr_put(nlh, TCA_OPTIONS, sizeof(opt), &opt);
	return rtnl_request(htb.nl, nlh, why, size);
}

struct root {
	bool ours;
	uint32_t handle;
	char kind[16];
};

static int root_qdisc(const struct nlmsghdr *nlh, void *data)
{
	const struct tcmsg *tc = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *tb[TCA_KIND + 1];
	struct root *root = data;

	if (nlh->nlmsg_type != RTM_NEWQDISC || !netlink_parse(nlh, sizeof(*tc), tb, TCA_KIND) || !tb[TCA_KIND])
		return MNL_CB_OK;
	root->handle = tc->tcm_handle;
	snprintf(root->kind, sizeof(root->kind), "%s", mnl_attr_get_str(tb[TCA_KIND]));
	root->ours = root->handle == HTB_HANDLE && strcmp(root->kind, "htb") == 0;
	return MNL_CB_OK;
}

/* A dump of all qdiscs could miss it while other devices come and go. Without NLM_F_ECHO, only those that listen would learn of it. */
static int find_root(struct wifirr *w, struct root *root)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	int rc;

	*root = (struct root){ .ours = false };
	rc = rtnl_ask(htb.nl, rtnl_tc(buf, w, RTM_GETQDISC, 0, TC_H_ROOT, 0, NULL), NLM_F_ECHO | NLM_F_ACK, root_qdisc, root);
	return rc == -ENODEV ? 0 : rc;
}

static int delete_root(struct wifirr *w)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));

	return rtnl_request(htb.nl, rtnl_tc(buf, w, RTM_DELQDISC, 0, TC_H_ROOT, HTB_HANDLE, NULL), NULL, 0);
}

/*
 * The device's link rate: --rate, or an average of the expected throughput of
 * stations with demand (idle stations often stay at the lowest rate). The mean is
 * harmonic, as they share airtime, and reduced by 10 %, so that the queue builds
 * here; kbit/s, 0: unknown.
 */
static uint32_t expected_rate(const struct wifirr *w)
{
	uint64_t sum = 0;	/* of 10^12 / rate */
	unsigned n = 0;

	if (w->config.rate_kbit)
		return w->config.rate_kbit;
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++) {
		const struct station *s = &w->station[id];

		if (!s->used || !s->expected_kbit || !w->policy.client[id].demand)
			continue;
		sum += 1000000000000ULL / s->expected_kbit;
		n++;
	}
	return sum ? n * 900000000000ULL / sum : 0;
}

static bool stop(struct wifirr *w)
{
	bool owing = true;
	struct root root;

	classify_stop();
	if (find_root(w, &root) == 0)
		owing = root.ours && delete_root(w) < 0;
	mnl_socket_close(htb.nl);
	memset(&htb, 0, sizeof(htb));
	return owing;
}

int htb_remains(struct wifirr *w)
{
	struct root root;
	int rc;

	htb.nl = rtnl_open(NETLINK_ROUTE, 0);
	if (!htb.nl)
		return -1;
	rc = find_root(w, &root);
	classify_remains(w);	/* first: while the qdisc is there, it tells of the table */
	if (rc == 0 && root.ours) {
		logmsg(LOG_NOTICE, "%s: removing queues that are left", w->config.device);
		rc = delete_root(w);
	}
	mnl_socket_close(htb.nl);
	htb.nl = NULL;
	return rc;
}

#define REMAINS_MAX 32

struct remains {
	int ifindex[REMAINS_MAX];
	unsigned count;
};

static int on_qdisc(const struct nlmsghdr *nlh, void *data)
{
	const struct tcmsg *tc = mnl_nlmsg_get_payload(nlh);
	struct remains *remains = data;

	if (nlh->nlmsg_type == RTM_NEWQDISC && tc->tcm_parent == TC_H_ROOT && tc->tcm_handle == HTB_HANDLE &&
	    remains->count < REMAINS_MAX)
		remains->ifindex[remains->count++] = tc->tcm_ifindex;
	return MNL_CB_OK;
}

int htb_restore(struct wifirr *w)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	/* the guard knows its wifirrd's device */
	struct remains remains = { .ifindex[0] = if_nametoindex(w->config.device), .count = 1 };
	struct mnl_socket *nl = rtnl_open(NETLINK_ROUTE, 0);
	int result, lock;

	w->ifindex = 0;
	if (!nl)
		return -1;
	result = rtnl_ask(nl, rtnl_tc(buf, w, RTM_GETQDISC, 0, 0, 0, NULL), NLM_F_DUMP, on_qdisc, &remains);
	mnl_socket_close(nl);
	for (unsigned i = 0; i < remains.count; i++) {
		w->ifindex = remains.ifindex[i];
		/* the guard's device may be gone, and its table still there */
		if (i ? !if_indextoname(w->ifindex, w->config.device) : !*w->config.device)
			continue;
		lock = claim_device(w->config.device, KILLED_WAIT_MS);
		if (lock < 0)
			continue;	/* a wifirrd is running on it */
		if (htb_remains(w) < 0) {
			logmsg(LOG_ERR, "%s: cannot restore everything", w->config.device);
			result = -1;
		}
		close(lock);
	}
	return result;
}

static int start(struct wifirr *w, char *reason, size_t size)
{
	char buf[512] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct tc_htb_glob glob = { .version = 3, .rate2quantum = 1, .defcls = HTB_CLASS_DEFAULT & 0xffff };
	struct nlattr *options;
	struct nlmsghdr *nlh;
	struct root root;
	char why[128];
	size_t len;
	int rc;

	htb.tbf = htb.fq_codel = true;
	htb.slot_ms = w->config.policy.slot_ms;
	htb.mtu = w->mtu;
	htb.rate_kbit = expected_rate(w);
	htb.nl = rtnl_open(NETLINK_ROUTE, 0);
	if (!htb.nl) {
		snprintf(reason, size, "netlink: %s", strerror(errno));
		return -1;
	}
	if (find_root(w, &root) < 0) {
		snprintf(reason, size, "cannot list the qdiscs of %s", w->config.device);
		goto fail;
	}
	if (root.handle) {
		snprintf(reason, size, "%s already has a root qdisc, %s %x:, which wifirrd will not replace (remove it, or do not schedule this device)",
			 w->config.device, root.kind, root.handle >> 16);
		goto fail;
	}

	if (!htb.rate_kbit && !w->wireless) {
		snprintf(reason, size, "--rate (option rate): must be given: %s reports no link rate", w->config.device);
		goto fail;
	}
	if (htb.rate_kbit && w->config.trickle_kbit >= htb.rate_kbit) {
		snprintf(reason, size, "--trickle %u: must be below the link's rate of %u kbit/s", w->config.trickle_kbit, htb.rate_kbit);
		goto fail;
	}

	if (guard_start(reason, size) < 0)
		goto fail;
	nlh = rtnl_tc(buf, w, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, TC_H_ROOT, HTB_HANDLE, "htb");
	options = mnl_attr_nest_start(nlh, TCA_OPTIONS);
	mnl_attr_put(nlh, TCA_HTB_INIT, sizeof(glob), &glob);
	mnl_attr_nest_end(nlh, options);
	rc = rtnl_request(htb.nl, nlh, why, sizeof(why));
	if (rc < 0) {
		snprintf(reason, size, "qdisc on %s: %s%s", w->config.device, why,
			 rc == -ENOENT ? " (kernel without sch_htb)" : rc == -EPERM ? " (must be root)" : "");
		goto fail;
	}
	nlh = link_classes(buf, &len, w, NLM_F_CREATE);
	if (rtnl_batch(htb.nl, buf, len, nlh, reason, size) == 0 && classify_start(w, htb.nl, reason, size) == 0) {
		update_rates(w);
		return 0;
	}
	delete_root(w);
fail:
	mnl_socket_close(htb.nl);
	memset(&htb, 0, sizeof(htb));
	return -1;
}

static void delete_class(struct wifirr *w, uint16_t id)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));

	rtnl_request(htb.nl, rtnl_tc(buf, w, RTM_DELTCLASS, 0, HTB_CLASS_LINK, HTB_CLASS_CLIENT(id), NULL), NULL, 0);
	htb.created[id] = false;
}

static void del(struct wifirr *w, uint16_t id)
{
	if (!htb.created[id])
		return;
	classify_client(w, id, false, NULL, 0);	/* until the flush, packets for the deleted class go to the default class */
	delete_class(w, id);
}

static bool create(struct wifirr *w, uint16_t id, char *why, size_t size)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));

	if (rtnl_request(htb.nl, client_class(buf, w, NLM_F_CREATE | NLM_F_EXCL, id), why, size) < 0 ||
	    put_leaf(w, id, why, size) < 0) {
		delete_class(w, id);	/* or there could not be one the next time */
		return false;
	}
	htb.created[id] = true;
	if (classify_client(w, id, true, why, size) < 0)
		del(w, id);
	return htb.created[id];
}

static void also(struct wifirr *w, uint16_t id, unsigned at, bool there)
{
	if (htb.created[id] && classify_also(w, id, at, there, NULL, 0) < 0)
		del(w, id);	/* the next flush makes it again */
}

static void update_leaf(struct wifirr *w, uint16_t id, struct nlmsghdr *nlh)
{
	if (rtnl_request(htb.nl, nlh, NULL, 0) < 0)
		del(w, id);	/* as above */
}

/* Applies a new slot or MTU to the existing queues. */
static void update_leaves(struct wifirr *w)
{
	char buf[512] __attribute__((aligned(NLMSG_ALIGNTO)));
	bool slot = htb.fq_codel && htb.slot_ms != w->config.policy.slot_ms;
	bool mtu = htb.tbf && htb.mtu != w->mtu;

	htb.slot_ms = w->config.policy.slot_ms;
	htb.mtu = w->mtu;
	if (!slot && !mtu)
		return;
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (htb.created[id] && mtu)
			update_leaf(w, id, cutter(buf, w, 0, id));
		if (htb.created[id] && slot)
			update_leaf(w, id, codel(buf, w, 0, htb.tbf ? TBF_HANDLE(id) | 1 : HTB_CLASS_CLIENT(id)));
	}
}

/* Makes classes for clients that have come, and for those that could not have one before. */
static int flush(struct wifirr *w)
{
	char why[128] = "no memory";
	bool failed = false;

	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].backed && !htb.created[id] && !create(w, id, why, sizeof(why)))
			failed = true;
	if (failed && !htb.failed)
		logmsg(LOG_WARNING, "class for a client: %s (trying again)", why);
	htb.failed = failed;
	return classify_flush();
}

static int apply(struct wifirr *w, const uint16_t *ids, size_t n)
{
	static char buf[BATCH] __attribute__((aligned(NLMSG_ALIGNTO)));
	uint32_t rate = expected_rate(w);
	struct nlmsghdr *nlh = NULL;
	bool link = false, all;
	char why[128];
	size_t len = 0;
	int rc;

	/* a small change of the estimate is no reason to change every class */
	if (w->config.rate_kbit ? rate != htb.rate_kbit :
	    rate && (rate > htb.rate_kbit + htb.rate_kbit / 8 || rate < htb.rate_kbit - htb.rate_kbit / 8)) {
		htb.rate_kbit = rate;
		link = true;
	}
	update_leaves(w);
	if (!htb.rate_kbit)
		return 0;	/* no station's rate is known yet: nothing to shape to */
	all = update_rates(w) || link;
	if (htb.scheduling != w->policy.scheduling) {
		htb.scheduling = w->policy.scheduling;
		link = all = true;
	}
	if (link)
		nlh = link_classes(buf, &len, w, 0);
	for (size_t i = 0; i < (all ? POLICY_CLIENTS_MAX : n); i++) {
		uint16_t id = all ? i : ids[i];

		if (!htb.created[id])
			continue;
		nlh = client_class(buf + len, w, 0, id);
		len += nlh->nlmsg_len;
	}
	if (!nlh)
		return 0;
	rc = rtnl_batch(htb.nl, buf, len, nlh, why, sizeof(why));
	if (rc < 0)
		logmsg(LOG_WARNING, "changing classes: %s", why);
	return rc;
}

struct counters {
	struct wifirr *w;
	bool ours;
};

static int class_counters(const struct nlmsghdr *nlh, void *data)
{
	const struct tcmsg *tc = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *tb[TCA_STATS2 + 1], *stats[TCA_STATS_QUEUE + 1];
	struct counters *counters = data;
	uint32_t id;

	if (nlh->nlmsg_type != RTM_NEWTCLASS || !netlink_parse(nlh, sizeof(*tc), tb, TCA_STATS2) ||
	    TC_H_MAJ(tc->tcm_handle) != HTB_HANDLE)
		return MNL_CB_OK;
	counters->ours = true;
	id = TC_H_MIN(tc->tcm_handle) - TC_H_MIN(HTB_CLASS_CLIENT(0));
	if (id >= POLICY_CLIENTS_MAX || !htb.created[id] || !tb[TCA_STATS2])
		return MNL_CB_OK;
	nl80211_parse_nested(tb[TCA_STATS2], stats, TCA_STATS_QUEUE);
	counters->w->station[id].bytes = nl80211_u64(stats[TCA_STATS_BASIC]);	/* its first field */
	if (stats[TCA_STATS_QUEUE] && mnl_attr_get_payload_len(stats[TCA_STATS_QUEUE]) >= sizeof(struct gnet_stats_queue))
		counters->w->station[id].waiting = ((struct gnet_stats_queue *)mnl_attr_get_payload(stats[TCA_STATS_QUEUE]))->backlog;
	return MNL_CB_OK;
}

static int read_counters(struct wifirr *w)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct counters counters = { .w = w };
	int rc = rtnl_ask(htb.nl, rtnl_tc(buf, w, RTM_GETTCLASS, 0, HTB_HANDLE, 0, NULL), NLM_F_DUMP, class_counters, &counters);

	if (rc < 0)
		return rc;
	return counters.ours ? 0 : -ENOENT;
}

const struct backend htb_backend = {
	.name = "htb",
	.start = start,
	.apply = apply,
	.read = read_counters,
	.del = del,
	.also = also,
	.flush = flush,
	.stop = stop,
};
