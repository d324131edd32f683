/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: a driver that does not answer to a survey. It is asked when the
 * file STALL is removed. Until then every other request to nl80211 is one
 * that the kernel would not answer either, and its command goes to STALL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/nl80211.h>

static _Atomic int waiting;

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t to_size)
{
	ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "sendto");
	const char *path = getenv("STALL");
	const struct nlmsghdr *nlh = data;
	const struct genlmsghdr *genl = NLMSG_DATA(nlh);
	int protocol = 0;
	socklen_t protocol_size = sizeof(protocol);
	FILE *file;

	getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &protocol_size);
	if (protocol != NETLINK_GENERIC || access(path, F_OK) < 0 || nlh->nlmsg_type == GENL_ID_CTRL)
		return next(fd, data, size, flags, to, to_size);
	if (genl->cmd == NL80211_CMD_GET_SURVEY) {
		waiting = 1;
		while (access(path, F_OK) == 0)
			usleep(10000);
		waiting = 0;
	} else if (waiting && (file = fopen(path, "a"))) {
		fprintf(file, "%d\n", genl->cmd);
		fclose(file);
	}
	return next(fd, data, size, flags, to, to_size);
}
