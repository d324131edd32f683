/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `wifirrd check DEVICE`. A driver, its firmware and hostapd do not always do what
 * they claim to support. So each function is tested by setting the value that is
 * already set: nothing changes, and a refusal shows.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "hostapd.h"
#include "lease.h"
#include "nl80211.h"
#include "wifirrd.h"

#define SLOW_MS 500

/* hostapd waits for the driver, which another program may ask for a survey (ath10k: 3 s). */
#define HOSTAPD_WAIT_MS 5000

static struct {
	struct nl80211 nl, set;
	struct nl80211_interface interface;
	struct nl80211_wiphy wiphy;
	unsigned access_points, neighbours;	/* interfaces of the radio */
	/* clients of the device */
	unsigned clients, wmm, aggregating, queues, airtime, weighed;
	char refused[128];			/* why setting a weight failed */
	char alone[64];				/* why windows of the radio are left alone */
	bool hostapd_weighs;			/* hostapd sets the clients' weights itself */
	bool busy;				/* a wifirrd is running on the radio */
} check;

static void say(const char *what, bool works, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(const char *what, bool works, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	print(STDOUT_FILENO, "%s: %s: %s\n", what, works ? "yes" : "no", text);
}

static void on_interface(void *data, const struct nl80211_interface *seen)
{
	bool here = nl80211_share_radio(seen, &check.interface);
	bool links = seen->links & nl80211_band(check.interface.mhz);
	struct hostapd_own own;

	(void)data;
	if (seen->type == NL80211_IFTYPE_AP && (here || links)) {
		hostapd_read_own(seen->name, &own);
		check.hostapd_weighs |= own.sets_weights;
		if (links || own.without_wmm)
			snprintf(check.alone, sizeof(check.alone), "%s: %s", seen->name, links ? "has links (MLO)" : "WMM is off");
	}
	if (!here)
		return;
	check.access_points += nl80211_is_access_point(seen);
	check.neighbours += nl80211_has_neighbours(seen);
}

static void on_station(void *data, const struct nl80211_station *s)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;

	(void)data;
	if (!s->authorized)
		return;
	check.clients++;
	check.wmm += s->wmm;
	check.aggregating += s->aggregates;
	check.queues += s->queues;
	check.airtime += s->has_airtime && s->airtime;
	/* the weight that it already has */
	if (!check.wiphy.airtime_fairness || !s->weight || check.busy)
		return;
	if (nl80211_talk(&check.set, nl80211_weight(&check.set, buf, check.interface.ifindex, s->mac, s->weight), NULL, NULL) == 0)
		check.weighed++;
	else
		snprintf(check.refused, sizeof(check.refused), "%s", check.set.error);
}

static bool check_weights(void)
{
	bool works = check.wiphy.airtime_fairness && !check.hostapd_weighs && !check.refused[0];

	if (!check.wiphy.airtime_fairness)
		say("airtime weights", false, "the driver does not support them");
	else if (check.hostapd_weighs)
		say("airtime weights", false, "hostapd sets them by itself (airtime_mode)");
	else if (check.refused[0])
		say("airtime weights", false, "the driver supports them, but refused to set a client's current weight again: %s", check.refused);
	else if (check.busy)
		say("airtime weights", true, "the driver supports them (not tried: a wifirrd is running on the radio)");
	else if (!check.weighed)
		say("airtime weights", true, "the driver supports them (not tried: there are no clients)");
	else
		say("airtime weights", true, "the driver supports them, and accepted the current weights of %u clients again", check.weighed);
	if (!check.clients)
		say("airtime of clients", false, "not known: there are no clients");
	else
		say("airtime of clients", check.airtime, "the driver reports it for %u of %u clients%s", check.airtime, check.clients,
		    check.airtime ? "" : ": wifirrd cannot see whether weights have an effect");
	return works;
}

static void check_queues(void)
{
	if (!check.clients)
		say("queue statistics", false, "not known: there are no clients");
	else
		say("queue statistics", check.queues, "mac80211 reports the queues of %u of %u clients", check.queues, check.clients);
	say("AQL", check.wiphy.aql, "%s", check.wiphy.aql ?
	    "hardware queues are limited by airtime: turns gain little, but larger windows gain all the same" :
	    "hardware queues are not limited by airtime");
}

static bool check_windows(const char *device)
{
	struct hostapd_own own;
	int fd = hostapd_open(), refused;
	bool works = false;

	hostapd_read_own(device, &own);
	if (fd < 0 || (hostapd_ping(fd, device) < 0 && errno != EAGAIN)) {
		say("windows", false, "hostapd has no control socket for %s: %s", device, strerror(errno));
	} else if (hostapd_collect(fd, 1, HOSTAPD_WAIT_MS).done != 1) {
		say("windows", false, "hostapd does not answer on its control socket for %s", device);
	} else if (check.alone[0]) {
		say("windows", false, "%s: windows are left alone", check.alone);
	} else if (!own.found || check.busy) {
		works = true;
		say("windows", true, "hostapd answers on its control socket (no change tried: %s)", check.busy ?
		    "a wifirrd is running on the radio" : "its configuration was not found, so its windows are not known");
	} else if ((refused = hostapd_set_queue(&check.nl, check.interface.ifindex, &own.queue, 0)) == HOSTAPD_ABSENT) {
		say("windows", false, "not known: the access point is down");
	} else {
		works = !refused && hostapd_announce(fd, device, &own.windows, true, true) > 0 &&
			hostapd_collect(fd, HOSTAPD_ANSWERS, HOSTAPD_WAIT_MS).done == HOSTAPD_ANSWERS;
		say("windows", works, works ? "hostapd and the driver accepted the current windows: CWmin %u, CWmax %u slots; "
		    "the access point's own: %u, %u" : "hostapd or the driver refused them",
		    (1U << own.windows.be_min) - 1, (1U << own.windows.be_max) - 1, own.queue.cwmin, own.queue.cwmax);
	}
	if (fd >= 0)
		close(fd);
	if (check.clients)
		say("WMM", check.wmm, "%u of %u clients use the announced windows; %u clients aggregate frames, without which larger windows gain nothing",
		    check.wmm, check.clients, check.aggregating);
	else
		say("WMM", false, "not known: there are no clients");
	return works;
}

