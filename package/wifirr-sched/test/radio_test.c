/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What radio.c sets on a radio with several access points, and what it leaves behind. The crowd,
 * the driver, hostapd and the time are made up: no driver can be told when to fail.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "expect.h"
#include "../src/files.h"
#include "../src/nl80211.h"
#include "../src/wifirrd.h"

#undef RUN_DIR
#define RUN_DIR "."
/* hostapd's configuration is there, too */
#define files_each(directory, prefix, suffix, found, data) files_each(".", prefix, suffix, found, data)

static ssize_t fake_sendto(int fd, const char *text, const struct sockaddr *to);
static ssize_t fake_recv(char *text, size_t size);
static int fake_poll(const struct pollfd *fds);
#define sendto(fd, text, len, flags, to, to_len) fake_sendto(fd, text, to)
#define recv(fd, text, size, flags) fake_recv(text, size)
#define poll(fds, n, ms) fake_poll(fds)

#include "../src/hostapd.c"
#include "../src/lease.c"
#include "../src/radio.c"

#define AP "test"		/* and its number */
#define POINTS 5
#define CLIENTS 20		/* of each access point */
#define ANSWERS 10		/* net.unix.max_dgram_qlen */
#define MESSAGES 11		/* that a socket of hostapd holds: the kernel takes one more */
#define VLAN 100		/* interface index of the first one */
#define OWN 4			/* hostapd's default of wmm_ac_be_cwmin */

static uint64_t clock_ms = 1000;
static struct wifirr w;

/* The crowd. */
static uint32_t traffic;
static bool crowded;
static unsigned pace = 10;		/* what each client sends, and receives: 8 kbit/s */
static bool without_wmm;

/* The driver. */
static unsigned points;			/* access points that exist */
static unsigned unlisted;		/* access points that the list of interfaces lacks */
static bool two_radios;			/* the second access point has one of its own, of the same wiphy */
static bool no_channel;			/* the second access point has not started yet */
static unsigned links;			/* of the second access point: their bands */
static unsigned renamed;		/* added to the access points' numbers */
static unsigned vlans;			/* of the first access point */
static bool vlan;			/* its clients are in the first of these */
static bool lingers;			/* the first access point still has an entry of a client that is at the second one now */
static uint16_t weights[CLIENTS];	/* of the clients of each access point */
static uint8_t weighed;			/* whose is to be set */
static int weight_errno, list_errno;	/* refuse */
static unsigned lists, misplaced;	/* lists of clients that were read; weights for another interface than the client's */
static unsigned left_out;		/* lists that lack the last client, as another one has left while they were read */
static uint16_t own_window[POINTS];	/* CWmin, slots */
static struct nl80211_queue own_queue;	/* the last one that was set */
static unsigned tried, larger_tried;	/* how often it was to set one, and a larger one */
static int queue_errno, rts_errno;	/* refuse */
static bool down;			/* the second access point */
static bool no_interfaces;		/* the list of them is refused */
static uint32_t rts;

/* hostapd. */
enum { BE_MIN, BE_MAX, BK_MIN, BK_MAX, PARAMETERS };
static const char *const set[PARAMETERS] = { "SET wmm_ac_be_cwmin ", "SET wmm_ac_be_cwmax ", "SET wmm_ac_bk_cwmin ", "SET wmm_ac_bk_cwmax " };
static unsigned operators[PARAMETERS] = { OWN, 10, OWN, 10 };	/* in its configuration */
static unsigned announced[POINTS][PARAMETERS];
static unsigned unfit;			/* how often CWmin was above CWmax: stations reject that */
static struct { unsigned point, parameter, value; } message[POINTS * MESSAGES];	/* those that wait for it */
static unsigned messages, answers;	/* their number, and of those that wait for us */
static unsigned sets, strange;		/* that there have been, and those that are not ours to set */
static bool hangs, refuses, without_sockets;
static const char *answer[ANSWERS];
static unsigned blocked_ms;
static struct watch *watched;

/* Another wifirrd. */
static int its_lock = -1;		/* on the radio's lease */
static bool ends;

static unsigned lines;

uint64_t now_ms(void)
{
	return clock_ms;
}

void wait_ms(unsigned ms)
{
	clock_ms += ms;
	if (!ends)
		return;
	close(its_lock);
	ends = false;
}

void logmsg(int priority, const char *fmt, ...)
{
	(void)priority;
	(void)fmt;
	lines++;
}

int watch_add(struct watch *watch)
{
	watched = watch;
	return 0;
}

void watch_del(struct watch *watch)
{
	(void)watch;
	watched = NULL;
}

int guard_start(char *why, size_t size)
{
	(void)why;
	(void)size;
	return 0;
}

/* It has one thread, and waits while nobody takes its answers. */
static void hostapd_runs(void)
{
	for (; messages && answers < ANSWERS && !hangs; answers++) {
		unsigned *in_beacon = announced[message[0].point];

		answer[answers] = message[0].parameter == PARAMETERS ? "PONG" : refuses ? "FAIL" : "OK";
		if (message[0].parameter < PARAMETERS && !refuses)
			in_beacon[message[0].parameter] = message[0].value;
		unfit += in_beacon[BE_MIN] > in_beacon[BE_MAX] || in_beacon[BK_MIN] > in_beacon[BK_MAX];
		memmove(message, message + 1, --messages * sizeof(message[0]));
	}
}

static void hostapd_restarts(void)
{
	messages = 0;
	hangs = false;
	for (unsigned i = 0; i < POINTS; i++)
		memcpy(announced[i], operators, sizeof(operators));
}

static ssize_t fake_sendto(int fd, const char *text, const struct sockaddr *to)
{
	unsigned i = POINTS, parameter = 0, waiting = 0;
	const char *path = ((const struct sockaddr_un *)to)->sun_path;

	(void)fd;
	if (strncmp(path, SOCKETS "/" AP, strlen(SOCKETS "/" AP)) == 0)
		i = atoi(path + strlen(SOCKETS "/" AP)) - renamed;
	for (unsigned n = 0; n < messages; n++)
		waiting += message[n].point == i;
	if (i >= points || without_sockets || waiting == MESSAGES) {
		errno = waiting == MESSAGES ? EAGAIN : ENOENT;
		return -1;
	}
	while (parameter < PARAMETERS && strncmp(text, set[parameter], strlen(set[parameter])) != 0)
		parameter++;
	sets += strncmp(text, "SET", 3) == 0;
	strange += parameter == PARAMETERS && strcmp(text, "PING") != 0;
	message[messages].point = i;
	message[messages].parameter = parameter;
	message[messages++].value = parameter < PARAMETERS ? atoi(text + strlen(set[parameter])) : 0;
	return strlen(text);
}

