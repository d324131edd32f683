/* SPDX-License-Identifier: Apache-2.0 */
/* Options, the event loop, and the life of the device. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include "radio.h"
#include "wifirrd.h"

#define EXPECTED_REFRESH_MS 60000	/* stations' expected throughput */
#define EXPECTED_SHAPING_MS 1000	/* and while htb has no other link rate */
#define RECOVER_MS 1000			/* between attempts to set the backend up again */
#define RECOVER_TRIES 5			/* failed ones in a row before giving up */

#define OPTIONS_SIZE 8192		/* of a file of options, bytes */

static struct wifirr daemon_state;
static int verbosity;
static struct { int argc; char **argv; } command_line;

static struct {
	struct mnl_socket *requests, *events;
	int timer, signals;
	bool quit, lost, reload;
	bool attached;
	bool changed;			/* options that no backend has started with yet */
	bool apply_all;			/* every client's level, not only those that changed */
	struct config before;		/* and those that it had */
	unsigned failures;
	uint64_t recovered_at;
	uint64_t expected_at;
	struct watch timer_watch, signal_watch, link_watch;
} loop = { .timer = -1, .signals = -1 };

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

void logmsg(int priority, const char *fmt, ...)
{
	FILE *to = priority <= LOG_WARNING ? stderr : stdout;
	char line[512];
	va_list args;

	if (priority > LOG_NOTICE + verbosity)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	fprintf(to, "wifirrd: %s\n", line);
	fflush(to);
}

int watch_add(struct wifirr *w, struct watch *watch)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = watch };

	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, watch->fd, &event);
}

void watch_del(struct wifirr *w, struct watch *watch)
{
	epoll_ctl(w->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

static void wake_in(uint64_t ms)
{
	struct itimerspec t = { .it_value = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 } };

	if (!ms)
		t.it_value.tv_nsec = 1;
	timerfd_settime(loop.timer, 0, &t, NULL);
}

/* At an absolute time, so that turns do not drift by the time that work takes. */
static void wake_at(uint64_t ms)
{
	struct itimerspec t = { .it_value = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 + 1 } };

	timerfd_settime(loop.timer, TFD_TIMER_ABSTIME, &t, NULL);
}

void tick_soon(struct wifirr *w)
{
	(void)w;
	wake_in(0);
}

void backend_lost(struct wifirr *w, const char *what)
{
	uint64_t since = now_ms() - loop.recovered_at;

	if (loop.lost)
		return;
	logmsg(LOG_WARNING, "%s: %s is gone: setting it up again", w->config.device, what);
	loop.lost = true;
	wake_in(since < RECOVER_MS ? RECOVER_MS - since : 0);
}

void backend_add(struct wifirr *w, uint16_t id)
{
	if (!w->backend)
		return;
	w->station[id].backed = true;
	w->station[id].bytes = w->station[id].bytes_before = 0;
	/* at worst the client stays unscheduled; if all is gone, read() will tell */
	if (w->backend->add)
		w->backend->add(w, id);
}

void backend_del(struct wifirr *w, uint16_t id)
{
	if (!w->backend || !w->station[id].backed)
		return;
	if (w->backend->del)
		w->backend->del(w, id);
	w->station[id].backed = false;
}

static void backend_stop(struct wifirr *w)
{
	if (!w->backend)
		return;
	w->backend->stop(w);
	w->backend = NULL;
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++)
		w->station[id].backed = false;
}

/* K and T where they are not given: the backend's. */
static void set_turns(struct config *c, bool htb)
{
	struct policy_config defaults;

	policy_defaults(&defaults, c->policy.mode, htb);
	c->policy.active = c->active ? c->active : defaults.active;
	c->policy.slot_ms = c->slot_ms ? c->slot_ms : defaults.slot_ms;
	c->policy.trickle = htb;
}

static int backend_try(struct wifirr *w, const struct backend *backend, char *reason, size_t size)
{
	set_turns(&w->config, backend == &htb_backend);
	policy_configure(&w->policy, &w->config.policy);
	if (backend->start(w, reason, size) < 0)
		return -1;
	w->backend = backend;
	loop.apply_all = true;
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].used)
			backend_add(w, id);
	if (backend->flush)
		backend->flush(w);
	return 0;
}

