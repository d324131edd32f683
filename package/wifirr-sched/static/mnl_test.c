/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what the netlink functions make of good and bad input. Built with
 * libmnl and with mnl.c, it must print the same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/genetlink.h>
#include <linux/rtnetlink.h>

#include <libmnl/libmnl.h>

static void hex(const char *what, const void *data, size_t len)
{
	const unsigned char *p = data;

	printf("%s %zu:", what, len);
	for (size_t i = 0; i < len; i++)
		printf(" %02x", p[i]);
	printf("\n");
}

static struct nlmsghdr *message(char *buf)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nlattr *outer, *inner;

	nlh->nlmsg_type = RTM_NEWTCLASS;
	nlh->nlmsg_seq = 7;
	memset(mnl_nlmsg_put_extra_header(nlh, sizeof(struct tcmsg)), 0x5a, sizeof(struct tcmsg));
	mnl_attr_put_strz(nlh, 1, "htb");
	mnl_attr_put_str(nlh, 2, "abcde");
	outer = mnl_attr_nest_start(nlh, 3);
	mnl_attr_put_u8(nlh, 4, 0x12);
	mnl_attr_put_u16(nlh, 5, 0x1234);
	inner = mnl_attr_nest_start(nlh, 6);
	mnl_attr_put_u32(nlh, 7, 0x12345678);
	mnl_attr_put_u64(nlh, 8, 0x123456789abcdef0);
	mnl_attr_nest_end(nlh, inner);
	mnl_attr_put(nlh, 9, 0, NULL);
	mnl_attr_nest_end(nlh, outer);
	mnl_attr_put(nlh, 10, 6, "\0\1\2\3\4");
	return nlh;
}

static void show(const struct nlattr *attr)
{
	static const enum mnl_attr_data_type types[] = { MNL_TYPE_U8, MNL_TYPE_U16, MNL_TYPE_U32, MNL_TYPE_U64, MNL_TYPE_NUL_STRING };

	printf("type %u len %u ", mnl_attr_get_type(attr), mnl_attr_get_len(attr));
	hex("payload", mnl_attr_get_payload(attr), mnl_attr_get_payload_len(attr));
	for (size_t i = 0; i < MNL_ARRAY_SIZE(types); i++) {
		errno = 0;
		int ret = mnl_attr_validate(attr, types[i]);

		printf(" %d/%d", ret, errno);
	}
	printf("\n");
}

static int on_data(const struct nlmsghdr *nlh, void *data)
{
	(void)data;
	printf(" data type %u len %zu", nlh->nlmsg_type, mnl_nlmsg_get_payload_len(nlh));
	return nlh->nlmsg_type == 0x7fff ? MNL_CB_STOP : MNL_CB_OK;
}

static int on_control(const struct nlmsghdr *nlh, void *data)
{
	(void)data;
	printf(" control %u", nlh->nlmsg_type);
	return MNL_CB_OK;
}

static void run(const void *buf, size_t len)
{
	static mnl_cb_t controls[NLMSG_MIN_TYPE] = { [NLMSG_ERROR] = on_control };
	int ret;

	errno = 0;
	ret = mnl_cb_run(buf, len, 7, 9, on_data, NULL);
	printf(" = %d/%d;", ret, errno);
	errno = 0;
	ret = mnl_cb_run2(buf, len, 7, 9, on_data, NULL, controls, MNL_ARRAY_SIZE(controls));
	printf(" = %d/%d\n", ret, errno);
}

int main(void)
{
	static char buf[4096], cut[4096];
	struct nlmsghdr *nlh;
	const struct nlattr *attr, *nested;

	/* libmnl 1.0.4 leaves the padding as it was. */
	memset(buf, 0, sizeof(buf));
	nlh = message(buf);
	hex("message", buf, nlh->nlmsg_len + 8);
	mnl_attr_for_each(attr, nlh, sizeof(struct tcmsg)) {
		show(attr);
		if (mnl_attr_get_type(attr) == 3)
			mnl_attr_for_each_nested(nested, attr)
				show(nested);
	}
	hex("offset", mnl_nlmsg_get_payload_offset(nlh, GENL_HDRLEN), 8);

	/* Every truncation, and every value of the length fields near the true one. */
	for (size_t len = 0; len <= nlh->nlmsg_len; len++) {
		memcpy(cut, buf, sizeof(buf));
		run(cut, len);
		((struct nlmsghdr *)cut)->nlmsg_len = len;
		printf("%zu: ok %d", len, mnl_nlmsg_ok((struct nlmsghdr *)cut, nlh->nlmsg_len));
		printf(" %d", mnl_attr_ok((struct nlattr *)(cut + 36), (int)len - 36));
		run(cut, nlh->nlmsg_len);
	}

	/* Streams of random messages: control types, foreign sequence numbers and ports, flags, errors. */
	srand(1);
	for (int i = 0; i < 2000; i++) {
		static const uint16_t types[] = { NLMSG_NOOP, NLMSG_ERROR, NLMSG_DONE, NLMSG_OVERRUN, 5, RTM_NEWTCLASS, 0x7fff };
		size_t used = 0;

		for (int m = rand() % 5; m >= 0; m--) {
			nlh = mnl_nlmsg_put_header(cut + used);
			nlh->nlmsg_type = types[rand() % MNL_ARRAY_SIZE(types)];
			nlh->nlmsg_seq = rand() % 8 ? 7 : rand() % 9;
			nlh->nlmsg_pid = rand() % 8 ? 9 : rand() % 11;
			nlh->nlmsg_flags = rand() % 16 ? 0 : NLM_F_DUMP_INTR;
			if (rand() % 8)
				*(int *)mnl_nlmsg_put_extra_header(nlh, sizeof(struct nlmsgerr)) = rand() % 9 - 4;
			used += nlh->nlmsg_len;
		}
		run(cut, used - (rand() % 4 ? 0 : rand() % 20));
	}
	return 0;
}
