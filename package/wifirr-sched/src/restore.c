/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a killed wifirrd has left is given back by its guard, a process that
 * waits for its end; where that was killed as well, by `wifirrd restore`, or by
 * the next wifirrd on the device or the radio. Each takes the lock of what it
 * puts right (a device's: an abstract socket, a radio's: its lease), so one that
 * runs is let alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "radio.h"
#include "wifirrd.h"

#define GUARD_TRIES 5

static struct {
	pid_t pid;
	int pipe;
} guard;

void wait_ms(unsigned ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

int claim_device(const char *device, unsigned wait)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "wifirrd/%s", device);
	for (unsigned waited = 0; fd >= 0; waited += 50) {
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
			return fd;
		if (waited >= wait)
			break;
		wait_ms(50);
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

int restore(struct wifirr *w)
{
	int devices = htb_restore(w), radios = radio_restore();

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
		return 0;	/* all has been given back */
	logmsg(LOG_WARNING, "wifirrd has died: giving back what it has set");
	for (unsigned i = 0; i < GUARD_TRIES; i++) {
		if (restore(w) == 0)
			return 0;
		wait_ms(1000);
	}
	return EXIT_FAILED;
}

int guard_start(char *why, size_t size)
{
	int fds[2];
	pid_t pid;

	if (guard.pid > 0 && waitpid(guard.pid, NULL, WNOHANG) == 0)
		return 0;
	if (guard.pid > 0)
		close(guard.pipe);
	guard.pid = 0;
	if (pipe2(fds, O_CLOEXEC) < 0) {
		snprintf(why, size, "no guard: %s", strerror(errno));
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		/* what is not for it ends with the exec */
		if (dup2(fds[0], STDIN_FILENO) == STDIN_FILENO && fcntl(STDIN_FILENO, F_SETFD, 0) == 0)
			execl("/proc/self/exe", "wifirrd", "guard", (char *)NULL);
		_exit(EXIT_FAILED);
	}
	close(fds[0]);
	if (pid < 0) {
		snprintf(why, size, "no guard: %s", strerror(errno));
		close(fds[1]);
		return -1;
	}
	guard.pid = pid;
	guard.pipe = fds[1];
	return 0;
}

void guard_stop(bool owing)
{
	if (guard.pid <= 0)
		return;
	if (!owing && write(guard.pipe, "", 1) < 0)
		kill(guard.pid, SIGKILL);
	close(guard.pipe);
	if (!owing)
		waitpid(guard.pid, NULL, 0);
	guard.pid = 0;
}