static int backend_start(struct wifirr *w, char *reason, size_t size)
{
	w->refused[0] = '\0';
	if (w->config.backend != BACKEND_HTB) {
		if (backend_try(w, &airtime_backend, reason, size) == 0)
			return 0;
		if (w->config.backend == BACKEND_AIRTIME)
			return -1;
		snprintf(w->refused, sizeof(w->refused), "%s", reason);
		logmsg(LOG_INFO, "%s", reason);
	}
	return backend_try(w, &htb_backend, reason, size);
}

/* The device's attributes from an RTM_NEWLINK. */
static int link_info(const struct nlmsghdr *nlh, void *data)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *attr;
	struct wifirr *w = data;
	bool wanted = false;

	if (nlh->nlmsg_type != RTM_NEWLINK || mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifi))
		return MNL_CB_OK;
	mnl_attr_for_each(attr, nlh, sizeof(*ifi))
		if (mnl_attr_get_type(attr) == IFLA_IFNAME && mnl_attr_validate(attr, MNL_TYPE_NUL_STRING) >= 0)
			wanted = strcmp(mnl_attr_get_str(attr), w->config.device) == 0;
	if (!wanted)
		return MNL_CB_OK;
	w->ifindex = ifi->ifi_index;
	mnl_attr_for_each(attr, nlh, sizeof(*ifi)) {
		uint16_t type = mnl_attr_get_type(attr), size = mnl_attr_get_payload_len(attr);

		if (type == IFLA_MTU && size == 4)
			w->mtu = mnl_attr_get_u32(attr);
		/* while there is a backend, it may be the backend's */
		if (type == IFLA_GSO_MAX_SEGS && size == 4 && !w->backend)
			w->gso_max_segs = mnl_attr_get_u32(attr);
		if (type == IFLA_ADDRESS && size == 6)
			memcpy(w->mac, mnl_attr_get_payload(attr), 6);
	}
	return MNL_CB_OK;
}

/* Looks the device up by its name: sets ifindex and the rest, or ifindex 0. */
static void find_device(struct wifirr *w)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);

	w->ifindex = 0;
	nlh->nlmsg_type = RTM_GETLINK;
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct ifinfomsg));
	rtnl_dump(loop.requests, nlh, link_info, w);
}

static void detach(struct wifirr *w)
{
	if (!loop.attached)
		return;
	backend_stop(w);
	radio_stop(w);
	survey_stop(w);
	nl80211_stop(w);
	stations_stop();
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (!w->station[id].used)
			continue;
		policy_del(&w->policy, id);
		w->station[id] = (struct station){ .used = false };
	}
	loop.attached = false;
}

/* Takes the device into service. -1: reason, and nothing is changed. */
static int attach(struct wifirr *w, char *reason, size_t size)
{
	loop.attached = true;
	*reason = '\0';
	w->wireless = w->config.match == MATCH_MAC && nl80211_start(w, reason, size) == 0;
	if (*reason)
		goto fail;
	/* nl80211 knows an access point's clients best; without it the tables tell */
	if (!w->wireless && stations_start(w, reason, size) < 0)
		goto fail;
	if (w->wireless)
		survey_start(w);	/* unknown is an answer too */
	if (w->wireless)
		radio_start(w);
	if (backend_start(w, reason, size) < 0)
		goto fail;
	classify_warn_offload(w);
	logmsg(LOG_NOTICE, "%s: scheduling by %s", w->config.device, w->backend->name);
	return 0;
fail:
	detach(w);
	return -1;
}

static int link_event(const struct nlmsghdr *nlh, void *data)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *attr;
	struct wifirr *w = data;

	if (mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifi))
		return MNL_CB_OK;
	if (nlh->nlmsg_type == RTM_DELLINK && ifi->ifi_index == w->ifindex)
		loop.reload = ifi->ifi_family != AF_BRIDGE || loop.reload;
	if (nlh->nlmsg_type != RTM_NEWLINK)
		return MNL_CB_OK;
	mnl_attr_for_each(attr, nlh, sizeof(*ifi)) {
		bool named;

		if (mnl_attr_get_type(attr) != IFLA_IFNAME || mnl_attr_validate(attr, MNL_TYPE_NUL_STRING) < 0)
			continue;
		named = strcmp(mnl_attr_get_str(attr), w->config.device) == 0;
		/* ours came, or was renamed */
		if (named != (ifi->ifi_index == w->ifindex))
			loop.reload = true;
	}
	return MNL_CB_OK;
}