static void check_rts(void)
{
	char now[32] = "none";

	if (check.wiphy.rts != NL80211_RTS_OFF)
		snprintf(now, sizeof(now), "%u bytes", check.wiphy.rts);
	/* which may just have restored the operator's threshold */
	if (check.busy)
		say("RTS", true, "threshold: %s (no change tried: a wifirrd is running on the radio)", now);
	else if (nl80211_set_rts(&check.nl, check.interface.wiphy, check.wiphy.rts) == 0)
		say("RTS", true, "the driver accepted its current threshold again: %s", now);
	else
		say("RTS", false, "the driver refused to set its current threshold again (%s): %s", now, check.nl.error);
}

static void check_survey(void)
{
	struct survey_ability can;

	if (survey_try(check.interface.ifindex, &can) < 0)
		say("survey", false, "the driver reports none (waited for %u ms)", can.ms);
	else if (!can.busy)
		say("survey", false, "the driver does not say how busy the channel is (answered after %u ms)", can.ms);
	else
		say("survey", true, "the driver says how busy the channel is%s (answered after %u ms%s)", can.rx && can.tx ?
		    ", and for how long it receives and sends" : "", can.ms, can.ms >= SLOW_MS ? ": too slow to ask often" : "");
}

static int only_htb(const char *device, const char *why)
{
	print(STDOUT_FILENO, "%s: %s: only turns by htb are possible, and need --rate if the device reports no link rate\n", device, why);
	return EXIT_FAILED;
}

/* The last path component of a sysfs link's target. */
static const char *target_of(const char *device, const char *link, char *text, size_t size)
{
	char path[64];
	const char *slash;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", device, link);
	n = readlink(path, text, size - 1);
	text[n > 0 ? n : 0] = '\0';
	slash = strrchr(text, '/');
	return n <= 0 ? "not known" : slash ? slash + 1 : text;
}

/* With encapsulation offload (mt76), mac80211 counts a packet when it is queued. Only debugfs tells. */
static void check_counters(const char *device)
{
	char path[128], text[64];
	struct lines lines = { 0 };
	const char *flag;

	snprintf(path, sizeof(path), "/sys/kernel/debug/ieee80211/%s/hwflags", target_of(device, "phy80211", text, sizeof(text)));
	lines.fd = open(path, O_RDONLY | O_CLOEXEC);
	while ((flag = lines_next(&lines)))
		if (strcmp(flag, "SUPPORTS_TX_ENCAP_OFFLOAD") == 0)
			say("byte counters", false, "they count what is queued for clients, also what is dropped later");
	close(lines.fd);
}

int check_device(const char *device)
{
	unsigned ifindex = if_nametoindex(device);
	bool weights, windows;
	char text[256];

	if (!ifindex) {
		print(STDERR_FILENO, "wifirrd: check %s: %s\n", device, strerror(errno));
		return EXIT_USAGE;
	}
	if (nl80211_open(&check.nl) < 0)
		return only_htb(device, "the kernel has no nl80211");
	if (nl80211_get_interface(&check.nl, ifindex, &check.interface) < 0)
		return only_htb(device, "not a wireless device");
	if (nl80211_has_neighbours(&check.interface) && check.interface.type != NL80211_IFTYPE_STATION) {
		print(STDOUT_FILENO, "%s: a mesh or ad-hoc interface: its stations are neighbours, not clients, and take no turns\n", device);
		return EXIT_FAILED;
	}
	if (!nl80211_is_access_point(&check.interface))
		return only_htb(device, "not an access point");
	if (nl80211_open(&check.set) < 0 || nl80211_get_wiphy(&check.nl, check.interface.wiphy, &check.wiphy) < 0 ||
	    nl80211_get_interfaces(&check.nl, check.interface.wiphy, on_interface, NULL) < 0) {
		print(STDERR_FILENO, "wifirrd: check %s: %s\n", device, check.nl.error);
		return EXIT_USAGE;
	}
	check.busy = lease_busy(check.interface.wiphy);
	nl80211_get_stations(&check.nl, ifindex, on_station, NULL);
	print(STDOUT_FILENO, "%s: driver %s, radio phy%u, %u MHz, %u clients; access points on the radio: %u, interfaces to neighbours: %u\n",
	       device, target_of(device, "device/driver", text, sizeof(text)), check.interface.wiphy, check.interface.mhz, check.clients,
	       check.access_points, check.neighbours);
	windows = check_windows(device);
	weights = check_weights();
	check_queues();
	check_counters(device);
	check_rts();
	check_survey();
	if (windows || weights)
		print(STDOUT_FILENO, "%s: %s%s%s\n", device, windows ? "larger windows where clients aggregate" : "",
		       windows && weights ? ", otherwise " : "", weights ? "turns by airtime weights" : "");
	nl80211_close(&check.set);
	nl80211_close(&check.nl);
	return windows || weights ? 0 : only_htb(device, "neither windows nor weights");
}