static ssize_t fake_recv(char *text, size_t size)
{
	if (!answers) {
		errno = EAGAIN;
		return -1;
	}
	snprintf(text, size, "%s\n", answer[0]);
	memmove(answer, answer + 1, --answers * sizeof(answer[0]));
	hostapd_runs();
	return strlen(text);
}

static int fake_poll(const struct pollfd *fds)
{
	(void)fds;
	hostapd_runs();
	return answers;
}

static int refuse(struct nl80211 *n, int reason)
{
	snprintf(n->error, sizeof(n->error), "%s", strerror(reason));
	errno = reason;
	return -1;
}

int nl80211_open(struct nl80211 *n)
{
	n->error[0] = '\0';
	return 0;
}

void nl80211_close(struct nl80211 *n)
{
	(void)n;
}

int nl80211_get_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface)
{
	if (ifindex > (int)points)
		return refuse(n, ENODEV);
	*interface = (struct nl80211_interface){ .type = NL80211_IFTYPE_AP, .ifindex = ifindex,
						 .mhz = two_radios && ifindex == 2 ? 5180 : 2412 };
	if (no_channel && ifindex == 2)
		interface->mhz = 0;
	if (links && ifindex == 2) {
		interface->mhz = 0;
		interface->links = links;
	}
	snprintf(interface->name, sizeof(interface->name), AP "%u", ifindex - 1 + renamed);
	return 0;
}

int nl80211_get_interfaces(struct nl80211 *n, uint32_t wiphy,
			   void (*each)(void *data, const struct nl80211_interface *interface), void *data)
{
	struct nl80211_interface interface;

	expect("the wiphy whose interfaces are listed", wiphy, 0);
	if (no_interfaces)
		return refuse(n, EBUSY);
	/* the kernel lists the newest first */
	for (unsigned i = vlans; i > 0; i--)
		each(data, &(struct nl80211_interface){ .type = NL80211_IFTYPE_AP_VLAN, .ifindex = VLAN + i - 1 });
	for (unsigned i = unlisted; i < points; i++) {
		nl80211_get_interface(n, i + 1, &interface);
		each(data, &interface);
	}
	return 0;
}

bool nl80211_serves_stations(const struct nl80211_interface *interface)
{
	(void)interface;
	return true;
}

bool nl80211_has_neighbours(const struct nl80211_interface *interface)
{
	(void)interface;
	return false;
}

int nl80211_set_queue(struct nl80211 *n, int ifindex, const struct nl80211_queue *queue)
{
	tried++;
	larger_tried += queue->cwmin > (1 << OWN) - 1;
	if (queue_errno)
		return refuse(n, queue_errno);
	if (down && ifindex == 2)
		return refuse(n, ENETDOWN);
	if (links && ifindex == 2)
		return refuse(n, EINVAL);	/* net/mac80211/cfg.c: ieee80211_link_or_deflink() */
	own_window[ifindex - 1] = queue->cwmin;
	own_queue = *queue;
	return 0;
}

int nl80211_set_rts(struct nl80211 *n, uint32_t wiphy, uint32_t bytes)
{
	(void)wiphy;
	if (rts_errno)
		return refuse(n, rts_errno);
	rts = bytes;
	return 0;
}

int nl80211_get_wiphy(struct nl80211 *n, uint32_t wiphy, struct nl80211_wiphy *info)
{
	(void)n;
	(void)wiphy;
	*info = (struct nl80211_wiphy){ .rts = rts };
	return 0;
}

struct nlmsghdr *nl80211_weight(struct nl80211 *n, char *buf, int ifindex, const uint8_t mac[6], uint16_t weight)
{
	(void)n;
	(void)buf;
	(void)weight;
	misplaced += ifindex != mac[4];
	weighed = mac[5];
	return NULL;
}

int nl80211_talk(struct nl80211 *n, const struct nlmsghdr *nlh, mnl_cb_t cb, void *data)
{
	(void)nlh;
	(void)cb;
	(void)data;
	if (weight_errno)
		return refuse(n, weight_errno);
	weights[weighed] = NL80211_WEIGHT_DEFAULT;
	return 0;
}

/* A third of the frames is lost. */
int nl80211_get_stations(struct nl80211 *n, int ifindex, void (*each)(void *data, const struct nl80211_station *station), void *data)
{
	unsigned clients = CLIENTS - (left_out && left_out--);

	lists++;
	if (list_errno)
		return refuse(n, list_errno);
	if (lingers && ifindex == 1)
		each(data, &(struct nl80211_station){
			.mac = (uint8_t[]){ 2, 0, 0, 0, 2, 0 }, .authorized = true, .wmm = true, .aggregates = true,
			.rx_bytes = 50000000, .tx_bytes = 50000000, .tx_packets = 1000000, .tx_retries = 900000,
		});
	for (uint8_t i = 0; i < clients && (vlan ? ifindex == VLAN : ifindex < VLAN); i++)
		each(data, &(struct nl80211_station){
			.mac = (uint8_t[]){ 2, 0, 0, 0, ifindex, i }, .authorized = true, .wmm = !without_wmm, .aggregates = true,
			.rx_bytes = 10 * traffic, .tx_bytes = 10 * traffic, .tx_packets = traffic, .tx_retries = traffic / 2,
			.expected_kbit = 20000, .weight = weights[i],
		});
	return 0;
}

static void run(unsigned seconds)
{
	static uint64_t due;

	for (uint64_t end = clock_ms + seconds * 1000; clock_ms < end; clock_ms += 10) {
		traffic += crowded * pace;
		hostapd_runs();
		if (answers && watched)
			watched->readable(&w);
		blocked_ms += messages ? 10 : 0;
		if (clock_ms < due && due - clock_ms <= 1000)
			continue;
		due = radio_tick(&w, clock_ms, 900);
		due = due < clock_ms + 1000 ? due : clock_ms + 1000;
	}
}