static void link_readable(struct wifirr *w)
{
	char buf[16384] __attribute__((aligned(NLMSG_ALIGNTO)));

	for (unsigned i = 0; i < 64; i++) {
		ssize_t len = recv(loop.link_watch.fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (len < 0 && errno == ENOBUFS) {
			loop.reload = true;
			continue;
		}
		if (len < 0)
			break;
		mnl_cb_run(buf, len, 0, 0, link_event, w);
	}
	if (loop.reload)
		tick_soon(w);
}

/* The device came, went or changed its identity, or everything shall be read again. */
static void reload(struct wifirr *w)
{
	int before = w->ifindex;
	char reason[256];

	loop.reload = false;
	find_device(w);
	if (loop.attached && w->ifindex == before)
		return;
	if (loop.attached) {
		logmsg(LOG_NOTICE, "%s is gone", w->config.device);
		w->ifindex = 0;		/* nothing of it is left to give back */
		detach(w);
		find_device(w);
	}
	if (!w->ifindex)
		return;
	if (attach(w, reason, sizeof(reason)) == 0) {
		loop.failures = 0;
		return;
	}
	/* A device may take a moment until it can be used. */
	if (++loop.failures >= RECOVER_TRIES) {
		logmsg(LOG_ERR, "%s", reason);
		loop.quit = true;
		return;
	}
	logmsg(LOG_WARNING, "%s (trying again)", reason);
	loop.reload = true;
}

static void take_options(struct wifirr *w, const struct config *config)
{
	w->config = *config;
	verbosity = config->verbose;
	stations_exempt(w);
}

/* Sets up again what somebody else removed, or with other options. */
static void recover(struct wifirr *w)
{
	bool changed = loop.changed;
	char reason[256];
	int started;

	loop.lost = loop.changed = false;
	loop.recovered_at = now_ms();
	backend_stop(w);
	w->restarts++;
	started = backend_start(w, reason, sizeof(reason));
	if (started < 0 && changed) {
		logmsg(LOG_ERR, "%s: the options from before go on", reason);
		take_options(w, &loop.before);
		started = backend_start(w, reason, sizeof(reason));
	}
	if (started == 0) {
		loop.failures = 0;
		return;
	}
	if (++loop.failures >= RECOVER_TRIES) {
		logmsg(LOG_ERR, "%s", reason);
		loop.quit = true;
		return;
	}
	logmsg(LOG_WARNING, "%s (trying again)", reason);
	loop.lost = true;
}

/* For tests and the curious: every change as it was made. */
static void trace_levels(const struct wifirr *w, const uint16_t *ids, size_t n)
{
	char text[ADDR_TEXT];
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	for (size_t i = 0; i < n; i++)
		logmsg(LOG_DEBUG, "%lld.%06ld %s %s", (long long)t.tv_sec, t.tv_nsec / 1000,
		       addr_text(&w->station[ids[i]].addr, text),
		       policy_level_name(w->policy.client[ids[i]].level));
}

/* An idle station's rate says nothing about what it gets under load: htb needs it fresh. */
static unsigned expected_refresh_ms(const struct wifirr *w)
{
	bool shaping = w->backend == &htb_backend && !w->config.rate_kbit &&
		(w->policy.scheduling || w->policy.demanding > w->config.policy.active);

	return shaping ? EXPECTED_SHAPING_MS : EXPECTED_REFRESH_MS;
}

/* By how much a counter grew that may restart at 0. */
static uint64_t grown(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

static void tick(struct wifirr *w)
{
	static uint16_t changed[POLICY_CLIENTS_MAX];
	uint64_t now, begun, radio_due;
	bool scheduling;
	int busy;
	size_t n = 0;

	if (loop.reload)
		reload(w);
	if (loop.lost && loop.attached && now_ms() - loop.recovered_at >= RECOVER_MS)
		recover(w);
	if (loop.quit)
		return;
	if (loop.lost || loop.reload)
		wake_in(RECOVER_MS);
	if (loop.lost || !w->backend)
		return;

	stations_refresh(w);
	if (w->backend->flush && w->backend->flush(w) < 0)
		backend_lost(w, "classification");
	now = now_ms();
	if (w->wireless && now - loop.expected_at >= expected_refresh_ms(w)) {
		loop.expected_at = now;
		nl80211_expected(w);
	}
	if (w->backend->read(w) < 0)
		backend_lost(w, w->backend->name);
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		struct station *s = &w->station[id];

		if (!s->used)
			continue;
		policy_sample(&w->policy, id, s->waiting, grown(s->bytes, s->bytes_before));
		policy_received(&w->policy, id, grown(s->received, s->received_before));
		s->bytes_before = s->bytes;
		s->received_before = s->received;
	}

	now = now_ms();
	scheduling = w->policy.scheduling;
	busy = survey_get(w).busy_permille;
	radio_due = radio_tick(w, now, busy);
	policy_tick(&w->policy, now, busy);
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (!w->station[id].used)
			continue;
		if (w->policy.client[id].demand)
			w->station[id].last_demand = now;
		if (w->policy.client[id].changed || loop.apply_all)
			changed[n++] = id;
	}
	loop.apply_all = false;
	if (n || scheduling != w->policy.scheduling) {
		begun = now_ns();
		if (w->backend->apply(w, changed, n) < 0)
			backend_lost(w, w->backend->name);
		w->change_ns += now_ns() - begun;
		w->changes++;
	}
	if (verbosity > 1)
		trace_levels(w, changed, n);
	if (!loop.lost)
		wake_at(radio_due < w->policy.wake_at ? radio_due : w->policy.wake_at);
}

