/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and dumps over a netlink socket. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "nl80211.h"
#include "wifirrd.h"

/* A reply that has not arrived by then never will; seconds. */
#define REPLY_TIMEOUT 3

struct mnl_socket *rtnl_open(int bus, unsigned groups)
{
	return netlink_open(bus, groups, REPLY_TIMEOUT);
}

static uint32_t seq;

struct nlmsghdr *rtnl_tc(void *buf, const struct wifirr *w, int type, unsigned flags, uint32_t parent, uint32_t handle,
			 const char *kind)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct tcmsg *tc;

	nlh->nlmsg_type = type;
	nlh->nlmsg_flags = NLM_F_REQUEST | flags;
	tc = mnl_nlmsg_put_extra_header(nlh, sizeof(*tc));
	tc->tcm_family = AF_UNSPEC;
	tc->tcm_ifindex = w->ifindex;
	tc->tcm_parent = parent;
	tc->tcm_handle = handle;
	if (kind)
		mnl_attr_put_strz(nlh, TCA_KIND, kind);
	return nlh;
}

/* Waits for the answer to the last request. Returns the first error up to and including that answer. */
static int take_answers(struct mnl_socket *nl, char *why, size_t size)
{
	char buf[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
	int result = 0;

	for (;;) {
		ssize_t received = mnl_socket_recvfrom(nl, buf, sizeof(buf));
		const struct nlmsghdr *nlh = (const void *)buf;
		int len = received;

		if (received < 0) {
			if (errno == EINTR)
				continue;
			snprintf(why, size, "netlink: %s", strerror(errno));
			return -errno;
		}
		for (; mnl_nlmsg_ok(nlh, len); nlh = mnl_nlmsg_next(nlh, &len)) {
			if (nlh->nlmsg_type != NLMSG_ERROR)
				continue;
			if (!result)
				result = -netlink_error(nlh, why, size);
			if (nlh->nlmsg_seq == seq)
				return result;
		}
	}
}

int rtnl_batch(struct mnl_socket *nl, const void *batch, size_t len, struct nlmsghdr *last, char *why, size_t size)
{
	last->nlmsg_flags |= NLM_F_ACK;
	last->nlmsg_seq = ++seq;
	if (mnl_socket_sendto(nl, batch, len) < 0) {
		snprintf(why, size, "netlink: %s", strerror(errno));
		return -errno;
	}
	return take_answers(nl, why, size);
}

int rtnl_request(struct mnl_socket *nl, struct nlmsghdr *nlh, char *why, size_t size)
{
	return rtnl_batch(nl, nlh, nlh->nlmsg_len, nlh, why, size);
}

int rtnl_ask(struct mnl_socket *nl, struct nlmsghdr *nlh, uint16_t flags, mnl_cb_t cb, void *data)
{
	/* the kernel returns at most this much per read */
	static char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
	unsigned portid = mnl_socket_get_portid(nl);
	int more = 1;

	nlh->nlmsg_flags |= NLM_F_REQUEST | flags;
	nlh->nlmsg_seq = ++seq;
	if (mnl_socket_sendto(nl, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	while (more > 0) {
		ssize_t len = mnl_socket_recvfrom(nl, buf, sizeof(buf));

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return -errno;
		more = mnl_cb_run(buf, len, nlh->nlmsg_seq, portid, cb, data);
		/* EINTR: the table changed during the dump; EPROTO, ESRCH: a stale reply */
		if (more < 0 && (errno == EPROTO || errno == ESRCH))
			more = 1;
	}
	return more < 0 ? -errno : 0;
}
