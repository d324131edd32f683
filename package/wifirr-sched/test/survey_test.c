/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What survey.c makes of a driver's answers: made up here, as no driver
 * without hardware reports a channel in use.
 */
#include <stdio.h>

#include "../src/survey.c"

uint64_t now_ms(void)
{
	return 0;
}

static unsigned failures;

static void expect(const char *what, int got, int wanted)
{
	if (got == wanted)
		return;
	printf("survey: %s: %d, not %d\n", what, got, wanted);
	failures++;
}

/* An answer for one channel, through the parser. rx and tx left out where negative. */
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

static struct counters answer(bool in_use, uint64_t time, uint64_t busy, int64_t rx, int64_t tx)
{
	struct counters counters = { 0 };

	channel(&counters, 2412, in_use, time, busy, rx, tx);
	return counters;
}

/* Of a wiphy with two radios, the second on 5180 MHz: asked for on an interface with the first one's channel. */
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

int main(void)
{
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

	printf("survey: %s\n", failures ? "FAILED" : "ok");
	return failures ? 1 : 0;
}