static void timer_readable(struct wifirr *w)
{
	uint64_t expirations;

	if (read(loop.timer, &expirations, sizeof(expirations)) > 0)
		tick(w);
}

static int parse(struct config *c, int argc, char **argv);

/* Where bad() goes while the daemon runs; NULL: it ends. */
static jmp_buf *correction;

/*
 * Whether the backend goes on with the new options. To set it up again drops
 * what waits in its queues, and TCP takes seconds to come back from that.
 */
static bool in_place(const struct config *old, const struct config *new)
{
	return old->backend == new->backend && old->match == new->match &&
		old->exempt_voice == new->exempt_voice && !old->rate_kbit == !new->rate_kbit;
}

/*
 * Reads the file of options again. Clients and their demand stay, and so does
 * everything while something is wrong.
 */
static void read_options_again(struct wifirr *w)
{
	static struct config config;
	jmp_buf back;

	if (setjmp(back)) {
		correction = NULL;
		logmsg(LOG_ERR, "%s: the options from before go on", w->config.device);
		return;
	}
	correction = &back;
	parse(&config, command_line.argc, command_line.argv);
	correction = NULL;
	if (w->backend && in_place(&w->config, &config)) {
		config.policy.next_lead_ms = w->policy.config.next_lead_ms;	/* the backend's */
		config.policy.soon_lead_ms = w->policy.config.soon_lead_ms;
		set_turns(&config, w->backend == &htb_backend);
		take_options(w, &config);
		policy_configure(&w->policy, &config.policy);
		loop.apply_all = true;
		return;
	}
	loop.before = w->config;
	loop.changed = true;
	loop.lost |= loop.attached;
	take_options(w, &config);
	if (config.match != loop.before.match)
		detach(w);	/* its clients are other ones */
}

static void signal_readable(struct wifirr *w)
{
	struct signalfd_siginfo info;

	while (read(loop.signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGHUP) {
			loop.quit = true;
			continue;
		}
		logmsg(LOG_NOTICE, "SIGHUP: reading the options again");
		read_options_again(w);
		loop.reload = true;
		tick_soon(w);
	}
}

/* Options */