static void crowd(bool on, unsigned seconds)
{
	crowded = on;
	run(seconds);
}

static struct radio_status status(void)
{
	struct radio_status status;

	radio_status(&status);
	return status;
}

/* One that has counted nothing yet. */
static void start(unsigned access_points)
{
	points = access_points;
	rts = NL80211_RTS_OFF;
	queue_errno = rts_errno = 0;
	blocked_ms = lines = larger_tried = 0;
	hostapd_restarts();
	radio_start(&w);
	crowd(false, 2);
}

/* As kill -9 of the daemon. */
static void killed(void)
{
	close(radio_lock);
	memset(&radio, 0, sizeof(radio));
	radio_lock = -1;
	answers = 0;
}

static unsigned larger_windows(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < points; i++)
		count += announced[i][BE_MIN] > OWN;
	return count;
}

static void configuration(const char *lines)
{
	FILE *file = fopen("hostapd-" AP ".conf", "w");

	fputs(lines, file);
	fclose(file);
}

/* Something is to be restored after a kill. */
static bool noted(void)
{
	struct stat lease;

	return stat(PREFIX "0", &lease) == 0 && lease.st_size;
}

static void hostapd_never_waits(void)
{
	start(POINTS);
	crowd(true, 30);
	expect("larger windows", larger_windows(), POINTS);
	expect("a lease in a crowd", noted(), true);
	crowd(false, 20);
	expect("larger windows after the crowd", larger_windows(), 0);
	expect("a lease after the crowd", noted(), false);
	crowd(true, 5);
	expect("hostapd waited, ms", blocked_ms, 0);
	expect("hostapd owes an answer", radio_stop(&w), false);
	expect("larger windows after the end", larger_windows(), 0);
	expect("a lease after the end", noted(), false);
}

/* At each message, hostapd renews all beacons. */
static void only_what_changes_is_said(void)
{
	start(POINTS);
	sets = 0;
	crowd(true, 5);
	expect("larger windows", larger_windows(), POINTS);
	expect("messages", sets, status().contention->steps * POINTS * 2);
	radio_stop(&w);
}

/* Clients' best effort and background traffic wait alike. */
static void both_kinds_of_traffic_wait(void)
{
	start(1);
	crowd(true, 30);
	expect("larger window for background traffic", announced[0][BK_MIN], announced[0][BE_MIN]);
	expect("CWmax", announced[0][BE_MAX] == 10 && announced[0][BK_MAX] == 10, true);
	crowd(false, 20);
	expect("background traffic after the crowd", announced[0][BK_MIN], OWN);
	radio_stop(&w);
}

/* A station rejects windows whose CWmin is above CWmax, so their order counts, up and down. */
static void an_operator_with_small_windows(void)
{
	static const unsigned small[PARAMETERS] = { 2, 4, 3, 5 };
	unsigned before[PARAMETERS];

	memcpy(before, operators, sizeof(before));
	memcpy(operators, small, sizeof(operators));
	configuration("wmm_ac_be_cwmin=2\nwmm_ac_be_cwmax=4\nwmm_ac_bk_cwmin=3\nwmm_ac_bk_cwmax=5\ninterface=" AP "0\n");
	unfit = 0;
	start(1);
	crowd(true, 30);
	expect("larger windows", announced[0][BE_MIN] > 4 && announced[0][BK_MIN] > 5, true);
	crowd(false, 20);
	expect("the operator's after the crowd", memcmp(announced[0], small, sizeof(small)), 0);
	crowd(true, 30);
	killed();
	lease_restore_all();
	expect("the operator's after a kill", memcmp(announced[0], small, sizeof(small)), 0);
	start(1);
	crowd(true, 30);
	expect("nothing is owed", radio_stop(&w), false);
	expect("the operator's after the end", memcmp(announced[0], small, sizeof(small)), 0);
	expect("windows that stations reject", unfit, 0);
	unlink("hostapd-" AP ".conf");
	memcpy(operators, before, sizeof(before));
}

/* Of what it has not taken, nothing gets lost, and nothing of it is expected of the next one. */
static void hostapd_hangs(void)
{
	start(POINTS);
	hangs = true;
	crowd(true, 5);
	crowd(false, 5);
	hangs = false;
	run(20);
	expect("larger windows of a hostapd that was full", larger_windows(), 0);
	crowd(true, 10);
	expect("larger windows again", larger_windows(), POINTS);
	hangs = true;
	lines = 0;
	run(60);
	expect("lines about a hostapd that hangs", lines <= 2, true);
	hostapd_restarts();
	run(30);
	expect("larger windows of the next hostapd", larger_windows(), POINTS);
	hangs = true;
	run(2);
	expect("a hostapd that is full owes an answer", radio_stop(&w), true);
	hostapd_restarts();
	lease_restore_all();
}

/* The guard tries again. */
static void a_killed_daemon_leaves_a_hostapd_that_hangs(void)
{
	start(1);
	crowd(true, 5);
	hangs = true;
	killed();
	expect("restored while hostapd hangs", lease_restore_all(), -1);
	expect("a lease after that", noted(), true);
	hangs = false;
	hostapd_runs();
	answers = 0;
	queue_errno = EIO;
	expect("restored while the driver refuses its own window", lease_restore_all(), -1);
	queue_errno = 0;
	expect("restored in the end", lease_restore_all(), 0);
	expect("larger windows in the end", larger_windows(), 0);
	expect("a lease in the end", noted(), false);
	start(1);
	crowd(true, 5);
	killed();
	without_sockets = true;
	expect("nothing to restore of a hostapd that has ended", lease_restore_all(), 0);
	without_sockets = false;
	hostapd_restarts();
}

/* It is asked now and then, and changes what it can as soon as it does. */
static void hostapd_refuses(void)
{
	start(2);
	refuses = true;
	lines = 0;
	crowd(true, 100);
	expect("larger windows of a hostapd that refuses", larger_windows(), 0);
	expect("the access point's own", own_window[0], (1 << OWN) - 1);
	expect("why windows are left alone", strcmp(status().problem, "hostapd refuses to change the windows"), 0);
	expect("lines about a hostapd that refuses", lines, 1);
	refuses = false;
	run(30);
	expect("larger windows of one that refuses no more", larger_windows(), 2);
	refuses = true;
	run(12);
	refuses = false;
	crowd(false, 20);
	expect("larger windows after one that refused to take them back", larger_windows(), 0);
	expect("nothing is owed by one that has done it in the end", radio_stop(&w), false);
}

