/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket. Each connection carries one command, a line; the answer is
 * JSON (metrics: Prometheus text). Only root can connect (mode 0600).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "nl80211.h"
#include "radio.h"
#include "wifirrd.h"

#define COMMAND_MAX 64
#define ANSWER_TIMEOUT_S 5
#define ASKING_MAX 8

static struct watch watch = { .fd = -1 };
/* Connections that have not sent their command yet; each new one takes the next place. */
static struct watch asking[ASKING_MAX];
static unsigned accepted; /* how many there have been */

struct text {
	char *data;
	size_t len, size;
	bool failed;
};

static void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	if (t->size - t->len < 1024) {
		char *bigger = realloc(t->data, t->size + 16384);

		if (!bigger) {
			t->failed = true;
			return;
		}
		t->data = bigger;
		t->size += 16384;
	}
	va_start(args, fmt);
	n = vsnprintf(t->data + t->len, t->size - t->len, fmt, args);
	va_end(args);
	if (n >= 0 && (size_t)n < t->size - t->len)
		t->len += n;
	else
		t->failed = true;
}

/* A JSON string. Device names and kernel messages may contain any byte. */
static void put_string(struct text *t, const char *s)
{
	put(t, "\"");
	for (; *s; s++) {
		unsigned char c = *s;

		if (c == '"' || c == '\\')
			put(t, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			put(t, "\\u%04x", c);
		else
			put(t, "%c", c);
	}
	put(t, "\"");
}

/* ,"name":"text", or null if the text is empty. */
static void put_text(struct text *t, const char *name, const char *text)
{
	put(t, ",\"%s\":", name);
	if (*text)
		put_string(t, text);
	else
		put(t, "null");
}

static const char *yes(bool b)
{
	return b ? "true" : "false";
}

/* The text, which names a number, and the number, or null if it is negative. */
static void put_number(struct text *t, const char *before, int value)
{
	if (value < 0)
		put(t, "%snull", before);
	else
		put(t, "%s%d", before, value);
}

static void put_client_name(struct text *t, const struct wifirr *w, uint16_t id)
{
	char text[ADDR_TEXT];

	put(t, "\"%s\"", addr_text(&w->station[id].addr, text));
}

/* The measured gain of a lever; null: not tried yet. */
static void put_gain(struct text *t, const char *name, const struct trial *trial)
{
	put(t, ",\"%s\":", name);
	if (trial->count)
		put(t, "{\"permille\":%d,\"low\":%d,\"high\":%d,\"trials\":%u,\"on\":%s}", trial->gain, trial->low,
		    trial->high, trial->count, yes(trial->on != trial->trying));
	else
		put(t, "null");
}

/* The contention windows announced to the radio's clients, and why; null: no radio. */
static void put_contention(struct text *t)
{
	struct radio_status r;
	char why[160];

	radio_status(&r);
	put(t, ",\"contention\":");
	if (!r.contention) {
		put(t, "null");
		return;
	}
	contention_explain(r.contention, why, sizeof(why));
	put(t, "{\"windows\":%s,\"cwmin\":%u,\"ap_cwmin\":%u", yes(r.larger), r.cwmin, r.ap_cwmin);
	put_text(t, "why", r.problem[0] ? r.problem : why);
	put(t, ",\"instead_of_turns\":%s,\"clients\":%u,\"aggregating\":%u,\"without_wmm\":%u,\"interfaces\":%u",
	    yes(r.contention->instead_of_turns), r.contention->sample.contenders, r.contention->sample.aggregating,
	    r.without_wmm, r.interfaces);
	put_number(t, ",\"failed_permille\":", r.contention->sample.failed_permille);
	put(t, ",\"steps\":%llu", (unsigned long long)r.contention->steps);
	put_gain(t, "gain", &r.contention->trial);
	put_gain(t, "rts_gain", &r.contention->rts_trial);
	put_number(t, ",\"rts\":", r.rts);	/* NL80211_RTS_OFF: -1 */
	put(t, "}");
}

static void status(struct text *t, const struct wifirr *w)
{
	const struct policy *p = &w->policy;
	struct survey survey = survey_get();
	uint64_t now = now_ms();
	bool first = true;
	char why[160];

	policy_explain(p, why, sizeof(why));
	put(t, "{\"version\":\"" WIFIRR_VERSION "\"");
	put_text(t, "device", w->config.device);
	put(t, ",\"present\":%s", yes(w->ifindex));
	put_text(t, "backend", w->backend ? w->backend->name : "");
	put_text(t, "refused", w->refused);
	put_text(t, "warning", w->warning);
	if (w->reload_error[0]) {
		put(t, ",\"reload\":{\"error\":");
		put_string(t, w->reload_error);
		put(t, "}");
	}
	put(t, ",\"classifier\":\"%s\"", classify_name());
	put(t, ",\"mode\":\"%s\",\"engage\":\"%s\"", mode_words[w->config.policy.mode], engage_words[w->config.policy.engage]);
	put(t, ",\"engaged\":%s,\"throttling\":%s,\"paused\":%s", yes(p->engaged), yes(p->scheduling), yes(p->paused));
	put_text(t, "why", why);
	put(t, ",\"value\":%d,\"threshold\":%d", p->value, p->threshold);
	put_gain(t, "gain", &p->trial);
	put(t, ",\"active_max\":%u,\"slot_ms\":%u", p->config.active, p->config.slot_ms);
	put(t, ",\"clients\":%u,\"clients_with_demand\":%u,\"active\":[", p->clients, p->demanding);
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (!p->client[id].used || p->client[id].level != POLICY_ACTIVE)
			continue;
		put(t, "%s", first ? "" : ",");
		put_client_name(t, w, id);
		first = false;
	}
	put(t, "],\"next\":");
	if (p->next != POLICY_NONE) {
		put(t, "{\"client\":");
		put_client_name(t, w, p->next);
		put(t, ",\"in_ms\":%llu}", (unsigned long long)(p->next_at > now ? p->next_at - now : 0));
	} else {
		put(t, "null");
	}
	put_number(t, ",\"channel\":{\"busy_permille\":", survey.busy_permille);
	put_number(t, ",\"receiving_permille\":", survey.rx_permille);
	put_number(t, ",\"sending_permille\":", survey.tx_permille);
	put_number(t, ",\"wasted_estimate_permille\":", survey.wasted_permille);
	put(t, "}");
	put_contention(t);
	put(t, ",\"counters\":{\"turns\":%llu,\"engagements\":%llu,\"changes\":%llu,\"change_us\":%llu,"
	    "\"restarts\":%llu,\"evicted\":%llu,\"refused_clients\":%llu},\"uptime_s\":%llu}\n",
	    (unsigned long long)p->turns, (unsigned long long)p->engagements, (unsigned long long)w->changes,
	    (unsigned long long)w->change_ns / 1000, (unsigned long long)w->restarts,
	    (unsigned long long)w->evicted, (unsigned long long)w->refused_stations,
	    (unsigned long long)(now - w->started) / 1000);
}