static void usage(void)
{
	printf("Usage: wifirrd --device NAME [options]\n"
	       "       wifirrd [--control PATH | --device NAME] status|clients|pause|resume|metrics\n"
	       "       wifirrd [options] check|clean\n"
	       "       wifirrd restore\n"
	       "\n"
	       "Makes the most of a WiFi link that many clients share: their contention windows\n"
	       "where they aggregate frames, else only K of them at full speed at a time, in turn.\n"
	       "check says whether the options can be; clean gives back what a killed wifirrd has set\n"
	       "on a device, restore what it has left on a radio.\n"
	       "\n"
	       "  --device NAME         device whose egress is scheduled\n"
	       "  --backend B           auto, airtime or htb (auto: airtime where the driver has it)\n"
	       "  --mode M              backlog or paper (backlog: clients with demand take turns,\n"
	       "                        staggered; paper: all clients, in fixed groups)\n"
	       "  --engage E            auto, always or dry-run (auto: only when it can help)\n"
	       "  --active K            clients at full speed at a time, 1..512 (airtime 1,\n"
	       "                        htb 3; paper: 5)\n"
	       "  --slot MS             a client's turn, 10..60000 ms (airtime 4800,\n"
	       "                        htb 2400; paper: 1600)\n"
	       "  --trickle KBIT        rate of a waiting client, kbit/s, htb only (20; paper: 100)\n"
	       "  --rate KBIT           rate of the link, kbit/s, htb only (expected throughput of\n"
	       "                        the stations; must be given where there is none)\n"
	       "  --weights A,B         airtime weights of active and waiting clients (384,1)\n"
	       "  --windows W           auto or off: the contention windows that hostapd announces to\n"
	       "                        clients, by how many contend (auto)\n"
	       "  --rts N               RTS threshold in a crowd where most clients use 802.11n or\n"
	       "                        later, bytes; auto: 500 where collisions cost more than\n"
	       "                        RTS; off: left alone (auto)\n"
	       "  --demand-bytes N      more than this waiting is demand, bytes (3000)\n"
	       "  --demand-rate KBIT    more than this delivered is demand, kbit/s (60)\n"
	       "  --busy-threshold P    engage only when the channel is busier, percent (50)\n"
	       "  --engage-delay MS     release only after this long, and engage, where the channel's\n"
	       "                        use is not known, ms (1000)\n"
	       "  --match M             mac or ip (mac; ip where clients sit behind one next hop)\n"
	       "  --always ADDR         never throttle this client (MAC or IP; may be repeated)\n"
	       "  --ignore ADDR         the same, and its demand does not count (may be repeated)\n"
	       "  --exempt-voice        never throttle DSCP EF and VOICE-ADMIT, htb only\n"
	       "  --options FILE        more of these options, a line each, such as slot=2400; SIGHUP\n"
	       "                        reads it again\n"
	       "  --control PATH        control socket (/var/run/wifirr/NAME.sock)\n"
	       "  --verbose             say more; twice: every change\n"
	       "  --help                this text\n"
	       "  --version             version\n");
}

static struct { const char *file; unsigned line; } place;	/* of the option being read; line 0: the command line */

static void bad(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
static void bad(const char *fmt, ...)
{
	va_list args;

	fputs("wifirrd: ", stderr);
	if (place.line)
		fprintf(stderr, "%s:%u: ", place.file, place.line);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	if (correction)
		longjmp(*correction, 1);
	exit(EXIT_USAGE);
}

static unsigned number(const char *flag, const char *text, unsigned min, unsigned max)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end || errno || value < min || value > max)
		bad("--%s %s: must be a whole number from %u to %u", flag, text, min, max);
	return value;
}