/* As long as it takes until its socket is full. */
static void hostapd_hangs_without_a_crowd(void)
{
	start(1);
	hangs = true;
	lines = 0;
	run(10 * MESSAGES + 60);
	expect("why windows are left alone", strcmp(status().problem, "hostapd does not answer"), 0);
	expect("lines about it", lines, 1);
	hostapd_restarts();
	run(20);
	expect("nothing to say", strcmp(status().problem, ""), 0);
	radio_stop(&w);
}

/* As long as the lease said so, what is no longer the operator's own would return with the next stop of the service. */
static void hostapd_hangs_while_a_killed_daemon_is_replaced(void)
{
	start(1);
	crowd(true, 5);
	hangs = true;
	killed();
	radio_start(&w);
	crowd(false, 5);
	hangs = false;
	run(20);
	expect("larger windows when hostapd goes on", larger_windows(), 0);
	rts = 2000;
	run(20);
	expect("windows are owed", radio_stop(&w), false);
	lease_restore_all();
	expect("RTS threshold that an operator has set since", rts, 2000);
}

/* So full that it takes not even the operator's own windows. */
static void hostapd_is_full_while_a_killed_daemon_is_replaced(void)
{
	start(1);
	crowd(true, 5);
	hangs = true;
	crowd(false, 60);
	killed();
	announced[0][BE_MIN] = OWN + 2;	/* what it has taken before */
	messages = MESSAGES;
	memset(message, 0, sizeof(message));
	for (unsigned i = 0; i < MESSAGES; i++)
		message[i].parameter = PARAMETERS;
	radio_start(&w);
	run(5);
	hangs = false;
	run(20);
	expect("larger windows when hostapd takes messages again", larger_windows(), 0);
	expect("windows are owed", radio_stop(&w), false);
	expect("a lease in the end", noted(), false);
}

/* As while a driver keeps the radio's lock. What is not known is not restored. */
static void no_list_of_interfaces_while_a_killed_daemon_is_replaced(void)
{
	start(2);
	crowd(true, 5);
	killed();
	no_interfaces = true;
	radio_start(&w);
	crowd(false, 5);
	no_interfaces = false;
	run(20);
	expect("larger windows when there is a list", larger_windows(), 0);
	expect("a lease after that", noted(), false);
	crowd(true, 5);
	no_interfaces = true;
	expect("windows of an end without a list are owed", radio_stop(&w), true);
	no_interfaces = false;
	lease_restore_all();
}

/* Each line would be in the log thousands of times a day. */
static void no_access_point_has_a_socket(void)
{
	without_sockets = true;
	start(3);
	run(100);
	expect("lines about sockets", lines, 1);
	radio_stop(&w);
	without_sockets = false;
}

/* Whatever the operator sets is left as it is after the crowd, and the status never shows another one than the driver has. */
static void an_operator_sets_rts(void)
{
	start(1);
	rts = 2000;
	run(20);
	expect("status after the operator's change", status().rts, 2000);
	crowd(true, 5);
	expect("RTS in a crowd", rts, RTS_BYTES);
	expect("status in a crowd", status().rts, RTS_BYTES);
	rts = 1500;
	run(15);
	expect("status after a change in the crowd", status().rts, rts);
	crowd(false, 15);
	expect("RTS after the crowd", rts, 1500);
	crowd(true, 5);
	rts = 1400;
	crowd(false, 5);
	expect("RTS after a change just before the crowd's end", rts, 1400);
	crowd(true, 5);
	rts = 1300;
	radio_stop(&w);
	expect("RTS after a change just before the end", rts, 1300);
}

static void a_killed_daemon_leaves_the_newest_rts(void)
{
	start(1);
	crowd(true, 5);
	rts = 2000;
	run(25);
	expect("RTS in a crowd", rts, RTS_BYTES);
	killed();
	lease_restore_all();
	expect("RTS after a kill", rts, 2000);
}

/* Nobody can tell the two apart after a kill. */
static void the_operators_rts_is_that_of_a_crowd(void)
{
	start(1);
	rts = RTS_BYTES;
	run(20);
	crowd(true, 5);
	killed();
	lease_restore_all();
	expect("RTS after a kill", rts, RTS_BYTES);
	radio_start(&w);
	crowd(true, 5);
	crowd(false, 15);
	radio_stop(&w);
	expect("RTS after the next daemon", rts, RTS_BYTES);
}

/* With more RTS than we would set. */
static void an_operators_lower_rts_stays(void)
{
	start(1);
	rts = 256;
	run(20);
	crowd(true, 15);
	expect("larger windows", larger_windows(), 1);
	expect("a lower RTS threshold of the operator's in a crowd", rts, 256);
	expect("what trials compare", status().contention->rts, false);
	rts = 2000;
	run(15);
	expect("RTS after the operator's change", rts, RTS_BYTES);
	crowd(false, 15);
	expect("RTS after the crowd", rts, 2000);
	radio_stop(&w);
}

static void a_driver_without_rts(void)
{
	start(1);
	rts_errno = EOPNOTSUPP;
	crowd(true, 5);
	expect("status without RTS", status().rts, NL80211_RTS_OFF);
	lines = 0;
	run(60);
	expect("lines in the log, later", lines, 0);
	radio_stop(&w);
}

/* A refusal does not mean that it is done. */
static void rts_cannot_be_restored_for_a_while(void)
{
	start(1);
	crowd(true, 5);
	expect("RTS in a crowd", rts, RTS_BYTES);
	rts_errno = EBUSY;
	crowd(false, 5);
	expect("status while the driver is busy", status().rts, RTS_BYTES);
	rts_errno = 0;
	run(15);
	expect("RTS after that", rts, NL80211_RTS_OFF);
	crowd(true, 5);
	rts_errno = EBUSY;
	expect("the driver owes the threshold", radio_stop(&w), true);
	rts_errno = 0;
	lease_restore_all();
	expect("RTS after the end", rts, NL80211_RTS_OFF);
	start(1);
	crowd(true, 5);
	killed();
	rts_errno = EBUSY;
	radio_start(&w);
	crowd(false, 5);
	rts_errno = 0;
	run(15);
	expect("RTS after a kill", rts, NL80211_RTS_OFF);
	radio_stop(&w);
}

