/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy the channel is, from nl80211's survey. ath10k's firmware may take 3 s to
 * answer, and the kernel waits for it, so a separate thread asks. The thread has
 * no clock: survey_ask() wakes it when its last answer is too old, so that
 * surveys cost no wake-ups beyond the main loop's own. A slow driver is asked less
 * and less often, because no turn can begin during a survey.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nl80211.h"
#include "wifirrd.h"

/* ath9k rounds its counters down to whole ms at each read, so do not ask more often. */
#define INTERVAL_MS 1000
/* An older answer is discarded. */
#define VALID_MS 10000
/* Two answers must be at least this far apart to give a share. */
#define SPAN_MIN_MS 100
/* After an answer that took longer than SLOW_MS, the next wait is SLOW_WAIT_MS, doubled each time. */
#define SLOW_MS 500
#define SLOW_WAIT_MS 60000
#define SLOW_WAIT_MAX_MS (32 * SLOW_WAIT_MS)
#define STACK_SIZE 65536

struct counters {
	uint32_t mhz;			/* of the channel, 0: not known */
	uint64_t time, busy, rx, tx;	/* ms, since the driver started */
	bool has_busy, has_rx, has_tx;
};

struct answer {
	struct survey survey;
	uint64_t at;			/* ms */
};

/* Owned by the thread. Requests and answers pass through a socket; when its other end is closed, the thread frees this and ends. */
struct reader {
	int socket, ifindex;
	struct nl80211 nl;
	struct counters before;
};

static struct {
	bool open;
	int socket;
	bool pending;			/* asked, not yet answered */
	unsigned wait;			/* time between two requests, ms */
	uint64_t asked_at;		/* ms; 0: never */
	struct answer last;
} asking;

static const struct survey unknown = {
	.busy_permille = POLICY_BUSY_UNKNOWN,
	.rx_permille = POLICY_BUSY_UNKNOWN,
	.tx_permille = POLICY_BUSY_UNKNOWN,
	.wasted_permille = POLICY_BUSY_UNKNOWN,
};

static int on_survey(const struct nlmsghdr *nlh, void *data)
{
	const struct nlattr *tb[NL80211_ATTR_SURVEY_INFO + 1], *info[NL80211_SURVEY_INFO_MAX + 1];
	struct counters *counters = data;

	if (!nl80211_parse_message(nlh, tb, NL80211_ATTR_SURVEY_INFO) ||
	    !tb[NL80211_ATTR_SURVEY_INFO])
		return MNL_CB_OK;
	nl80211_parse_nested(tb[NL80211_ATTR_SURVEY_INFO], info, NL80211_SURVEY_INFO_MAX);
	/* a wiphy may have several radios, each with its own channel */
	if (!info[NL80211_SURVEY_INFO_IN_USE] ||
	    (counters->mhz && nl80211_u32(info[NL80211_SURVEY_INFO_FREQUENCY]) != counters->mhz))
		return MNL_CB_OK;
	*counters = (struct counters){
		.mhz = counters->mhz,
		.time = nl80211_u64(info[NL80211_SURVEY_INFO_TIME]),
		.busy = nl80211_u64(info[NL80211_SURVEY_INFO_TIME_BUSY]),
		.rx = nl80211_u64(info[NL80211_SURVEY_INFO_TIME_RX]),
		.tx = nl80211_u64(info[NL80211_SURVEY_INFO_TIME_TX]),
		.has_busy = info[NL80211_SURVEY_INFO_TIME_BUSY],
		.has_rx = info[NL80211_SURVEY_INFO_TIME_RX],
		.has_tx = info[NL80211_SURVEY_INFO_TIME_TX],
	};
	return MNL_CB_OK;
}

/* Counters that ran backwards were reset: that interval is unknown. */
static int share(uint64_t now, uint64_t before, uint64_t span)
{
	uint64_t part = now - before;

	if (now < before)
		return POLICY_BUSY_UNKNOWN;
	return part < span ? (int)(part * 1000 / span) : 1000;
}

static struct survey compare(const struct counters *now, const struct counters *before)
{
	struct survey survey = unknown;
	uint64_t span = now->time - before->time;

