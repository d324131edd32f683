/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostapd announces the contention windows that an access point's clients use
 * (WMM). A message to its control socket changes the beacon at once, and no
 * client leaves. This file knows nothing of the daemon.
 */
#ifndef WIFIRRD_HOSTAPD_H
#define WIFIRRD_HOSTAPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For clients' best effort (be) and background (bk) traffic; 2^n - 1 slots. */
struct hostapd_windows {
	uint8_t be_min, be_max, bk_min, bk_max;
};

/* The access point's own queue for best effort (tx_queue_data2). */
struct hostapd_queue {
	uint16_t cwmin, cwmax;		/* slots */
	uint8_t aifs;			/* slots */
	uint16_t burst;			/* TXOP, 0.1 ms */
};

struct hostapd_own {
	/* hostapd's defaults if the configuration was not found */
	struct hostapd_windows windows;
	struct hostapd_queue queue;
	bool found;			/* a configuration of the interface was found */
	bool without_wmm;		/* it switches WMM off */
	bool sets_weights;		/* airtime_mode 2 or 3: hostapd gives its clients weights, again and again */
};

/* Reads the operator's own settings from the configuration that OpenWrt has written for hostapd. */
void hostapd_read_own(const char *device, struct hostapd_own *own);

/* A socket for the messages below, or -1 and errno. */
int hostapd_open(void);

/*
 * Ping hostapd, or have it announce windows on an interface. Neither call waits
 * for the answer. -1 and errno: no control socket (ENOENT, ECONNREFUSED), no
 * permission (EACCES), or hostapd is busy (EAGAIN).
 */
int hostapd_ping(int fd, const char *device);
/*
 * lower: the windows may be smaller than before, which changes the order of the
 * messages: a station rejects windows with CWmin above CWmax. max: CWmax may have
 * changed, too. hostapd renews the beacons of all its access points at each message.
 * Returns the number of messages.
 */
int hostapd_announce(int fd, const char *device, const struct hostapd_windows *windows, bool lower, bool max);

struct nl80211;
/*
 * Gives an access point the operator's own window for best effort, as hostapd does, or
 * one of at least 2^exponent - 1 slots. HOSTAPD_ABSENT: the device is gone or down, and when
 * it comes up, hostapd sets its own window. -1: errno and nl->error are set.
 */
int hostapd_set_queue(struct nl80211 *nl, int ifindex, const struct hostapd_queue *own, unsigned exponent);
#define HOSTAPD_ABSENT 1

/* Messages that one hostapd_announce() sends at most. */
#define HOSTAPD_ANSWERS 4

/* How long to wait for answers when there is nothing else to do. */
#define HOSTAPD_ANSWER_MS 1000

/* Counts the answers that have arrived: OK and PONG, and others. Waits up to wait_ms while there are fewer than expected. */
struct hostapd_answers {
	unsigned done, refused;
};
struct hostapd_answers hostapd_collect(int fd, unsigned expected, int wait_ms);

#endif