/* What the driver has done before, it may do again: at the latest twenty seconds later. */
static void one_refusal_is_not_for_good(void)
{
	start(2);
	crowd(true, 5);
	expect("larger windows", larger_windows(), 2);
	queue_errno = EINVAL;
	run(12);
	expect("larger windows while the driver refuses", larger_windows(), 0);
	queue_errno = 0;
	run(25);
	expect("larger windows again", larger_windows(), 2);
	radio_stop(&w);
}

/* As long as trials have not shown yet that they gain nothing. */
static void run_until_larger(void)
{
	for (unsigned i = 0; i < 360 && larger_windows() < points; i++)
		run(10);
}

/* It is tried ever less often, and the log says so once. */
static void a_driver_that_refuses_is_tried_again(void)
{
	start(2);
	queue_errno = EINVAL;
	crowd(true, 100);
	expect("larger windows without the driver", larger_windows(), 0);
	/* no crowd, but there may be turns */
	w.config.policy.busy_permille = 950;
	crowd(false, 10);
	crowd(true, 24 * 3600);
	tried = 0;
	for (unsigned i = 0; i < 24; i++) {
		expect("turns wait for larger windows", w.policy.aside, POLICY_ASIDE_NOT);
		run(3600);
	}
	expect("attempts on the second day", tried > 20 && tried < 100, true);
	expect("the reason on the second day", strcmp(status().problem, AP "0: own window: Invalid argument"), 0);
	expect("lines on two days", lines, 1);
	w.config.policy.busy_permille = 500;
	queue_errno = 0;
	run_until_larger();
	run(2);
	expect("larger windows when it refuses no more", larger_windows(), 2);
	expect("no reason any more", status().problem[0], 0);
	queue_errno = EINVAL;
	run(12);
	queue_errno = 0;
	run(25);
	expect("larger windows after one more refusal", larger_windows(), 2);
	radio_stop(&w);
	start(2);
	crowd(true, 5);
	queue_errno = EINVAL;
	run(15);
	lines = larger_tried = 0;
	run(100);
	expect("no attempts every second", larger_tried <= 20, true);
	expect("lines about further refusals", lines, 0);
	radio_stop(&w);
}

static void the_own_window_cannot_be_restored_for_a_while(void)
{
	start(1);
	crowd(true, 5);
	expect("own window in a crowd", own_window[0] > (1 << OWN) - 1, true);
	queue_errno = EIO;
	crowd(false, 10);
	queue_errno = 0;
	run(5);
	expect("own window after that", own_window[0], (1 << OWN) - 1);
	crowd(true, 5);
	queue_errno = EIO;
	expect("the driver owes its window", radio_stop(&w), true);
	queue_errno = 0;
	lease_restore_all();
}

/* hostapd sets the own window of a device when it comes up. */
static void a_device_that_is_down_needs_no_window(void)
{
	start(1);
	crowd(true, 5);
	killed();
	queue_errno = ENETDOWN;
	expect("restored while the device is down", lease_restore_all(), 0);
}

/* As guests' may be at night. */
static void beside_an_access_point_that_is_down(void)
{
	down = true;
	start(2);
	lines = 0;
	crowd(true, 30);
	expect("lines about an access point that is down", lines, 0);
	run(5);
	expect("larger window beside it", own_window[0] > (1 << OWN) - 1, true);
	down = false;
	run(12);
	expect("larger windows on both", larger_windows(), 2);
	expect("its own window", own_window[1] > (1 << OWN) - 1, true);
	down = true;
	crowd(false, 15);
	expect("it owes nothing", radio_stop(&w), false);
	down = false;
}

static void what_hostapd_is_configured_to_do(void)
{
	struct hostapd_own own;

	/* in each of its names; what is out of range is hostapd's default, and the last one counts */
	configuration("wmm_ac_be_cwmin=2\nwmm_ac_be_cwmax=15\nwme_ac_bk_cwmin=5\nwmm_ac_bk_cwmax=16\nwmm_ac_vo_cwmin=1\n"
		      "tx_queue_data2_aifs=5\ntx_queue_data2_cwmin=7\ntx_queue_data2_cwmin=31\ntx_queue_data2_cwmax=32767\n"
		      "tx_queue_data2_burst=1.5\ntx_queue_data1_aifs=9\nno value\n"
		      "interface=" AP "0\nbss=" AP "1\nwmm_enabled=0\nbss=" AP "2\nwme_enabled=0\nwmm_enabled=1\n");
	for (unsigned i = 0; i < 3; i++) {
		char name[] = AP "0";

		name[sizeof(AP) - 1] += i;
		hostapd_read_own(name, &own);
		expect("its configuration is found", own.found, true);
		expect("best effort", own.windows.be_min * 100 + own.windows.be_max, 215);
		expect("background", own.windows.bk_min * 100 + own.windows.bk_max, 510);
		expect("the access point's AIFS", own.queue.aifs, 5);
		expect("the access point's CWmin", own.queue.cwmin, 31);
		expect("the access point's CWmax", own.queue.cwmax, 32767);
		expect("the access point's TXOP, 0.1 ms", own.queue.burst, 15);
		expect("without WMM", own.without_wmm, i == 1);
	}
	own.queue.cwmax = 63;
	expect("the access point's own window", hostapd_set_queue(&radio.nl, 1, &own.queue, 0), 0);
	expect("its CWmin and CWmax", own_queue.cwmin * 1000 + own_queue.cwmax, 31063);
	expect("its AIFS", own_queue.aifs, 5);
	expect("its TXOP, 32 us", own_queue.txop, 47);
	hostapd_set_queue(&radio.nl, 1, &own.queue, 7);
	expect("a larger CWmin, and CWmax", own_queue.cwmin * 1000 + own_queue.cwmax, 127127);
	configuration("tx_queue_data2_aifs=255\ntx_queue_data2_cwmin=32767\ntx_queue_data2_cwmax=32768\ntx_queue_data2_burst=1000\nwmm_ac_be_cwmin=0\n"
		      "interface=" AP "0\n");
	hostapd_read_own(AP "0", &own);
	expect("the largest AIFS", own.queue.aifs, 255);
	expect("the largest CWmin", own.queue.cwmin, 32767);
	expect("CWmax beyond that", own.queue.cwmax, 63);
	expect("the longest TXOP", own.queue.burst, 10000);
	expect("the smallest window", own.windows.be_min, 0);
	configuration("tx_queue_data2_aifs=256\ntx_queue_data2_burst=1001\ntx_queue_data2_cwmin=32768\ninterface=" AP "0\n");
	hostapd_read_own(AP "0", &own);
	expect("AIFS, CWmin and TXOP beyond that", own.queue.aifs * 100000 + own.queue.cwmin * 1000 + own.queue.burst, 315000);
	hostapd_read_own(AP "1", &own);
	expect("another access point's configuration", own.found, false);
	expect("hostapd's default", own.windows.be_min * 10000 + own.windows.be_max * 100 + own.queue.cwmax, 41063);
	unlink("hostapd-" AP ".conf");
}

