/* SPDX-License-Identifier: Apache-2.0 */
/* The clock, the log and the epoll loop, which knows nothing of what it runs. */
#include "loop.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static struct {
	int epoll, verbosity;
	bool over;
	struct watch timer;
	void (*tick)(struct wifirr *w);
} loop = { .epoll = -1, .timer.fd = -1 };

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

uint64_t now_ms(void)
{
	return now_ns() / 1000000;
}

void log_verbosity(int verbosity)
{
	loop.verbosity = verbosity;
}

static void print_line(int fd, const char *before, const char *fmt, va_list args, const char *after)
{
	char line[512];
	size_t n = snprintf(line, sizeof(line), "%s", before), end = strlen(after);

	vsnprintf(line + n, sizeof(line) - n - end, fmt, args);
	n = strlen(line);
	memcpy(line + n, after, end);
	while (write(fd, line, n + end) < 0 && errno == EINTR)
		;
}

void print(int fd, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	print_line(fd, "", fmt, args, "");
	va_end(args);
}

void logmsg(int priority, const char *fmt, ...)
{
	va_list args;

	if (priority > LOG_NOTICE + loop.verbosity)
		return;
	va_start(args, fmt);
	print_line(priority <= LOG_WARNING ? STDERR_FILENO : STDOUT_FILENO, "wifirrd: ", fmt, args, "\n");
	va_end(args);
}

void go_first(void)
{
	struct sched_param priority = { .sched_priority = 1 };

	sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
}

int watch_add(struct watch *watch)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = watch };

	return epoll_ctl(loop.epoll, EPOLL_CTL_ADD, watch->fd, &event);
}

void watch_del(struct watch *watch)
{
	epoll_ctl(loop.epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

/* The extra nanosecond: a time of 0 would disarm the timer. */
static void set_timer(int flags, uint64_t ms)
{
	uint64_t s = ms / 1000;
	struct itimerspec t = { .it_value = { .tv_sec = s, .tv_nsec = (ms - s * 1000) * 1000000 + 1 } };

	timerfd_settime(loop.timer.fd, flags, &t, NULL);
}

void tick_in(uint64_t ms)
{
	set_timer(0, ms);
}

void tick_at(uint64_t ms)
{
	set_timer(TFD_TIMER_ABSTIME, ms);
}

static void timer_readable(struct wifirr *w)
{
	uint64_t expirations;

	if (read(loop.timer.fd, &expirations, sizeof(expirations)) > 0)
		loop.tick(w);
}

int loop_open(void (*tick)(struct wifirr *w))
{
	loop.tick = tick;
	loop.epoll = epoll_create1(EPOLL_CLOEXEC);
	loop.timer = (struct watch){
		.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
		.readable = timer_readable,
	};
	return loop.epoll < 0 || loop.timer.fd < 0 ? -1 : watch_add(&loop.timer);
}

void loop_end(void)
{
	loop.over = true;
}

void loop_run(struct wifirr *w)
{
	struct epoll_event event;

	while (!loop.over)
		/* one at a time: a handler may remove another's watch */
		if (epoll_wait(loop.epoll, &event, 1, -1) == 1)
			((struct watch *)event.data.ptr)->readable(w);
}
