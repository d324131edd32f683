/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <syslog.h>
#include <unistd.h>

#include "files.h"
#include "hostapd.h"
#include "nl80211.h"
#include "wifirrd.h"

#define PREFIX RUN_DIR "/phy"
#define LEASE_SIZE 128
#define WEIGHT_TRIES 10

/* One item per line: "rts WIPHY N", "weights WIPHY ACTIVE WAITING", "windows WIPHY". */
int lease_write(int lock, const struct lease *lease)
{
	char text[LEASE_SIZE];
	size_t len = 0;

	if (lease->noted & LEASE_RTS)
		len += snprintf(text + len, sizeof(text) - len, "rts %u %u\n", lease->wiphy, lease->rts);
	if (lease->noted & LEASE_WEIGHTS)
		len += snprintf(text + len, sizeof(text) - len, "weights %u %u %u\n", lease->wiphy, lease->active, lease->waiting);
	if (lease->noted & LEASE_WINDOWS)
		len += snprintf(text + len, sizeof(text) - len, "windows %u\n", lease->wiphy);
	if (pwrite(lock, text, len, 0) != (ssize_t)len || ftruncate(lock, len) < 0)
		return -1;
	return 0;
}

static void read_lease(int fd, char text[LEASE_SIZE])
{
	ssize_t len = pread(fd, text, LEASE_SIZE - 1, 0);

	text[len > 0 ? len : 0] = '\0';
}

struct weights {
	struct nl80211 *nl, dump;
	unsigned active, waiting, count;
	bool found;
	int served[NL80211_SERVED_MAX], ifindex, result;
};

static void give_weight(void *data, const struct nl80211_station *s)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct weights *g = data;

	if (!s->weight || s->weight == NL80211_WEIGHT_DEFAULT || !policy_weight_possible(s->weight, g->active, g->waiting))
		return;
	g->found = true;
	if (nl80211_talk(g->nl, nl80211_weight(g->nl, buf, g->ifindex, s->mac, NL80211_WEIGHT_DEFAULT), NULL, NULL) < 0 &&
	    errno != ENOENT && errno != ENODEV && errno != ENETDOWN)
		g->result = -1;
}

static void note_interface(void *data, const struct nl80211_interface *seen)
{
	struct weights *g = data;

	if ((nl80211_serves_stations(seen) || nl80211_has_neighbours(seen)) && g->count < NL80211_SERVED_MAX)
		g->served[g->count++] = seen->ifindex;
}

/* Resets the weight of each station that has one of ours. */
static int restore_weights(struct nl80211 *nl, uint32_t wiphy, unsigned active, unsigned waiting)
{
	static struct weights g;

	g = (struct weights){ .nl = nl, .active = active, .waiting = waiting };
	if (nl80211_open(&g.dump) < 0 || nl80211_get_interfaces(nl, wiphy, note_interface, &g) < 0)
		g.result = -1;
	for (unsigned i = 0, tries = 0; i < g.count; i++) {
		g.ifindex = g.served[i];
		g.found = false;
		if (nl80211_get_stations(&g.dump, g.ifindex, give_weight, &g) < 0 && errno != ENODEV)
			g.result = -1;
		/* a list that one leaves meanwhile lacks another */
		if (g.found && tries++ < WEIGHT_TRIES)
			i--;
	}
	nl80211_close(&g.dump);
	return g.result;
}

struct windows {
	struct nl80211 nl;
	int hostapd, result;
};

/*
 * The configuration says what the operator's own windows are. A lease would not know of those that "wifi reload" has set
 * since, nor of access points that are new or have other names. A hostapd that has ended needs no restoring.
 */
static void give_windows(void *data, const struct nl80211_interface *seen)
{
	struct windows *g = data;
	struct hostapd_own own;

	if (seen->type != NL80211_IFTYPE_AP || seen->links)
		return;
	hostapd_read_own(seen->name, &own);
	if (hostapd_announce(g->hostapd, seen->name, &own.windows, true, true) < 0) {
		if (errno != ENOENT && errno != ECONNREFUSED)
			g->result = -1;
		return;
	}
	if (hostapd_collect(g->hostapd, HOSTAPD_ANSWERS, HOSTAPD_ANSWER_MS).done < HOSTAPD_ANSWERS ||
	    hostapd_set_queue(&g->nl, seen->ifindex, &own.queue, 0) < 0)
		g->result = -1;
}