/* With "option airtime_mode" of the radio. 1: hostapd sets weights once, when a client comes. */
static void hostapd_may_set_weights(void)
{
	static const char *const modes[] = { "", "airtime_mode=0\n", "airtime_mode=1\n", "airtime_mode=2\n", "airtime_mode=3\n" };
	struct hostapd_own own;
	char lines[64];

	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		snprintf(lines, sizeof(lines), "driver=nl80211\n%sinterface=" AP "0\nbss=" AP "1\n", modes[i]);
		configuration(lines);
		hostapd_read_own(AP "1", &own);
		expect(modes[i], own.sets_weights, i > 2);
	}
	unlink("hostapd-" AP ".conf");
}

/* With "wifi reload" in a crowd. */
static void an_operator_sets_windows(void)
{
	start(1);
	crowd(true, 13);
	configuration("interface=" AP "0\nwmm_ac_be_cwmin=3\n");
	crowd(false, 10);
	expect("the operator's new window after the crowd", announced[0][BE_MIN], 3);
	radio_stop(&w);
	unlink("hostapd-" AP ".conf");
}

/* As with "wifi reload" in a crowd: netifd moves it away, and writes it anew for some seconds. */
static void the_configuration_is_away_for_a_while(void)
{
	configuration("wmm_ac_be_cwmin=3\ntx_queue_data2_burst=2.0\ninterface=" AP "0\n");
	start(1);
	crowd(true, 13);
	unlink("hostapd-" AP ".conf");
	run(15);
	expect("the access point's TXOP in a crowd, 32 us", own_queue.txop, 63);
	crowd(false, 10);
	expect("the operator's window after the crowd", announced[0][BE_MIN], 3);
	expect("the access point's TXOP after the crowd, 32 us", own_queue.txop, 63);
	radio_stop(&w);
}

static void what_is_measured(void)
{
	const struct contention_sample *s = &radio.contention.sample;

	start(2);
	without_wmm = true;
	crowd(true, 10);
	expect("clients that send", s->contenders, 2 * CLIENTS);
	expect("clients that send or receive", s->exchanging, 2 * CLIENTS);
	expect("clients that aggregate", s->aggregating, 2 * CLIENTS);
	expect("clients without WMM", status().without_wmm, 2 * CLIENTS);
	expect("their rate alone, kbit/s", s->kbit, 20000);
	expect("lost frames, permille", s->failed_permille, 333);
	without_wmm = false;
	pace = 1;
	run(10);
	expect("clients that send less than 10 kbit/s", s->contenders, 0);
	pace = 2;
	run(10);
	expect("clients that send more than 10 kbit/s", s->contenders, 2 * CLIENTS);
	expect("those with WMM", status().without_wmm, 0);
	pace = 10;
	crowd(false, 5);
	expect("clients that send nothing", s->contenders + s->exchanging + s->aggregating, 0);
	expect("lost frames of nobody", s->failed_permille, CONTENTION_UNKNOWN);
	/* who has left, and comes back, counts from 0 */
	points = 1;
	run(20);
	points = 2;
	crowd(true, 25);
	expect("clients that send, of an access point that came back", s->contenders, 2 * CLIENTS);
	lingers = true;
	run(5);
	expect("clients that send, of which one is at another access point now", s->contenders, 2 * CLIENTS);
	expect("lost frames, permille", s->failed_permille, 333);
	crowd(false, 5);
	expect("clients that send nothing", s->exchanging, 0);
	lingers = false;
	radio_stop(&w);
}

static void an_interface_of_the_crowd_is_restored(void)
{
	start(1);
	crowd(true, 5);
	expect("larger windows", larger_windows(), 1);
	points = 2;
	run(15);
	expect("larger windows on both", larger_windows(), 2);
	no_interfaces = true;
	run(15);
	no_interfaces = false;
	killed();
	lease_restore_all();
	expect("larger windows after a kill", larger_windows(), 0);
}

/* Because another interface, such as a client's VLAN, has vanished between two parts of the list. */
static void an_interface_that_a_list_lacks_is_restored(void)
{
	start(2);
	crowd(true, 5);
	unlisted = 1;
	crowd(false, 20);
	expect("larger windows after the crowd", larger_windows(), 0);
	unlisted = 0;
	run(20);
	crowd(true, 5);
	expect("larger windows", larger_windows(), 2);
	unlisted = 1;
	run(12);
	killed();
	unlisted = 0;
	lease_restore_all();
	expect("larger windows after a kill", larger_windows(), 0);
}

/* As after "wifi reload" with a section before the others. */
static void a_renamed_access_point_is_restored(void)
{
	start(2);
	crowd(true, 5);
	renamed = 5;
	killed();
	no_interfaces = true;
	expect("restored without a list of interfaces", lease_restore_all(), -1);
	no_interfaces = false;
	expect("restored after a kill", lease_restore_all(), 0);
	expect("larger windows after a kill", larger_windows(), 0);
	for (unsigned i = 0; i < points; i++)
		expect("the access point's own after a kill", own_window[i], (1 << OWN) - 1);
	renamed = 0;
}

