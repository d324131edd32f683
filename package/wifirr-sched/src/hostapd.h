/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostapd, which announces the contention windows that an access point's
 * clients use (WMM). A message to its control socket changes the beacon at
 * once; no client leaves. Knows nothing of the daemon.
 */
#ifndef WIFIRRD_HOSTAPD_H
#define WIFIRRD_HOSTAPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the clients' best effort and background; 2^n - 1 slots. */
struct hostapd_windows {
	uint8_t be_min, be_max, bk_min, bk_max;
};

struct hostapd_own {
	struct hostapd_windows windows;	/* hostapd's defaults where the configuration was not found */
	bool found;			/* in hostapd's configuration */
	bool without_wmm;		/* as it says */
};

/* The operator's own: what OpenWrt has written for hostapd about that interface. */
void hostapd_read_own(const char *device, struct hostapd_own *own);

/* A socket for the messages below, or -1 and errno. */
int hostapd_open(void);

/*
 * Ask hostapd whether it is there, or to announce windows on an interface. They
 * do not wait. -1 and errno: it has no control socket (ENOENT, ECONNREFUSED),
 * it may not be used (EACCES), or it is busy (EAGAIN).
 */
int hostapd_ping(int fd, const char *device);
/* lower: the windows may be smaller than those before. A station takes none of which CWmin is above CWmax. */
int hostapd_announce(int fd, const char *device, const struct hostapd_windows *windows, bool lower);

/* Messages to an interface by one hostapd_announce(). */
#define HOSTAPD_ANSWERS 4

/* Counts the answers that have come by now, or within wait_ms if fewer than expected. */
struct hostapd_answers {
	unsigned pongs, done, refused;
};
struct hostapd_answers hostapd_collect(int fd, unsigned expected, int wait_ms);

#endif
