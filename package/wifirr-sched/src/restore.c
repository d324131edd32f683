/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard restores what a killed wifirrd has set. If the guard was killed as
 * well, `wifirrd restore` does it, or the next wifirrd on the device or radio.
 * Each takes the lock first (a device's is an abstract socket, a radio's is its
 * lease), so the settings of a running wifirrd are left alone.
 */
#include <errno.h>
#include <syslog.h>
#include <unistd.h>

#include "lease.h"
#include "wifirrd.h"

#define GUARD_TRIES 5
#define SILENT -LOG_NOTICE	/* for log_verbosity() */

int restore(struct wifirr *w)
{
	int devices = htb_restore(w), radios = lease_restore_all();

	return devices < 0 || radios < 0 ? EXIT_FAILED : 0;
}

int guard_run(struct wifirr *w)
{
	char byte;
	ssize_t n;

	do
		n = read(STDIN_FILENO, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		return 0;	/* wifirrd has restored everything itself */
	logmsg(LOG_WARNING, "wifirrd has left something changed: restoring it");
	for (unsigned i = 1; i <= GUARD_TRIES; i++) {
		log_verbosity(i < GUARD_TRIES ? SILENT : 0);
		if (restore(w) == 0)
			return 0;
		wait_ms(1000);
	}
	return EXIT_FAILED;
}