static void clients(struct text *t, const struct wifirr *w)
{
	bool first = true;

	put(t, "{\"clients\":[");
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++) {
		const struct policy_client *c = &w->policy.client[id];
		const struct station *s = &w->station[id];
		uint64_t scheduled = c->active_ms + c->waiting_ms;
		char interface[IFNAMSIZ];

		if (!s->used)
			continue;
		put(t, "%s\n{\"client\":", first ? "" : ",");
		first = false;
		put_client_name(t, w, id);
		put_text(t, "interface", if_indextoname(s->ifindex, interface) ? interface : "");
		put(t, ",\"state\":\"%s\",\"demand\":%s,\"always\":%s,\"ignored\":%s,\"neighbour\":%s",
		    policy_level_name(c->level), yes(c->demand), yes(c->flags & POLICY_CLIENT_ALWAYS),
		    yes(c->flags & POLICY_CLIENT_IGNORED), yes(s->neighbour));
		put(t, ",\"waiting_bytes\":%u,\"rate_kbit\":%u,\"delivered_bytes\":%llu", c->waiting,
		    c->rate_bps / 1000, (unsigned long long)c->delivered);
		put(t, ",\"active_ms\":%llu,\"waiting_ms\":%llu", (unsigned long long)c->active_ms,
		    (unsigned long long)c->waiting_ms);
		put_number(t, ",\"active_permille\":", scheduled ? (int)(c->active_ms * 1000 / scheduled) : -1);
		put_number(t, ",\"weight\":", w->backend == &airtime_backend && c->level != POLICY_OPEN ?
			   policy_weight(&w->policy, id, w->config.weight_active, w->config.weight_waiting) : -1);
		put_number(t, ",\"expected_kbit\":", s->expected_kbit ? (int)s->expected_kbit : -1);
		put(t, "}");
	}
	put(t, "\n]}\n");
}

/* tenths: values are tenths of a client. */
static void put_history(struct text *t, const struct wifirr *w, const char *name, unsigned value, bool tenths)
{
	put(t, ",\"%s\":[", name);
	for (unsigned i = 0; i < history_samples(&w->history); i++) {
		int v = history_value(&w->history, i, value);

		put(t, "%s", i ? "," : "");
		if (v < 0)
			put(t, "null");
		else if (tenths)
			put(t, "%d.%d", v / 10, v % 10);
		else
			put(t, "%d", v);
	}
	put(t, "]");
}

