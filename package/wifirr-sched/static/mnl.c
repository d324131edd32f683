/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of libmnl's interface that wifirrd uses, for packages that are built
 * without an SDK: those link everything statically, and Debian has libmnl only
 * as a shared library, and not for MIPS. Everywhere else wifirrd is linked with
 * libmnl itself. test.c holds the two against each other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <libmnl/libmnl.h>

struct mnl_socket {
	int fd;
	struct sockaddr_nl addr;
};

struct mnl_socket *mnl_socket_open2(int bus, int flags)
{
	struct mnl_socket *nl = calloc(1, sizeof(*nl));

	if (!nl)
		return NULL;
	nl->fd = socket(AF_NETLINK, SOCK_RAW | flags, bus);
	if (nl->fd < 0) {
		free(nl);
		return NULL;
	}
	return nl;
}

struct mnl_socket *mnl_socket_open(int bus)
{
	return mnl_socket_open2(bus, 0);
}

int mnl_socket_bind(struct mnl_socket *nl, unsigned int groups, pid_t pid)
{
	socklen_t len = sizeof(nl->addr);

	nl->addr = (struct sockaddr_nl){ .nl_family = AF_NETLINK, .nl_groups = groups, .nl_pid = pid };
	if (bind(nl->fd, (struct sockaddr *)&nl->addr, len) < 0)
		return -1;
	/* The kernel chose the port id. */
	return getsockname(nl->fd, (struct sockaddr *)&nl->addr, &len);
}

int mnl_socket_close(struct mnl_socket *nl)
{
	int ret = close(nl->fd);

	free(nl);
	return ret;
}

int mnl_socket_get_fd(const struct mnl_socket *nl)
{
	return nl->fd;
}

unsigned int mnl_socket_get_portid(const struct mnl_socket *nl)
{
	return nl->addr.nl_pid;
}

ssize_t mnl_socket_sendto(const struct mnl_socket *nl, const void *req, size_t size)
{
	static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	return sendto(nl->fd, req, size, 0, (const struct sockaddr *)&kernel, sizeof(kernel));
}

/* A message that did not fit is ENOSPC. */
ssize_t mnl_socket_recvfrom(const struct mnl_socket *nl, void *buf, size_t size)
{
	struct sockaddr_nl from;
	struct iovec iov = { .iov_base = buf, .iov_len = size };
	struct msghdr msg = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t len = recvmsg(nl->fd, &msg, 0);

	if (len < 0)
		return -1;
	if (msg.msg_flags & MSG_TRUNC) {
		errno = ENOSPC;
		return -1;
	}
	if (msg.msg_namelen != sizeof(from)) {
		errno = EINVAL;
		return -1;
	}
	return len;
}

int mnl_socket_setsockopt(const struct mnl_socket *nl, int type, void *buf, socklen_t len)
{
	return setsockopt(nl->fd, SOL_NETLINK, type, buf, len);
}

size_t mnl_nlmsg_get_payload_len(const struct nlmsghdr *nlh)
{
	return nlh->nlmsg_len - MNL_NLMSG_HDRLEN;
}

struct nlmsghdr *mnl_nlmsg_put_header(void *buf)
{
	struct nlmsghdr *nlh = buf;

	memset(nlh, 0, MNL_NLMSG_HDRLEN);
	nlh->nlmsg_len = MNL_NLMSG_HDRLEN;
	return nlh;
}

void *mnl_nlmsg_put_extra_header(struct nlmsghdr *nlh, size_t size)
{
	void *header = mnl_nlmsg_get_payload_tail(nlh);

	memset(header, 0, MNL_ALIGN(size));
	nlh->nlmsg_len += MNL_ALIGN(size);
	return header;
}

bool mnl_nlmsg_ok(const struct nlmsghdr *nlh, int len)
{
	return len >= (int)sizeof(*nlh) && nlh->nlmsg_len >= sizeof(*nlh) && (int)nlh->nlmsg_len <= len;
}

struct nlmsghdr *mnl_nlmsg_next(const struct nlmsghdr *nlh, int *len)
{
	*len -= MNL_ALIGN(nlh->nlmsg_len);
	return (struct nlmsghdr *)((char *)nlh + MNL_ALIGN(nlh->nlmsg_len));
}

