/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease of a radio: a file in RUN_DIR that says what to restore after a kill. Only
 * the wifirrd that holds the file's lock changes the radio, and it writes the lease
 * before the first change.
 */
#ifndef WIFIRRD_LEASE_H
#define WIFIRRD_LEASE_H

#include <stdbool.h>
#include <stdint.h>

enum { LEASE_WINDOWS = 1, LEASE_RTS = 2, LEASE_WEIGHTS = 4 };

struct lease {
	uint32_t wiphy;
	unsigned noted;			/* LEASE_*: what is in the file */
	uint32_t rts;			/* the operator's threshold */
	uint16_t active, waiting;	/* stations with these weights, or weights derived from them, are reset */
};

#define LEASE_PATH 64
void lease_path(char path[LEASE_PATH], uint32_t wiphy);

/* Takes the lock, and waits up to wait ms for it. Returns it, or -1; EWOULDBLOCK: another wifirrd holds it. */
int lease_take(const char *path, unsigned wait);
/* -1 and errno. */
int lease_write(int lock, const struct lease *lease);
/*
 * Restores what the lease says, and empties it. Returns what of it is not restored,
 * LEASE_*; if that is RTS, rts is the operator's threshold.
 */
unsigned lease_restore(int lock, uint32_t *rts);

/* Whoever holds the lease has larger windows announced. */
bool lease_has_windows(const char *path);
/* Some wifirrd holds the radio. */
bool lease_busy(uint32_t wiphy);
/* Restores what killed wifirrds have left on any radio. -1: not all could be restored. */
int lease_restore_all(void);

#endif