/* Of all the wiphy's access points: hostapd may have renamed those that had larger ones. */
static int restore_windows(struct nl80211 *nl, uint32_t wiphy)
{
	static struct windows g;

	g = (struct windows){ .hostapd = hostapd_open() };
	if (nl80211_open(&g.nl) < 0 || nl80211_get_interfaces(nl, wiphy, give_windows, &g) < 0)
		g.result = -1;
	close(g.hostapd);
	nl80211_close(&g.nl);
	return g.result;
}

unsigned lease_restore(int lock, uint32_t *rts)
{
	static struct nl80211 nl;
	char text[LEASE_SIZE], *line, *rest = text;
	unsigned left = 0;

	read_lease(lock, text);
	if (!*text)
		return 0;
	if (nl80211_open(&nl) < 0)
		return LEASE_WEIGHTS;
	while ((line = strsep(&rest, "\n"))) {
		const char *what = strsep(&line, " ");
		unsigned number[3], n = 0;

		while (line && n < 3 && line_number(&line, UINT32_MAX, &number[n]))
			n++;
		if (strcmp(what, "windows") == 0 && n == 1 && restore_windows(&nl, number[0]) < 0)
			left |= LEASE_WINDOWS;
		if (strcmp(what, "rts") == 0 && n == 2 && nl80211_set_rts(&nl, number[0], number[1]) < 0 && errno != ENODEV) {
			*rts = number[1];
			left |= LEASE_RTS;
		}
		if (strcmp(what, "weights") == 0 && n == 3 && restore_weights(&nl, number[0], number[1], number[2]) < 0)
			left |= LEASE_WEIGHTS;
	}
	nl80211_close(&nl);
	return !left && ftruncate(lock, 0) < 0 ? LEASE_WEIGHTS : left;
}

void lease_path(char path[LEASE_PATH], uint32_t wiphy)
{
	snprintf(path, LEASE_PATH, PREFIX "%u", wiphy);
}

int lease_take(const char *path, unsigned wait)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -1;
	for (unsigned waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += 50) {
		if (waited >= wait)
			goto taken;
		wait_ms(50);
	}
	return fd;
taken:
	close(fd);
	errno = EWOULDBLOCK;
	return -1;
}

bool lease_has_windows(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char text[LEASE_SIZE];

	read_lease(fd, text);
	if (fd >= 0)
		close(fd);
	return strstr(text, "windows ");
}

bool lease_busy(uint32_t wiphy)
{
	char path[LEASE_PATH];
	bool busy;
	int fd;

	lease_path(path, wiphy);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
	if (fd >= 0)
		close(fd);
	return busy;
}

/* Restores one lease. Returns false, so that files_each() continues. */
static bool restore_file(void *data, const char *path)
{
	const char *number = path + strlen(PREFIX);
	int *result = data, lock;
	uint32_t rts;

	if (number[strspn(number, "0123456789")])
		return false;	/* the control socket of a device such as phy0-ap0 */
	lock = lease_take(path, KILLED_WAIT_MS);
	if (lock < 0 && errno == EWOULDBLOCK) {
		logmsg(LOG_NOTICE, "%s: a wifirrd is running on this radio", path);
		return false;
	}
	if (lock < 0 || lease_restore(lock, &rts)) {
		logmsg(LOG_ERR, "%s: cannot restore everything%s%s", path, lock < 0 ? ": " : "", lock < 0 ? strerror(errno) : "");
		*result = -1;
	}
	if (lock >= 0)
		close(lock);
	return false;
}

int lease_restore_all(void)
{
	int result = 0;

	files_each(RUN_DIR, "phy", "", restore_file, &result);
	return result;
}
