/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy the channel is, from nl80211's survey. ath10k's firmware may answer
 * 3 s late and the kernel waits for it, so a thread of its own asks. It has no
 * clock: survey_ask() wakes it when its last answer has grown old, so that a
 * survey costs no wake-ups beyond the main loop's own. A driver that is slow is
 * asked ever more seldom: nobody's turn can begin meanwhile.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "nl80211.h"
#include "wifirrd.h"

/* ath9k cuts its counters down to whole ms at each read: ask no more often. */
#define INTERVAL_MS 1000
/* An answer older than this says nothing. */
#define VALID_MS 10000
/* Shorter than this between two answers is no basis for a share. */
#define SPAN_MIN_MS 100
/* After an answer that took longer than this, the wait for the next: doubled each time. */
#define SLOW_MS 500
#define SLOW_WAIT_MS 60000
#define SLOW_WAIT_MAX_MS (32 * SLOW_WAIT_MS)
#define STOP_WAIT_MS 50
#define STACK_SIZE 65536

struct counters {
	uint32_t mhz;			/* of the channel, 0: not known */
	uint64_t time, busy, rx, tx;	/* ms, since the driver's own start */
	bool has_busy, has_rx, has_tx;
};

struct reader {
	pthread_t thread;
	pthread_mutex_t lock;
	sem_t wanted;			/* posted with each asked, and with stop */
	bool asked, stop, ended, abandoned;
	bool pending;			/* asked, and not answered */
	unsigned wait;			/* before the next one, ms */
	int ifindex;
	struct survey survey;
	uint64_t asked_at, answered_at;	/* ms */
	/* the thread's own */
	struct nl80211 nl;
	struct counters before;
};

static struct reader *reader;

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
	/* one wiphy may have several radios, each with a channel in use */
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

/* Counters that ran backwards were reset: nothing is known of that time. */
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

static void answered(struct reader *r, const struct survey *survey)
{
	uint64_t now = now_ms();
	bool slow = now - r->asked_at >= SLOW_MS;

	/* since the one before a slow one: too long ago */
	r->survey = slow ? unknown : *survey;
	r->answered_at = now;
	r->pending = false;
	if (!slow)
		r->wait = INTERVAL_MS;
	else if (r->wait < SLOW_WAIT_MS)
		r->wait = SLOW_WAIT_MS;
	else if (r->wait < SLOW_WAIT_MAX_MS)
		r->wait *= 2;
}

static void *run(void *data)
{
	struct reader *r = data;
	struct survey survey;
	bool abandoned;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		if (!r->asked) {
			pthread_mutex_unlock(&r->lock);
			sem_wait(&r->wanted);
			pthread_mutex_lock(&r->lock);
			continue;
		}
		r->asked = false;
		pthread_mutex_unlock(&r->lock);
		if (read_survey(r, &survey) < 0)
			survey = unknown;
		pthread_mutex_lock(&r->lock);
		answered(r, &survey);
	}
	r->ended = true;
	abandoned = r->abandoned;
	pthread_mutex_unlock(&r->lock);
	nl80211_close(&r->nl);
	if (abandoned) {
		sem_destroy(&r->wanted);
		pthread_mutex_destroy(&r->lock);
		free(r);
	}
	return NULL;
}

static int start_thread(struct reader *r)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&r->thread, &attr, run, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return error ? -1 : 0;
}

int survey_start(struct wifirr *w)
{
	survey_stop(w);
	reader = calloc(1, sizeof(*reader));
	if (!reader)
		return -1;
	if (nl80211_open(&reader->nl) < 0)
		goto free;
	pthread_mutex_init(&reader->lock, NULL);
	sem_init(&reader->wanted, 0, 0);
	reader->ifindex = w->ifindex;
	reader->survey = unknown;
	reader->wait = INTERVAL_MS;
	if (start_thread(reader) == 0)
		return 0;
	nl80211_close(&reader->nl);
free:
	free(reader);
	reader = NULL;
	return -1;
}

/* False: it has ended meanwhile, and been joined. */
static bool abandon(struct reader *r)
{
	bool ended;

	pthread_mutex_lock(&r->lock);
	ended = r->ended;
	r->abandoned = !ended;
	pthread_mutex_unlock(&r->lock);
	if (ended)
		pthread_join(r->thread, NULL);
	else
		pthread_detach(r->thread);
	return !ended;
}

/* Does not wait for a driver that is slow to answer: that thread ends, and frees, by itself. */
void survey_stop(struct wifirr *w)
{
	struct timespec until;

	(void)w;
	if (!reader)
		return;
	pthread_mutex_lock(&reader->lock);
	reader->stop = true;
	sem_post(&reader->wanted);
	pthread_mutex_unlock(&reader->lock);

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += STOP_WAIT_MS * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_nsec -= 1000000000L;
		until.tv_sec++;
	}
	if (pthread_timedjoin_np(reader->thread, NULL, &until) != 0 && abandon(reader)) {
		reader = NULL;
		return;
	}
	sem_destroy(&reader->wanted);
	pthread_mutex_destroy(&reader->lock);
	free(reader);
	reader = NULL;
}

struct survey survey_get(void)
{
	struct survey survey;

	if (!reader)
		return unknown;
	pthread_mutex_lock(&reader->lock);
	survey = now_ms() - reader->answered_at <= VALID_MS ? reader->survey : unknown;
	pthread_mutex_unlock(&reader->lock);
	return survey;
}

void survey_ask(void)
{
	uint64_t now = now_ms();

	if (!reader)
		return;
	pthread_mutex_lock(&reader->lock);
	if (!reader->pending && (!reader->asked_at || now - reader->asked_at >= reader->wait)) {
		reader->asked_at = now;
		reader->asked = reader->pending = true;
		sem_post(&reader->wanted);
	}
	pthread_mutex_unlock(&reader->lock);
}

bool survey_pending(void)
{
	bool pending;

	if (!reader)
		return false;
	pthread_mutex_lock(&reader->lock);
	pending = reader->pending;
	pthread_mutex_unlock(&reader->lock);
	return pending;
}