/* A sequence number or port id of 0, here or in the message, stands for any: events have none. */
bool mnl_nlmsg_seq_ok(const struct nlmsghdr *nlh, unsigned int seq)
{
	return !nlh->nlmsg_seq || !seq || nlh->nlmsg_seq == seq;
}

bool mnl_nlmsg_portid_ok(const struct nlmsghdr *nlh, unsigned int portid)
{
	return !nlh->nlmsg_pid || !portid || nlh->nlmsg_pid == portid;
}

void *mnl_nlmsg_get_payload(const struct nlmsghdr *nlh)
{
	return (char *)nlh + MNL_NLMSG_HDRLEN;
}

void *mnl_nlmsg_get_payload_offset(const struct nlmsghdr *nlh, size_t offset)
{
	return (char *)nlh + MNL_NLMSG_HDRLEN + MNL_ALIGN(offset);
}

void *mnl_nlmsg_get_payload_tail(const struct nlmsghdr *nlh)
{
	return (char *)nlh + MNL_ALIGN(nlh->nlmsg_len);
}

uint16_t mnl_attr_get_type(const struct nlattr *attr)
{
	return attr->nla_type & NLA_TYPE_MASK;
}

uint16_t mnl_attr_get_len(const struct nlattr *attr)
{
	return attr->nla_len;
}

uint16_t mnl_attr_get_payload_len(const struct nlattr *attr)
{
	return attr->nla_len - MNL_ATTR_HDRLEN;
}

void *mnl_attr_get_payload(const struct nlattr *attr)
{
	return (char *)attr + MNL_ATTR_HDRLEN;
}

uint8_t mnl_attr_get_u8(const struct nlattr *attr)
{
	return *(uint8_t *)mnl_attr_get_payload(attr);
}

uint16_t mnl_attr_get_u16(const struct nlattr *attr)
{
	return *(uint16_t *)mnl_attr_get_payload(attr);
}

uint32_t mnl_attr_get_u32(const struct nlattr *attr)
{
	return *(uint32_t *)mnl_attr_get_payload(attr);
}

/* Attributes are aligned to 4 bytes only. */
uint64_t mnl_attr_get_u64(const struct nlattr *attr)
{
	uint64_t value;

	memcpy(&value, mnl_attr_get_payload(attr), sizeof(value));
	return value;
}

const char *mnl_attr_get_str(const struct nlattr *attr)
{
	return mnl_attr_get_payload(attr);
}

void mnl_attr_put(struct nlmsghdr *nlh, uint16_t type, size_t len, const void *data)
{
	struct nlattr *attr = mnl_nlmsg_get_payload_tail(nlh);
	size_t size = MNL_ATTR_HDRLEN + len;

	attr->nla_type = type;
	attr->nla_len = size;
	if (len)
		memcpy(mnl_attr_get_payload(attr), data, len);
	memset((char *)attr + size, 0, MNL_ALIGN(size) - size);
	nlh->nlmsg_len += MNL_ALIGN(size);
}

void mnl_attr_put_u8(struct nlmsghdr *nlh, uint16_t type, uint8_t data)
{
	mnl_attr_put(nlh, type, sizeof(data), &data);
}

void mnl_attr_put_u16(struct nlmsghdr *nlh, uint16_t type, uint16_t data)
{
	mnl_attr_put(nlh, type, sizeof(data), &data);
}

void mnl_attr_put_u32(struct nlmsghdr *nlh, uint16_t type, uint32_t data)
{
	mnl_attr_put(nlh, type, sizeof(data), &data);
}

void mnl_attr_put_u64(struct nlmsghdr *nlh, uint16_t type, uint64_t data)
{
	mnl_attr_put(nlh, type, sizeof(data), &data);
}

void mnl_attr_put_str(struct nlmsghdr *nlh, uint16_t type, const char *data)
{
	mnl_attr_put(nlh, type, strlen(data), data);
}