static int choice(const char *flag, const char *text, const char *const *names)
{
	char list[64];
	size_t n = 0;

	for (int i = 0; names[i]; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	for (int i = 0; names[i]; i++)
		n += snprintf(list + n, sizeof(list) - n, "%s%s", i ? (names[i + 1] ? ", " : " or ") : "", names[i]);
	bad("--%s %s: must be %s", flag, text, list);
}

static void exempt(struct config *c, const char *flag, const char *text, bool always)
{
	struct addr addr;

	if (addr_parse(&addr, text) < 0)
		bad("--%s %s: not a MAC, IPv4 or IPv6 address", flag, text);
	for (unsigned i = 0; i < c->always_count; i++)
		if (!memcmp(&c->always[i], &addr, sizeof(addr)))
			bad("--%s %s: given twice (already in --always)", flag, text);
	for (unsigned i = 0; i < c->ignore_count; i++)
		if (!memcmp(&c->ignore[i], &addr, sizeof(addr)))
			bad("--%s %s: given twice (already in --ignore)", flag, text);
	if ((always ? c->always_count : c->ignore_count) == EXEMPTIONS_MAX)
		bad("--%s %s: no more than %u are possible", flag, text, EXEMPTIONS_MAX);
	if (always)
		c->always[c->always_count++] = addr;
	else
		c->ignore[c->ignore_count++] = addr;
}

/* The name goes into nft's input, so nothing that needs quoting. */
static void set_device(struct config *c, const char *name)
{
	if (!*name || strlen(name) >= sizeof(c->device) || name[strspn(name,
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-")])
		bad("--device %s: not a device name", name);
	snprintf(c->device, sizeof(c->device), "%s", name);
}

static void set_weights(struct config *c, const char *text)
{
	char active[8];
	const char *comma = strchr(text, ',');

	if (!comma || (size_t)(comma - text) >= sizeof(active))
		bad("--weights %s: must be two numbers, ACTIVE,WAITING", text);
	snprintf(active, sizeof(active), "%.*s", (int)(comma - text), text);
	c->weight_active = number("weights", active, 1, 65535);
	c->weight_waiting = number("weights", comma + 1, 1, 65535);
}

static void set_rts(struct config *c, const char *flag, const char *text)
{
	if (strcmp(text, "auto") == 0)
		c->rts = RTS_AUTO;
	else if (strcmp(text, "off") == 0)
		c->rts = RTS_OFF;
	else
		c->rts = number(flag, text, 0, 65535);
}

enum {
	OPT_DEVICE = 256, OPT_BACKEND, OPT_MODE, OPT_ENGAGE, OPT_ACTIVE, OPT_SLOT, OPT_TRICKLE, OPT_RATE,
	OPT_WEIGHTS, OPT_WINDOWS, OPT_RTS, OPT_DEMAND_BYTES, OPT_DEMAND_RATE, OPT_BUSY, OPT_DELAY, OPT_MATCH, OPT_ALWAYS,
	OPT_IGNORE, OPT_VOICE, OPT_OPTIONS, OPT_CONTROL, OPT_VERBOSE, OPT_HELP, OPT_VERSION,
};

static const struct option options[] = {
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "backend", required_argument, NULL, OPT_BACKEND },
	{ "mode", required_argument, NULL, OPT_MODE },
	{ "engage", required_argument, NULL, OPT_ENGAGE },
	{ "active", required_argument, NULL, OPT_ACTIVE },
	{ "slot", required_argument, NULL, OPT_SLOT },
	{ "trickle", required_argument, NULL, OPT_TRICKLE },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "weights", required_argument, NULL, OPT_WEIGHTS },
	{ "windows", required_argument, NULL, OPT_WINDOWS },
	{ "rts", required_argument, NULL, OPT_RTS },
	{ "demand-bytes", required_argument, NULL, OPT_DEMAND_BYTES },
	{ "demand-rate", required_argument, NULL, OPT_DEMAND_RATE },
	{ "busy-threshold", required_argument, NULL, OPT_BUSY },
	{ "engage-delay", required_argument, NULL, OPT_DELAY },
	{ "match", required_argument, NULL, OPT_MATCH },
	{ "always", required_argument, NULL, OPT_ALWAYS },
	{ "ignore", required_argument, NULL, OPT_IGNORE },
	{ "exempt-voice", no_argument, NULL, OPT_VOICE },
	{ "options", required_argument, NULL, OPT_OPTIONS },
	{ "control", required_argument, NULL, OPT_CONTROL },
	{ "verbose", no_argument, NULL, OPT_VERBOSE },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ 0 },
};

/* Options whose defaults depend on others; 0: not given. */
struct given {
	unsigned trickle;
	const char *file;
};

/* Returns the index of the first argument that is no option. */
static int read_flags(struct config *c, struct given *given, int argc, char **argv)
{
	static const char *const backends[] = { "auto", "airtime", "htb", NULL };
	static const char *const modes[] = { "backlog", "paper", NULL };
	static const char *const engages[] = { "auto", "always", "dry-run", NULL };
	static const char *const matches[] = { "mac", "ip", NULL };
	static const char *const windows[] = { "off", "auto", NULL };
	int opt;

	opterr = 0;
	optind = 0;	/* from the beginning, also the second time */
	while ((opt = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		const char *flag = opt >= OPT_DEVICE ? options[opt - OPT_DEVICE].name : "";

		if (place.line && (opt == OPT_DEVICE || opt == OPT_OPTIONS || opt == OPT_CONTROL || opt == OPT_HELP ||
				   opt == OPT_VERSION))
			bad("--%s: only on the command line", flag);
		switch (opt) {
		case OPT_DEVICE: set_device(c, optarg); break;
		case OPT_BACKEND: c->backend = choice(flag, optarg, backends); break;
		case OPT_MODE: c->policy.mode = choice(flag, optarg, modes); break;
		case OPT_ENGAGE: c->policy.engage = choice(flag, optarg, engages); break;
		case OPT_ACTIVE: c->active = number(flag, optarg, 1, POLICY_CLIENTS_MAX); break;
		case OPT_SLOT: c->slot_ms = number(flag, optarg, 10, 60000); break;
		case OPT_TRICKLE: given->trickle = number(flag, optarg, 1, 1000000); break;
		case OPT_RATE: c->rate_kbit = number(flag, optarg, 100, 10000000); break;
		case OPT_WEIGHTS: set_weights(c, optarg); break;
		case OPT_WINDOWS: c->windows = choice(flag, optarg, windows); break;
		case OPT_RTS: set_rts(c, flag, optarg); break;
		case OPT_DEMAND_BYTES: c->policy.demand_bytes = number(flag, optarg, 0, 100000000); break;
		case OPT_DEMAND_RATE: c->policy.demand_bps = 1000 * number(flag, optarg, 0, 1000000); break;
		case OPT_BUSY: c->policy.busy_permille = 10 * number(flag, optarg, 0, 100); break;
		case OPT_DELAY: c->policy.engage_delay_ms = number(flag, optarg, 0, 3600000); break;
		case OPT_MATCH: c->match = choice(flag, optarg, matches); break;
		case OPT_ALWAYS: exempt(c, flag, optarg, true); break;
		case OPT_IGNORE: exempt(c, flag, optarg, false); break;
		case OPT_VOICE: c->exempt_voice = true; break;
		case OPT_OPTIONS: given->file = optarg; break;
		case OPT_CONTROL:
			if (strlen(optarg) >= sizeof(c->control))
				bad("--control: path longer than %zu characters", sizeof(c->control) - 1);
			snprintf(c->control, sizeof(c->control), "%s", optarg);
			break;
		case OPT_VERBOSE: c->verbose++; break;
		case OPT_HELP: usage(); exit(0);
		case OPT_VERSION: printf("wifirrd %s\n", WIFIRR_VERSION); exit(0);
		case ':': bad("%s: needs a value", argv[optind - 1]);
		default: bad("%s: unknown option (see --help)", argv[optind - 1]);
		}
	}
	return optind;
}

static void read_file(struct config *c, struct given *given)
{
	static char text[OPTIONS_SIZE + 3];	/* and the dashes of the line being read, and the final zero */
	char *line = text + 2, *end;
	int fd = open(given->file, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t n;

	if (fd < 0)
		bad("--options %s: %s", given->file, strerror(errno));
	while ((n = read(fd, line + size, OPTIONS_SIZE - size)) > 0)
		size += n;
	close(fd);
	if (n < 0)
		bad("--options %s: %s", given->file, strerror(errno));
	if (size == OPTIONS_SIZE || memchr(line, '\0', size))
		bad("--options %s: no text of less than %d bytes", given->file, OPTIONS_SIZE);
	line[size] = '\0';
	place.file = given->file;
	for (place.line = 1; *line; place.line++, line = end) {
		char *argv[] = { "wifirrd", line - 2, NULL };

		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		if (!*line || *line == '#')
			continue;
		memcpy(line - 2, "--", 2);	/* over what has been read */
		read_flags(c, given, 2, argv);
	}
	place.line = 0;
}

/* Returns the index of the first argument that is no option. */
static int parse(struct config *c, int argc, char **argv)
{
	struct given given = { 0 };
	int first;

	place.line = 0;
	*c = (struct config){ .weight_active = 384, .weight_waiting = 1, .windows = true, .rts = RTS_AUTO };
	policy_defaults(&c->policy, POLICY_BACKLOG, false);
	first = read_flags(c, &given, argc, argv);
	if (given.file)
		read_file(c, &given);
	set_turns(c, c->backend == BACKEND_HTB);
	c->trickle_kbit = given.trickle ? given.trickle : c->policy.mode == POLICY_PAPER ? 100 : 20;
	if (c->rate_kbit && c->trickle_kbit >= c->rate_kbit)
		bad("--trickle %u: not below --rate %u", c->trickle_kbit, c->rate_kbit);
	if (!c->control[0] && c->device[0])
		snprintf(c->control, sizeof(c->control), RUN_DIR "/%s.sock", c->device);
	return first;
}

/* One daemon a device: an abstract socket, which a kill frees, per network namespace. */
static bool claim_device(const struct config *c)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "wifirrd/%s", c->device);
	return fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/*
 * What must be known of the device: of those that tell no link rate, the
 * options have to. A device that is not there yet may be any.
 */
static void check_rate(const struct config *c)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/class/net/%s", c->device);
	if (!c->device[0] || c->rate_kbit || c->backend == BACKEND_AIRTIME || access(path, F_OK) < 0)
		return;
	snprintf(path, sizeof(path), "/sys/class/net/%s/phy80211", c->device);
	if (c->match == MATCH_IP || access(path, F_OK) < 0)
		bad("--rate: must be given: %s tells no link rate", c->device);
}

/*
 * A turn that begins late is airtime lost, and a busy router is just where we
 * run. What a tick does is short and bounded, so it may go first. Not so the
 * children (nft). Without permission: as everybody else.
 */
static void go_first(void)
{
	struct sched_param priority = { .sched_priority = 1 };

	sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &priority);
}