	if (!before->time || now->mhz != before->mhz || now->time < before->time || span < SPAN_MIN_MS || span > UINT32_MAX)
		return unknown;
	if (now->has_busy)
		survey.busy_permille = share(now->busy, before->busy, span);
	if (now->has_rx)
		survey.rx_permille = share(now->rx, before->rx, span);
	if (now->has_tx)
		survey.tx_permille = share(now->tx, before->tx, span);
	if (survey.busy_permille < 0 || survey.rx_permille < 0 || survey.tx_permille < 0)
		return survey;
	survey.wasted_permille = survey.busy_permille - survey.rx_permille - survey.tx_permille;
	if (survey.wasted_permille < 0)
		survey.wasted_permille = 0;
	return survey;
}

static int read_survey(struct reader *r, struct survey *survey)
{
	char buf[NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	struct nl80211_interface interface;
	struct counters now = { 0 };
	struct nlmsghdr *nlh;

	if (nl80211_get_interface(&r->nl, r->ifindex, &interface) == 0)
		now.mhz = interface.mhz;
	nlh = nl80211_request(&r->nl, buf, NL80211_CMD_GET_SURVEY, NLM_F_DUMP);
	mnl_attr_put_u32(nlh, NL80211_ATTR_IFINDEX, r->ifindex);
	if (nl80211_talk(&r->nl, nlh, on_survey, &now) < 0)
		return -1;
	if (survey)
		*survey = compare(&now, &r->before);
	r->before = now;
	return 0;
}

int survey_try(int ifindex, struct survey_ability *can)
{
	struct reader *r = calloc(1, sizeof(*r));
	uint64_t asked_at = now_ms();
	int result = -1;

	*can = (struct survey_ability){ 0 };
	if (!r)
		return -1;
	r->ifindex = ifindex;
	if (nl80211_open(&r->nl) == 0) {
		result = read_survey(r, NULL);
		nl80211_close(&r->nl);
	}
	*can = (struct survey_ability){
		.busy = r->before.has_busy, .rx = r->before.has_rx, .tx = r->before.has_tx, .ms = now_ms() - asked_at,
	};
	free(r);
	return result;
}

static void answered(const struct answer *answer)
{
	bool slow = answer->at - asking.asked_at >= SLOW_MS;

	asking.last = *answer;
	/* a slow answer's shares cover too long a time */
	if (slow)
		asking.last.survey = unknown;
	asking.pending = false;
	if (!slow)
		asking.wait = INTERVAL_MS;
	else if (asking.wait < SLOW_WAIT_MS)
		asking.wait = SLOW_WAIT_MS;
	else if (asking.wait < SLOW_WAIT_MAX_MS)
		asking.wait *= 2;
}

static void *run(void *data)
{
	struct reader *r = data;
	struct answer answer;
	char question;

	go_first();	/* ticks wait for it */
	while (recv(r->socket, &question, 1, 0) == 1) {
		if (read_survey(r, &answer.survey) < 0)
			answer.survey = unknown;
		answer.at = now_ms();
		send(r->socket, &answer, sizeof(answer), MSG_NOSIGNAL);
	}
	close(r->socket);
	nl80211_close(&r->nl);
	free(r);
	return NULL;
}

static int start_thread(struct reader *r)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* The main thread handles all signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attr, run, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return error ? -1 : 0;
}

void survey_start(struct wifirr *w)
{
	struct reader *r = calloc(1, sizeof(*r));
	int sockets[2];

	if (!r)
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		goto free;
	if (nl80211_open(&r->nl) < 0)
		goto close;
	r->socket = sockets[0];
	r->ifindex = w->ifindex;
	if (start_thread(r) < 0)
		goto close_nl80211;
	asking.open = true;
	asking.socket = sockets[1];
	asking.wait = INTERVAL_MS;
	asking.last.survey = unknown;
	return;
close_nl80211:
	nl80211_close(&r->nl);
close:
	close(sockets[0]);
	close(sockets[1]);
free:
	free(r);
}

/* Does not wait for a slow driver's answer. */
void survey_stop(void)
{
	if (asking.open)
		close(asking.socket);
	memset(&asking, 0, sizeof(asking));
}

bool survey_pending(void)
{
	struct answer answer;

	if (asking.pending && recv(asking.socket, &answer, sizeof(answer), MSG_DONTWAIT) == sizeof(answer))
		answered(&answer);
	return asking.pending;
}

struct survey survey_get(void)
{
	survey_pending();
	return asking.open && now_ms() - asking.last.at <= VALID_MS ? asking.last.survey : unknown;
}

void survey_ask(void)
{
	uint64_t now = now_ms();

	if (!asking.open || survey_pending() || (asking.asked_at && now - asking.asked_at < asking.wait))
		return;
	asking.asked_at = now;
	asking.pending = send(asking.socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}
