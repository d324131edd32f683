/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How survey.c interprets a driver's answers. The answers are made up, because no driver
 * without hardware reports a channel in use.
 */
#include <sched.h>
#include <semaphore.h>

#include "expect.h"
#include "../src/nl80211.h"

/* A driver that answers when the test lets it. */
static int fake_open(struct nl80211 *n);
static void fake_close(struct nl80211 *n);
static int fake_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface);
static int fake_talk(struct nl80211 *n, const struct nlmsghdr *nlh, mnl_cb_t cb, void *data);
#define nl80211_open fake_open
#define nl80211_close fake_close
#define nl80211_get_interface fake_interface
#define nl80211_talk fake_talk

#include "../src/survey.c"

static _Atomic uint64_t clock_ms = 1000;
static _Atomic int questions, closed;
static sem_t asked, answer_now;

uint64_t now_ms(void)
{
	return clock_ms;
}

void go_first(void)
{
}

static int fake_open(struct nl80211 *n)
{
	(void)n;
	return 0;
}

static void fake_close(struct nl80211 *n)
{
	(void)n;
	closed++;
}

static int fake_interface(struct nl80211 *n, int ifindex, struct nl80211_interface *interface)
{
	(void)n;
	(void)ifindex;
	(void)interface;
	return -1;
}

/* An answer for one channel, through the parser. rx and tx are left out if negative. */
static void channel(struct counters *counters, uint32_t mhz, bool in_use, uint64_t time, uint64_t busy, int64_t rx, int64_t tx)
{
	char buf[256] NL80211_ALIGNED;
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nlattr *info;

	mnl_nlmsg_put_extra_header(nlh, 4);
	info = mnl_attr_nest_start(nlh, NL80211_ATTR_SURVEY_INFO);
	mnl_attr_put_u32(nlh, NL80211_SURVEY_INFO_FREQUENCY, mhz);
	if (in_use)
		mnl_attr_put(nlh, NL80211_SURVEY_INFO_IN_USE, 0, NULL);
	mnl_attr_put_u64(nlh, NL80211_SURVEY_INFO_TIME, time);
	mnl_attr_put_u64(nlh, NL80211_SURVEY_INFO_TIME_BUSY, busy);
	if (rx >= 0)
		mnl_attr_put_u64(nlh, NL80211_SURVEY_INFO_TIME_RX, rx);
	if (tx >= 0)
		mnl_attr_put_u64(nlh, NL80211_SURVEY_INFO_TIME_TX, tx);
	mnl_attr_nest_end(nlh, info);
	on_survey(nlh, counters);
}

/* A channel that is busy for half the time. */
static int fake_talk(struct nl80211 *n, const struct nlmsghdr *nlh, mnl_cb_t cb, void *data)
{
	(void)n;
	(void)nlh;
	(void)cb;
	questions++;
	sem_post(&asked);
	sem_wait(&answer_now);
	channel(data, 2412, true, clock_ms, clock_ms / 2, 0, 0);
	return 0;
}

static struct counters answer(bool in_use, uint64_t time, uint64_t busy, int64_t rx, int64_t tx)
{
	struct counters counters = { 0 };

	channel(&counters, 2412, in_use, time, busy, rx, tx);
	return counters;
}

/* A wiphy with two radios, the second on 5180 MHz, queried on an interface with the first one's channel. */
static struct counters two_radios(uint32_t mhz, uint64_t busy, uint64_t other_busy)
{
	struct counters counters = { .mhz = mhz };

	channel(&counters, 2412, true, busy * 2, busy, 0, 0);
	channel(&counters, 5180, true, other_busy * 4, other_busy, 0, 0);
	return counters;
}

static struct survey between(struct counters before, struct counters now)
{
	return compare(&now, &before);
}

/* Lets the driver answer its request, after ms. */
static void answers_after(uint64_t ms)
{
	sem_wait(&asked);
	clock_ms += ms;
	sem_post(&answer_now);
	while (survey_pending())
		sched_yield();
}

static bool asks_at(uint64_t ms)
{
	int before = questions;

	clock_ms = ms;
	survey_ask();
	if (!survey_pending())
		return questions != before;
	answers_after(0);
	return true;
}