static void open_loop(struct wifirr *w)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	loop.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	loop.requests = rtnl_open(0);
	loop.events = rtnl_open(RTMGRP_LINK);
	if (w->epoll < 0 || loop.signals < 0 || loop.timer < 0 || !loop.requests || !loop.events)
		bad("cannot start: %s", strerror(errno));
	loop.signal_watch = (struct watch){ .fd = loop.signals, .readable = signal_readable };
	loop.timer_watch = (struct watch){ .fd = loop.timer, .readable = timer_readable };
	loop.link_watch = (struct watch){ .fd = mnl_socket_get_fd(loop.events), .readable = link_readable };
	if (watch_add(w, &loop.signal_watch) < 0 || watch_add(w, &loop.timer_watch) < 0 ||
	    watch_add(w, &loop.link_watch) < 0)
		bad("cannot start: epoll: %s", strerror(errno));
}

/* Takes over from a daemon that was killed, and ends in order. One that runs is let alone. */
static int clean(struct wifirr *w)
{
	char reason[256];

	verbosity = LOG_WARNING - LOG_NOTICE;
	if (!w->ifindex || !claim_device(&w->config))
		return 0;
	if (control_start(w, reason, sizeof(reason)) < 0)
		bad("%s", reason);
	policy_init(&w->policy, &w->config.policy);
	if (w->after_kill && attach(w, reason, sizeof(reason)) == 0) {
		w->backend->read(w);
		detach(w);
	}
	control_stop(w);
	return 0;
}