void mnl_attr_put_strz(struct nlmsghdr *nlh, uint16_t type, const char *data)
{
	mnl_attr_put(nlh, type, strlen(data) + 1, data);
}

struct nlattr *mnl_attr_nest_start(struct nlmsghdr *nlh, uint16_t type)
{
	struct nlattr *start = mnl_nlmsg_get_payload_tail(nlh);

	mnl_attr_put(nlh, NLA_F_NESTED | type, 0, NULL);
	return start;
}

void mnl_attr_nest_end(struct nlmsghdr *nlh, struct nlattr *start)
{
	start->nla_len = (char *)mnl_nlmsg_get_payload_tail(nlh) - (char *)start;
}

/* Only the types that wifirrd asks for; any other is refused. */
int mnl_attr_validate(const struct nlattr *attr, enum mnl_attr_data_type type)
{
	static const uint8_t sizes[MNL_TYPE_MAX] = {
		[MNL_TYPE_U8] = 1, [MNL_TYPE_U16] = 2, [MNL_TYPE_U32] = 4, [MNL_TYPE_U64] = 8,
	};
	size_t len = mnl_attr_get_payload_len(attr);

	if (type == MNL_TYPE_NUL_STRING) {
		if (len && !mnl_attr_get_str(attr)[len - 1])
			return 0;
		errno = len ? EINVAL : ERANGE;
		return -1;
	}
	if (type >= MNL_TYPE_MAX || !sizes[type]) {
		errno = EINVAL;
		return -1;
	}
	if (len == sizes[type])
		return 0;
	errno = ERANGE;
	return -1;
}

bool mnl_attr_ok(const struct nlattr *attr, int len)
{
	return len >= (int)sizeof(*attr) && attr->nla_len >= sizeof(*attr) && (int)attr->nla_len <= len;
}

struct nlattr *mnl_attr_next(const struct nlattr *attr)
{
	return (struct nlattr *)((char *)attr + MNL_ALIGN(attr->nla_len));
}

static int on_error(const struct nlmsghdr *nlh)
{
	const struct nlmsgerr *err = mnl_nlmsg_get_payload(nlh);

	if (nlh->nlmsg_len < MNL_NLMSG_HDRLEN + sizeof(*err)) {
		errno = EBADMSG;
		return MNL_CB_ERROR;
	}
	/* Some subsystems send positive values. */
	errno = abs(err->error);
	return err->error ? MNL_CB_ERROR : MNL_CB_STOP;
}

int mnl_cb_run2(const void *buf, size_t size, unsigned int seq, unsigned int portid,
		mnl_cb_t on_data, void *data, mnl_cb_t *on_control, unsigned int controls)
{
	const struct nlmsghdr *nlh = buf;
	int len = size, ret = MNL_CB_OK;

	for (; mnl_nlmsg_ok(nlh, len); nlh = mnl_nlmsg_next(nlh, &len)) {
		uint16_t type = nlh->nlmsg_type;

		if (!mnl_nlmsg_portid_ok(nlh, portid)) {
			errno = ESRCH;
			return -1;
		}
		if (!mnl_nlmsg_seq_ok(nlh, seq)) {
			errno = EPROTO;
			return -1;
		}
		if (nlh->nlmsg_flags & NLM_F_DUMP_INTR) {
			errno = EINTR;
			return -1;
		}
		if (type >= NLMSG_MIN_TYPE)
			ret = on_data ? on_data(nlh, data) : MNL_CB_OK;
		else if (type < controls)
			/* The caller's table replaces the defaults, its gaps included. */
			ret = on_control && on_control[type] ? on_control[type](nlh, data) : MNL_CB_OK;
		else if (type == NLMSG_ERROR)
			ret = on_error(nlh);
		else
			ret = type == NLMSG_DONE ? MNL_CB_STOP : MNL_CB_OK;
		if (ret <= MNL_CB_STOP)
			break;
	}
	return ret;
}

int mnl_cb_run(const void *buf, size_t size, unsigned int seq, unsigned int portid, mnl_cb_t on_data, void *data)
{
	return mnl_cb_run2(buf, size, seq, portid, on_data, data, NULL, 0);
}
