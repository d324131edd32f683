/* SPDX-License-Identifier: Apache-2.0 */
/* The command line, and the life of the process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "files.h"
#include "radio.h"
#include "wifirrd.h"

static struct wifirr daemon_state;
static struct { int argc; char **argv; } command_line;
static struct watch signals = { .fd = -1 };

static int refuse(const char *reason)
{
	print(STDERR_FILENO, "wifirrd: %s\n", reason);
	return EXIT_USAGE;
}

/* Keeps clients and their demand. If there is a mistake in the options, nothing changes. */
static void read_options_again(struct wifirr *w)
{
	static struct config config;
	char reason[256];

	logmsg(LOG_NOTICE, "SIGHUP: reading the options again");
	if (options_read(&config, command_line.argc, command_line.argv, reason, sizeof(reason)) >= 0)
		device_options(w, &config);
	else
		device_options_refused(w, reason);
}

static void signal_readable(struct wifirr *w)
{
	struct signalfd_siginfo info;

	while (read(signals.fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			read_options_again(w);
		else
			loop_end();
	}
}

static int take_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = (struct watch){ .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .readable = signal_readable };
	return signals.fd < 0 ? -1 : watch_add(&signals);
}

/*
 * Weights are for stations of wireless devices. Devices without a known link rate need
 * --rate. A device that does not exist yet may be of any kind.
 */
static int check_options(const struct config *c)
{
	if (!c->device[0] || !device_has(c->device, ""))
		return 0;
	if (c->match != MATCH_IP && device_has(c->device, "phy80211"))
		return 0;
	if (c->backend == BACKEND_AIRTIME)
		return refuse("airtime: not a wireless device, or --match ip");
	if (c->rate_kbit)
		return 0;
	print(STDERR_FILENO, "wifirrd: --rate: must be given: %s reports no link rate\n", c->device);
	return EXIT_USAGE;
}

static int serve(struct wifirr *w)
{
	char reason[256];

	if (!w->config.device[0])
		return refuse("--device: must be given (see --help)");
	/* before any wait, in which SIGHUP would end it */
	if (loop_open(device_tick) < 0 || take_signals() < 0)
		goto cannot;
	/* before any look at the device: the guard of a killed wifirrd may still be restoring it */
	if (claim_device(w->config.device, LOCK_WAIT_MS) < 0) {
		print(STDERR_FILENO, "wifirrd: --device %s: another wifirrd already schedules it\n", w->config.device);
		return EXIT_USAGE;
	}
	if (device_open(w) < 0)
		goto cannot;
	if (!w->ifindex) {
		print(STDERR_FILENO, "wifirrd: --device %s: no such device\n", w->config.device);
		return EXIT_USAGE;
	}
	mkdir(RUN_DIR, 0750);	/* on failure, whoever needs it reports it */
	if (control_start(w, reason, sizeof(reason)) < 0)
		return refuse(reason);
	w->started = now_ms();
	policy_init(&w->policy, &w->config.policy);
	if (device_start(w, reason, sizeof(reason)) < 0) {
		control_stop(w);
		return refuse(reason);
	}
	go_first();
	tick_in(0);
	loop_run(w);
	device_stop(w);
	control_stop(w);
	return w->failed ? EXIT_FAILED : 0;
cannot:
	print(STDERR_FILENO, "wifirrd: cannot start: %s\n", strerror(errno));
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct wifirr *w = &daemon_state;
	const char *command, *operand;
	char reason[256];
	int first;

	command_line.argc = argc;
	command_line.argv = argv;
	first = options_read(&w->config, argc, argv, reason, sizeof(reason));
	if (first < 0)
		return refuse(reason);
	log_verbosity(w->config.verbose);
	if (first == argc)
		return serve(w);
	command = argv[first];
	operand = argv[first + 1];
	if (operand && !argv[first + 2] && strcmp(command, "check") == 0)
		return check_device(operand);
	if (operand) {
		print(STDERR_FILENO, "wifirrd: %s: one command at a time\n", operand);
		return EXIT_USAGE;
	}
	if (strcmp(command, "guard") == 0)
		return guard_run(w);	/* started only by guard.c */
	if (strcmp(command, "restore") == 0)
		return restore(w);
	if (strcmp(command, "check") == 0)
		return check_options(&w->config);
	if (w->config.control[0])
		return control_request(w->config.control, command);
	print(STDERR_FILENO, "wifirrd: %s: --control or --device must name the daemon\n", command);
	return EXIT_USAGE;
}