int main(int argc, char **argv)
{
	struct wifirr *w = &daemon_state;
	char reason[256];
	int first;

	command_line.argc = argc;
	command_line.argv = argv;
	first = parse(&w->config, argc, argv);
	verbosity = w->config.verbose;
	if (first + 2 == argc && strcmp(argv[first], "guard") == 0)
		return radio_guard(argv[first + 1]);	/* of a lease: started by radio.c alone */
	if (first + 1 < argc)
		bad("%s: one command at a time", argv[first + 1]);
	if (first < argc && strcmp(argv[first], "check") == 0) {
		check_rate(&w->config);
		return 0;
	}
	if (first < argc && strcmp(argv[first], "restore") == 0)
		return radio_restore();
	if (first < argc && strcmp(argv[first], "clean") != 0) {
		if (!w->config.control[0])
			bad("%s: --control or --device must say which daemon is asked", argv[first]);
		return control_request(w->config.control, argv[first]);
	}
	if (!w->config.device[0])
		bad("--device: must be given (see --help)");

	open_loop(w);
	find_device(w);
	if (first < argc)
		return clean(w);
	if (!w->ifindex)
		bad("--device %s: no such device", w->config.device);
	if (!claim_device(&w->config))
		bad("--device %s: another wifirrd schedules it already", w->config.device);
	if (strncmp(w->config.control, RUN_DIR "/", strlen(RUN_DIR "/")) == 0)
		mkdir(RUN_DIR, 0750);	/* if it cannot be, binding the socket says so */
	if (control_start(w, reason, sizeof(reason)) < 0)
		bad("%s", reason);
	w->started = now_ms();
	policy_init(&w->policy, &w->config.policy);
	if (attach(w, reason, sizeof(reason)) < 0) {
		control_stop(w);
		bad("%s", reason);
	}
	go_first();
	tick_soon(w);
	while (!loop.quit) {
		struct epoll_event event;

		/* one at a time: a handler may remove another's watch */
		if (epoll_wait(w->epoll, &event, 1, -1) == 1)
			((struct watch *)event.data.ptr)->readable(w);
	}
	detach(w);
	control_stop(w);
	return loop.failures >= RECOVER_TRIES ? EXIT_FAILED : 0;
}
