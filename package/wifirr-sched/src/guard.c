/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One wifirrd per device, and its guard: a process that waits until wifirrd ends,
 * and then restores what wifirrd has set (restore.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wifirrd.h"

static struct {
	pid_t pid;
	int pipe;
	const char *device;
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

	guard.device = device;
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

int guard_start(char *why, size_t size)
{
	int fds[2];
	pid_t pid;

	/* one that guard_stop() has left alone ends by itself, soon: the locks that it needs are ours */
	if (guard.pid > 0 && waitpid(guard.pid, NULL, guard.pipe < 0 ? 0 : WNOHANG) == 0)
		return 0;
	if (guard.pid > 0)
		close(guard.pipe);
	guard.pid = 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		goto fail;
	pid = fork();
	if (pid == 0) {
		/* all other descriptors are closed on exec */
		if (dup2(fds[0], STDIN_FILENO) == STDIN_FILENO && fcntl(STDIN_FILENO, F_SETFD, 0) == 0)
			execl("/proc/self/exe", "wifirrd", "--device", guard.device, "guard", (char *)NULL);
		_exit(EXIT_FAILED);
	}
	close(fds[0]);
	if (pid < 0) {
		close(fds[1]);
		goto fail;
	}
	guard.pid = pid;
	guard.pipe = fds[1];
	return 0;
fail:
	snprintf(why, size, "cannot start the guard: %s", strerror(errno));
	return -1;
}

void guard_stop(bool owing)
{
	if (guard.pid <= 0 || guard.pipe < 0)
		return;
	if (!owing && write(guard.pipe, "", 1) < 0)
		kill(guard.pid, SIGKILL);
	close(guard.pipe);
	guard.pipe = -1;
	if (owing)
		return;
	waitpid(guard.pid, NULL, 0);
	guard.pid = 0;
}