static void history(struct text *t, const struct wifirr *w)
{
	put(t, "{\"every_s\":%d", HISTORY_MS / 1000);
	put_history(t, w, "clients_with_demand", HISTORY_DEMANDING, true);
	put_history(t, w, "clients_served", HISTORY_SERVED, true);
	put_history(t, w, "busy_permille", HISTORY_BUSY, false);
	put_history(t, w, "wasted_estimate_permille", HISTORY_WASTED, false);
	put(t, "}\n");
}

static void metric(struct text *t, const struct wifirr *w, const char *name, const char *help, unsigned long long value)
{
	const char *type = strstr(name, "_total") ? "counter" : "gauge";

	put(t, "# HELP wifirr_%s %s\n# TYPE wifirr_%s %s\nwifirr_%s{device=\"%s\"} %llu\n",
	    name, help, name, type, name, w->config.device, value);
}

static void gain_metrics(struct text *t, const struct wifirr *w, const char *lever, const struct trial *trial)
{
	static const char help[] = "Bytes delivered with it, relative to without it, in the last trials.";
	char name[48];

	if (!trial->count)
		return;
	snprintf(name, sizeof(name), "%s_gain_permille", lever);
	metric(t, w, name, help, trial->gain);
	snprintf(name, sizeof(name), "%s_gain_low_permille", lever);
	metric(t, w, name, help, trial->low > 0 ? trial->low : 0);
	snprintf(name, sizeof(name), "%s_gain_high_permille", lever);
	metric(t, w, name, help, trial->high);
}

static void metrics(struct text *t, const struct wifirr *w)
{
	const struct policy *p = &w->policy;
	struct survey survey = survey_get();
	uint64_t delivered = 0, waiting = 0;
	struct radio_status r;

	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++) {
		if (!w->station[id].used)
			continue;
		delivered += p->client[id].delivered;
		waiting += p->client[id].waiting;
	}
	metric(t, w, "engaged", "1 while clients take turns, or would in a dry run.", p->engaged);
	metric(t, w, "clients", "Clients present.", p->clients);
	metric(t, w, "clients_with_demand", "Clients with demand, exempt ones not counted.", p->demanding);
	metric(t, w, "clients_active", "Clients in their turn.", p->active);
	metric(t, w, "waiting_bytes", "Bytes queued for all clients.", waiting);
	metric(t, w, "delivered_bytes", "Bytes delivered to the clients present.", delivered);
	metric(t, w, "turns_total", "Turns begun.", p->turns);
	metric(t, w, "engagements_total", "Times scheduling began.", p->engagements);
	metric(t, w, "changes_total", "Changes made in the kernel.", w->changes);
	metric(t, w, "change_microseconds_total", "Time spent on changes in the kernel.", w->change_ns / 1000);
	metric(t, w, "restarts_total", "Settings restored after another program removed them.", w->restarts);
	metric(t, w, "evicted_total", "Idle clients dropped from a full table.", w->evicted);
	metric(t, w, "refused_clients_total", "Clients refused because the table was full.", w->refused_stations);
	gain_metrics(t, w, "turns", &p->trial);
	radio_status(&r);
	if (r.contention) {
		gain_metrics(t, w, "windows", &r.contention->trial);
		gain_metrics(t, w, "rts", &r.contention->rts_trial);
		metric(t, w, "window_slots", "CWmin that is announced to clients.", r.cwmin);
		metric(t, w, "window_steps_total", "Changes of CWmin.", r.contention->steps);
		metric(t, w, "clients_contending", "Clients of the radio that contend for the channel.", r.contention->sample.contenders);
		metric(t, w, "rts_threshold_bytes", "The radio's RTS threshold; 4294967295: none.", r.rts);
	}
	if (survey.busy_permille >= 0)
		metric(t, w, "channel_busy_permille", "Share of time the channel is in use.", survey.busy_permille);
	if (survey.wasted_permille >= 0)
		metric(t, w, "channel_wasted_estimate_permille", "Estimated share of time lost to collisions and interference.", survey.wasted_permille);
}

static void set_paused(struct text *t, struct wifirr *w, bool paused)
{
	policy_pause(&w->policy, paused);
	tick_in(0);
	put(t, "{\"paused\":%s}\n", yes(paused));
}

enum { STATUS, CLIENTS, HISTORY, METRICS, PAUSE, RESUME };
static const char *const commands[] = { "status", "clients", "history", "metrics", "pause", "resume", NULL };

