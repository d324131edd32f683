/* SPDX-License-Identifier: Apache-2.0 */
#include "hostapd.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "files.h"
#include "nl80211.h"

#define SOCKETS "/var/run/hostapd"
#define CONFIGURATIONS "/var/run"	/* hostapd-*.conf */
#define QUEUE "tx_queue_data2_"		/* best effort */
#define BURST_MAX_MS 1000

/* hostapd_config_defaults() */
static const struct hostapd_own defaults = {
	.windows = { .be_min = 4, .be_max = 10, .bk_min = 4, .bk_max = 10 },
	.queue = { .cwmin = 15, .cwmax = 63, .aifs = 3 },
};

/* In the order in which windows grow: the first two are CWmax. */
static const struct {
	const char *name;
	size_t offset;
} parameter[HOSTAPD_ANSWERS] = {
	{ "wmm_ac_be_cwmax", offsetof(struct hostapd_windows, be_max) },
	{ "wmm_ac_bk_cwmax", offsetof(struct hostapd_windows, bk_max) },
	{ "wmm_ac_be_cwmin", offsetof(struct hostapd_windows, be_min) },
	{ "wmm_ac_bk_cwmin", offsetof(struct hostapd_windows, bk_min) },
};

static void read_queue(struct hostapd_queue *queue, const char *name, const char *value)
{
	unsigned long number = strtoul(value, NULL, 10);
	const char *point = value + strcspn(value, ".");

	if (strcmp(name, "aifs") == 0 && number <= UINT8_MAX)
		queue->aifs = number;
	else if (strcmp(name, "cwmin") == 0 && number <= INT16_MAX)
		queue->cwmin = number;
	else if (strcmp(name, "cwmax") == 0 && number <= INT16_MAX)
		queue->cwmax = number;
	else if (strcmp(name, "burst") == 0 && number <= BURST_MAX_MS)	/* hostapd reads one digit after the point, too */
		queue->burst = number * 10 + (*point && isdigit((unsigned char)point[1]) ? point[1] - '0' : 0);
}

static void read_parameter(struct hostapd_own *own, const char *name, const char *value)
{
	struct hostapd_windows *windows = &own->windows;
	unsigned long number = strtoul(value, NULL, 10);

	if (strncmp(name, QUEUE, sizeof(QUEUE) - 1) == 0)
		read_queue(&own->queue, name + sizeof(QUEUE) - 1, value);
	if (strcmp(name, "airtime_mode") == 0)
		own->sets_weights = number > 1;
	for (size_t i = 0; i < HOSTAPD_ANSWERS; i++) {
		if (strcmp(name, parameter[i].name) != 0 && (strncmp(name, "wme_ac_", 7) != 0 ||
		    strcmp(name + 7, parameter[i].name + 7) != 0))
			continue;
		if (number <= 15)
			*((uint8_t *)windows + parameter[i].offset) = number;
	}
}

struct search {
	const char *device;
	struct hostapd_own *own;
};

/* Windows and queues apply to a radio, WMM to an interface. Returns whether the file has the interface. */
static bool read_file(void *data, const char *path)
{
	struct search *search = data;
	struct hostapd_own seen = defaults;
	struct lines lines = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
	bool here = false;
	char *line;

	if (lines.fd < 0)
		return false;
	while ((line = lines_next(&lines))) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = '\0';
		if (strcmp(line, "interface") == 0 || strcmp(line, "bss") == 0) {
			here = strcmp(value, search->device) == 0;
			seen.found |= here;
		} else if (here && (strcmp(line, "wmm_enabled") == 0 || strcmp(line, "wme_enabled") == 0)) {
			seen.without_wmm = strcmp(value, "0") == 0;
		} else {
			read_parameter(&seen, line, value);
		}
	}
	close(lines.fd);
	if (seen.found)
		*search->own = seen;
	return seen.found;
}

void hostapd_read_own(const char *device, struct hostapd_own *own)
{
	struct search search = { device, own };

	*own = defaults;
	files_each(CONFIGURATIONS, "hostapd-", ".conf", read_file, &search);
}

/*
 * hostapd answers to the sender's address. An address in the abstract namespace,
 * chosen by the kernel, needs no file that hostapd's user could write to.
 */
int hostapd_open(void)
{
	struct sockaddr_un own = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0)
		bind(fd, (struct sockaddr *)&own, sizeof(own.sun_family));
	return fd;
}

static int tell(int fd, const char *device, const char *message)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };

	snprintf(to.sun_path, sizeof(to.sun_path), SOCKETS "/%s", device);
	return sendto(fd, message, strlen(message), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof(to)) < 0 ? -1 : 0;
}

int hostapd_ping(int fd, const char *device)
{
	return tell(fd, device, "PING");
}

int hostapd_announce(int fd, const char *device, const struct hostapd_windows *windows, bool lower, bool max)
{
	size_t first = max ? 0 : 2;
	char message[64];

	for (size_t n = first; n < HOSTAPD_ANSWERS; n++) {
		size_t i = lower ? HOSTAPD_ANSWERS - 1 + first - n : n;

		snprintf(message, sizeof(message), "SET %s %u", parameter[i].name,
			 *((const uint8_t *)windows + parameter[i].offset));
		if (tell(fd, device, message) < 0)
			return -1;
	}
	return HOSTAPD_ANSWERS - first;
}

int hostapd_set_queue(struct nl80211 *nl, int ifindex, const struct hostapd_queue *own, unsigned exponent)
{
	uint16_t least = (1U << exponent) - 1;
	struct nl80211_queue queue = {
		.cwmin = own->cwmin > least ? own->cwmin : least,
		.cwmax = own->cwmax > least ? own->cwmax : least,
		.aifs = own->aifs,
		.txop = (own->burst * 100 + 16) / 32,	/* as hostapd rounds it */
	};

	if (nl80211_set_queue(nl, ifindex, &queue) == 0)
		return 0;
	return errno == ENODEV || errno == ENETDOWN ? HOSTAPD_ABSENT : -1;
}

struct hostapd_answers hostapd_collect(int fd, unsigned expected, int wait_ms)
{
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	struct hostapd_answers answers = { 0 };
	char text[256];
	ssize_t len;

	for (;;) {
		len = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0 && (answers.done + answers.refused >= expected || !wait_ms ||
				poll(&readable, 1, wait_ms) <= 0))
			return answers;
		if (len < 0)
			continue;
		text[len] = '\0';
		if (strncmp(text, "PONG", 4) == 0 || strncmp(text, "OK", 2) == 0)
			answers.done++;
		else
			answers.refused++;
	}
}