/* Neither a query for the share nor a request for another survey ever waits. */
static void a_driver_that_never_answers(struct wifirr *w)
{
	sem_init(&asked, 0, 0);
	sem_init(&answer_now, 0, 0);
	survey_start(w);
	expect("nothing asked", survey_pending(), false);
	survey_ask();
	expect("asked", survey_pending(), true);
	for (unsigned i = 0; i < 1000; i++) {
		clock_ms += 1000;
		survey_ask();
		expect("no answer", survey_get().busy_permille, POLICY_BUSY_UNKNOWN);
	}
	sem_wait(&asked);
	expect("asked once", questions, 1);
	survey_stop();
	expect("the share after the end", survey_get().busy_permille, POLICY_BUSY_UNKNOWN);
	expect("it still waits", closed, 0);
	sem_post(&answer_now);
	while (!closed)
		sched_yield();
}

static void a_driver_that_is_slow_at_times(struct wifirr *w)
{
	uint64_t start;

	survey_start(w);
	survey_ask();
	answers_after(1);
	expect("asked again after 1 s", asks_at(clock_ms + INTERVAL_MS), true);
	expect("its answer", survey_get().busy_permille, 500);
	clock_ms += INTERVAL_MS;
	survey_ask();
	answers_after(3000);
	expect("slow: no answer", survey_get().busy_permille, POLICY_BUSY_UNKNOWN);
	start = clock_ms;
	expect("left alone after a slow one", asks_at(start + SLOW_WAIT_MS - 3001), false);
	clock_ms = start + SLOW_WAIT_MS - 3000;
	survey_ask();
	answers_after(3000);
	start = clock_ms;
	expect("and for longer after another", asks_at(start + 2 * SLOW_WAIT_MS - 3001), false);
	expect("asked in the end", asks_at(start + 2 * SLOW_WAIT_MS - 3000), true);
	expect("as before after a fast one", asks_at(clock_ms + INTERVAL_MS), true);
	survey_stop();
}

int main(void)
{
	static struct wifirr w;
	struct survey s = between(answer(true, 5000, 1000, 300, 100), answer(true, 6000, 1600, 500, 250));

	expect("busy", s.busy_permille, 600);
	expect("receiving", s.rx_permille, 200);
	expect("sending", s.tx_permille, 150);
	expect("wasted", s.wasted_permille, 250);

	s = between(answer(true, 5000, 1000, -1, -1), answer(true, 6000, 1600, -1, -1));
	expect("busy without rx and tx", s.busy_permille, 600);
	expect("wasted without rx and tx", s.wasted_permille, POLICY_BUSY_UNKNOWN);

	s = between(answer(true, 5000, 1000, 300, 100), answer(true, 6000, 1600, 900, 250));
	expect("wasted never negative", s.wasted_permille, 0);

	s = between(answer(true, 5000, 1000, 0, 0), answer(true, 6000, 2003, 0, 0));
	expect("busy beyond the time", s.busy_permille, 1000);

	s = between(answer(true, 5000, 4000, 0, 0), answer(true, 800, 100, 0, 0));
	expect("after a reset of all counters", s.busy_permille, POLICY_BUSY_UNKNOWN);
	s = between(answer(true, 5000, 4000, 0, 0), answer(true, 6000, 100, 0, 0));
	expect("after a reset of one counter", s.busy_permille, POLICY_BUSY_UNKNOWN);
	s = between(answer(true, 5000, 1000, 0, 0), answer(true, 5050, 1050, 0, 0));
	expect("too short a time", s.busy_permille, POLICY_BUSY_UNKNOWN);
	s = between(answer(false, 5000, 1000, 0, 0), answer(false, 6000, 1600, 0, 0));
	expect("another channel", s.busy_permille, POLICY_BUSY_UNKNOWN);
	s = between((struct counters){ 0 }, answer(true, 6000, 1600, 0, 0));
	expect("first answer", s.busy_permille, POLICY_BUSY_UNKNOWN);

	s = between(two_radios(2412, 1000, 100), two_radios(2412, 2000, 200));
	expect("of two channels in use, the interface's", s.busy_permille, 500);
	s = between(two_radios(5180, 1000, 100), two_radios(5180, 2000, 200));
	expect("the other one's", s.busy_permille, 250);
	s = between(two_radios(5180, 1000, 100), two_radios(2412, 2000, 200));
	expect("after a change of channel", s.busy_permille, POLICY_BUSY_UNKNOWN);

	a_driver_that_never_answers(&w);
	a_driver_that_is_slow_at_times(&w);

	return verdict();
}