static void answer(struct text *t, struct wifirr *w, const char *command)
{
	char all[WORDS_TEXT];

	switch (word_find(command, commands, all)) {
	case STATUS:
		classify_warn_offload(w);	/* the operator may have followed its advice */
		return status(t, w);
	case CLIENTS: return clients(t, w);
	case HISTORY: return history(t, w);
	case METRICS: return metrics(t, w);
	case PAUSE: return set_paused(t, w, true);
	case RESUME: return set_paused(t, w, false);
	default: put(t, "{\"error\":\"unknown command\"}\n");
	}
}

/* Not inline: inside the loop of its caller, all that it calls would be larger by half a kilobyte. */
static __attribute__((noinline)) void reply(struct wifirr *w, int fd, const char *command)
{
	struct text t = { 0 };

	answer(&t, w, command);
	if (t.failed || send(fd, t.data, t.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)t.len)
		logmsg(LOG_WARNING, "control: cannot send an answer of %zu bytes", t.len);
	free(t.data);
}

/* A child that has yet to become another program has the connection, too, so the loop would go on watching it. */
static void hang_up(struct watch *a)
{
	watch_del(a);
	close(a->fd);
	a->readable = NULL;
}

/* Answers those who have sent their command. On a busy router, that may be some time after they have connected. */
static void command_readable(struct wifirr *w)
{
	char command[COMMAND_MAX];

	for (struct watch *a = asking; a < asking + ASKING_MAX; a++) {
		ssize_t n = a->readable ? recv(a->fd, command, sizeof(command) - 1, MSG_DONTWAIT) : -1;

		if (n < 0)
			continue;
		command[n] = '\0';
		command[strcspn(command, "\r\n")] = '\0';
		if (n > 0)
			reply(w, a->fd, command);
		hang_up(a);
	}
}

/* The newest takes the place of the oldest: silent ones keep nobody out. */
static void readable(struct wifirr *w)
{
	struct watch *a = &asking[accepted++ % ASKING_MAX];
	int sndbuf = 1 << 20;

	(void)w;
	if (a->readable)
		hang_up(a);
	*a = (struct watch){ accept4(watch.fd, NULL, NULL, SOCK_CLOEXEC), command_readable };
	/* the whole answer fits into the socket buffer, so a slow reader cannot block the daemon */
	setsockopt(a->fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof(sndbuf));
	watch_add(a);
}

/* -1 and errno; EAGAIN: a daemon listens, but takes no connection. */
static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval timeout = { .tv_sec = ANSWER_TIMEOUT_S };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int control_start(struct wifirr *w, char *reason, size_t size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *path = w->config.control;
	mode_t mask;
	int rc, fd;

	/* open() fails for a socket */
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 || (errno != ENXIO && errno != ENOENT && errno != ENOTDIR)) {
		snprintf(reason, size, "--control %s: exists and is not a socket", path);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (errno == ENXIO) {
		fd = connect_to(path);
		if (fd >= 0 || errno == EAGAIN) {
			close(fd);
			snprintf(reason, size, "--control %s: in use by another wifirrd", path);
			return -1;
		}
		unlink(path);
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	watch = (struct watch){ .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), .readable = readable };
	mask = umask(0177);
	rc = watch.fd < 0 ? -1 : bind(watch.fd, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (rc < 0 || listen(watch.fd, 8) < 0 || watch_add(&watch) < 0) {
		snprintf(reason, size, "--control %s: %s", path, strerror(errno));
		if (rc == 0)
			unlink(path);
		if (watch.fd >= 0)
			close(watch.fd);
		watch.fd = -1;
		return -1;
	}
	return 0;
}

void control_stop(struct wifirr *w)
{
	if (watch.fd < 0)
		return;
	watch_del(&watch);
	close(watch.fd);
	watch.fd = -1;
	unlink(w->config.control);
}

int control_request(const char *path, const char *command)
{
	bool any = false, failed = false;
	char buf[4096], all[WORDS_TEXT];
	ssize_t n;
	int fd;

	if (word_find(command, commands, all) < 0) {
		print(STDERR_FILENO, "wifirrd: %s: must be %s\n", command, all);
		return EXIT_USAGE;
	}
	fd = connect_to(path);
	if (fd < 0) {
		print(STDERR_FILENO, "wifirrd: no daemon answers on %s: %s\n", path, strerror(errno));
		return EXIT_FAILED;
	}
	send(fd, command, strlen(command), MSG_NOSIGNAL);	/* if it fails, there is no answer, either */
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		any = true;
		failed |= write(STDOUT_FILENO, buf, n) != n;
	}
	close(fd);
	if (!any || n < 0) {
		print(STDERR_FILENO, "wifirrd: no daemon answers on %s\n", path);
		return EXIT_FAILED;
	}
	return failed ? EXIT_FAILED : 0;
}