static void weigh(uint16_t weight)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		weights[i] = weight;
}

static unsigned left_low(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < CLIENTS; i++)
		count += weights[i] != NL80211_WEIGHT_DEFAULT;
	return count;
}

/* Also if a client leaves meanwhile. */
static void weights_are_restored(void)
{
	char why[128];

	w.config.weight_active = 384;
	w.config.weight_waiting = 1;
	for (unsigned i = 0; i < 2; i++) {
		start(1);
		expect("weights held", radio_hold_weights(&w, true, why, sizeof(why)), 0);
		weigh(1);
		weights[0] = 1000;	/* another program's */
		killed();
		left_out = i;
		lists = misplaced = 0;
		expect("restored after a kill", lease_restore_all(), 0);
		expect("low weights after a kill", left_low(), 1);
		expect("another program's weight", weights[0], 1000);
		expect("lists of clients for that", lists, i ? 3 : 2);
		expect("weights for another interface", misplaced, 0);
	}
	left_out = 0;
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	weigh(1);
	killed();
	weight_errno = EBUSY;
	expect("restored while the driver refuses weights", lease_restore_all(), -1);
	weight_errno = ENOENT;
	expect("nothing to restore of clients that have just left", lease_restore_all(), 0);
	weight_errno = 0;
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	killed();
	list_errno = ENODEV;
	expect("nothing to restore of an interface that has just vanished", lease_restore_all(), 0);
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	weigh(1);
	killed();
	list_errno = 0;
	weight_errno = ENODEV;
	expect("nothing to restore of clients whose interface has just vanished", lease_restore_all(), 0);
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	killed();
	weight_errno = ENETDOWN;
	expect("nothing to restore of clients whose interface has just gone down", lease_restore_all(), 0);
	weight_errno = 0;
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	weigh(1);
	killed();
	list_errno = EBUSY;
	expect("restored without a list of clients", lease_restore_all(), -1);
	list_errno = 0;
	no_interfaces = true;
	expect("restored without a list of interfaces", lease_restore_all(), -1);
	no_interfaces = false;
	expect("restored later", lease_restore_all(), 0);
	expect("low weights after that", left_low(), 0);
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	weigh(1);
	expect("weights that were not restored", radio_stop(&w), true);
	lease_restore_all();
	expect("low weights after the end", left_low(), 0);
}

/* The lease says which weights are to be looked for. */
static void new_weights_are_restored(void)
{
	char why[128];

	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	w.config.weight_active = 1000;
	w.config.weight_waiting = 500;
	expect("other weights held", radio_hold_weights(&w, true, why, sizeof(why)), 0);
	weigh(1000);
	weights[0] = 499;	/* another program's */
	killed();
	expect("restored after a kill", lease_restore_all(), 0);
	expect("our weights after a kill", left_low(), 1);
	expect("another program's weight", weights[0], 499);
	weigh(NL80211_WEIGHT_DEFAULT);
	start(1);
	radio_hold_weights(&w, true, why, sizeof(why));
	expect("a lease of weights", noted(), true);
	radio_hold_weights(&w, false, NULL, 0);
	expect("no lease without weights", noted(), false);
	radio_stop(&w);
	w.config.weight_active = 384;
	w.config.weight_waiting = 1;
}

/* They hear the access point's beacon, too. */
static void clients_of_a_vlan_are_a_crowd(void)
{
	vlans = 1;
	vlan = true;
	start(1);
	crowd(true, 5);
	expect("larger windows for clients of a VLAN", larger_windows(), 1);
	radio_stop(&w);
	vlan = false;
	vlans = 0;
}

static void clients_beside_many_vlans_are_a_crowd(void)
{
	vlans = POLICY_CLIENTS_MAX;
	start(1);
	crowd(true, 5);
	expect("larger windows for clients beside many VLANs", larger_windows(), 1);
	radio_stop(&w);
	vlans = 0;
}

/* The daemon says which of the two it is, and only then, that there is another one. */
static void a_lease_that_cannot_be_opened(void)
{
	unlink(PREFIX "0");
	mkdir(PREFIX "0", 0700);
	start(1);
	expect("another wifirrd, by a lease that cannot be opened", radio_taken(), false);
	radio_stop(&w);
	rmdir(PREFIX "0");
	its_lock = lease_take(PREFIX "0", 0);
	start(1);
	expect("another wifirrd", radio_taken(), true);
	expect("status beside another wifirrd", status().rts, NL80211_RTS_OFF);
	expect("turns beside another wifirrd", w.policy.aside, POLICY_ASIDE_NOT);
	/* htb on two devices of a radio: one lever at a time */
	write(its_lock, "rts 0 500\nwindows 0\n", strlen("rts 0 500\nwindows 0\n"));
	run(1);
	expect("turns beside another wifirrd's larger windows", w.policy.aside, POLICY_ASIDE_WINDOWS);
	ftruncate(its_lock, 0);
	run(1);
	expect("turns after another wifirrd's larger windows", w.policy.aside, POLICY_ASIDE_NOT);
	close(its_lock);
	run(5);
	expect("no other wifirrd any more", radio_taken(), false);
	radio_stop(&w);
}

/* As with a full /var: nothing is changed, and the log says so once. */
static void a_lease_that_cannot_be_written(void)
{
	int lock, unwritable;

	start(2);
	lock = dup(radio_lock);
	unwritable = open(PREFIX "0", O_RDONLY);
	dup2(unwritable, radio_lock);
	close(unwritable);
	lines = 0;
	crowd(true, 60);
	expect("larger windows without a lease", larger_windows(), 0);
	expect("RTS without a lease", rts, NL80211_RTS_OFF);
	expect("lines about the lease", lines, 1);
	dup2(lock, radio_lock);
	close(lock);
	run(15);
	expect("larger windows when there is room again", larger_windows(), 2);
	expect("the reason when there is room again", status().problem[0], 0);
	radio_stop(&w);
}

/* As after a change from htb in the sections of two devices to one section for both. */
static void weights_wait_for_the_end_of_another_wifirrd(void)
{
	char why[128];

	its_lock = lease_take(PREFIX "0", 0);
	start(1);
	expect("weights beside another wifirrd", radio_hold_weights(&w, true, why, sizeof(why)), -1);
	ends = true;
	expect("weights when it ends", radio_hold_weights(&w, true, why, sizeof(why)), 0);
	radio_hold_weights(&w, false, NULL, 0);
	radio_stop(&w);
}

/* On each of several devices of a radio. Meanwhile, it would answer nobody. */
static void htb_does_not_wait_for_the_radio(void)
{
	uint64_t before = clock_ms;

	its_lock = lease_take(PREFIX "0", 0);
	w.config.backend = BACKEND_HTB;
	radio_start(&w);
	expect("the wait for another wifirrd, ms", clock_ms - before, 0);
	close(its_lock);
	run(5);
	expect("no other wifirrd any more", radio_taken(), false);
	w.config.backend = BACKEND_AUTO;
	radio_stop(&w);
}

/* They have another channel, but the same RTS threshold. */
static void other_radios_of_the_wiphy_are_left_alone(void)
{
	two_radios = true;
	start(2);
	crowd(true, 30);
	expect("larger windows on the crowded radio", announced[0][BE_MIN] > OWN, true);
	expect("larger windows on both radios", larger_windows(), 1);
	expect("RTS threshold of both radios", rts, NL80211_RTS_OFF);
	expect("what trials compare", status().contention->rts, false);
	/* both are on one channel now */
	two_radios = false;
	run(20);
	expect("larger windows on one radio", larger_windows(), 2);
	expect("RTS threshold of one radio", rts, RTS_BYTES);
	radio_stop(&w);
}

/* As one whose uplink has yet to connect. Until it has a channel, nobody knows of which radio it is. */
static void an_access_point_turns_out_to_be_of_another_radio(void)
{
	two_radios = no_channel = true;
	start(2);
	crowd(true, 5);
	expect("larger windows where the channel is not known", larger_windows(), 2);
	no_channel = false;
	run(15);
	expect("larger windows on the other radio", announced[1][BE_MIN] > OWN, false);
	expect("own window on the other radio", own_window[1], (1 << OWN) - 1);
	expect("larger windows on the crowded radio", announced[0][BE_MIN] > OWN, true);
	/* found out only when the crowd is over */
	no_channel = true;
	run(15);
	no_channel = false;
	crowd(false, 20);
	expect("larger windows after the crowd", larger_windows(), 0);
	expect("another radio owes nothing", radio_stop(&w), false);
	two_radios = false;
}

/* The kernel sets no window without a link's number. It is no reason to try for ever, nor is anything owed. */
static void an_access_point_with_links(void)
{
	links = nl80211_band(2437) | nl80211_band(5180);
	start(2);
	crowd(true, 60);
	expect("larger windows beside links", larger_windows(), 0);
	expect("attempts beside links", larger_tried, 0);
	expect("clients, without those of links", status().contention->sample.contenders, CLIENTS);
	expect("the reason", strcmp(status().problem, AP "1: has links (MLO)"), 0);
	expect("lines about links", lines, 1);
	links = 0;
	run(25);
	expect("larger windows without links", larger_windows(), 2);
	expect("links owe nothing", radio_stop(&w), false);
	/* made in a crowd */
	start(1);
	crowd(true, 5);
	links = nl80211_band(0);
	points = 2;
	run(20);
	crowd(false, 15);
	expect("larger windows after the crowd, beside new links", larger_windows(), 0);
	expect("new links owe nothing", radio_stop(&w), false);
	links = nl80211_band(5180) | nl80211_band(5955);
	start(2);
	crowd(true, 5);
	expect("larger windows beside links of other bands", larger_windows(), 1);
	killed();
	expect("restored beside links of other bands", lease_restore_all(), 0);
	expect("larger windows after a kill", larger_windows(), 0);
	links = 0;
}

int main(void)
{
	char directory[] = "/tmp/wifirr-radio-test-XXXXXX";

	if (!mkdtemp(directory) || chdir(directory) < 0)
		return 1;
	w.ifindex = 1;
	w.config.windows = true;
	w.config.rts = RTS_AUTO;
	w.config.policy.engage = POLICY_AUTO;
	w.config.policy.mode = POLICY_BACKLOG;
	w.config.policy.busy_permille = 500;
	hostapd_never_waits();
	only_what_changes_is_said();
	both_kinds_of_traffic_wait();
	an_operator_with_small_windows();
	hostapd_hangs();
	a_killed_daemon_leaves_a_hostapd_that_hangs();
	hostapd_refuses();
	hostapd_hangs_without_a_crowd();
	hostapd_hangs_while_a_killed_daemon_is_replaced();
	hostapd_is_full_while_a_killed_daemon_is_replaced();
	no_list_of_interfaces_while_a_killed_daemon_is_replaced();
	no_access_point_has_a_socket();
	an_operator_sets_rts();
	a_killed_daemon_leaves_the_newest_rts();
	the_operators_rts_is_that_of_a_crowd();
	an_operators_lower_rts_stays();
	a_driver_without_rts();
	rts_cannot_be_restored_for_a_while();
	one_refusal_is_not_for_good();
	a_driver_that_refuses_is_tried_again();
	the_own_window_cannot_be_restored_for_a_while();
	a_device_that_is_down_needs_no_window();
	beside_an_access_point_that_is_down();
	what_hostapd_is_configured_to_do();
	hostapd_may_set_weights();
	an_operator_sets_windows();
	the_configuration_is_away_for_a_while();
	what_is_measured();
	an_interface_of_the_crowd_is_restored();
	an_interface_that_a_list_lacks_is_restored();
	a_renamed_access_point_is_restored();
	weights_are_restored();
	new_weights_are_restored();
	clients_of_a_vlan_are_a_crowd();
	clients_beside_many_vlans_are_a_crowd();
	other_radios_of_the_wiphy_are_left_alone();
	an_access_point_turns_out_to_be_of_another_radio();
	an_access_point_with_links();
	a_lease_that_cannot_be_opened();
	a_lease_that_cannot_be_written();
	weights_wait_for_the_end_of_another_wifirrd();
	htb_does_not_wait_for_the_radio();
	expect("settings that are not ours", strange, 0);
	unlink(PREFIX "0");
	rmdir(directory);
	return verdict();
}
