/* SPDX-License-Identifier: Apache-2.0 */
#include "trial.h"

/* A trial settles first; then it is measured for as long as the time before it was; ms. */
#define SETTLE_MS 1000
#define MEASURE_MS 2000

/*
 * A trial ends early if it has delivered less than half for LOST_MS. It is abandoned
 * if the lever has not flipped, or the trial not ended, after TRYING_MAX_MS.
 */
#define LOST_MS 500
#define TRYING_MAX_MS 20000

/* Time between two trials; three times as long after each one that confirms the lever's state. */
#define HOLD_MIN_MS 30000
#define HOLD_MAX_MS 600000

/* The least gain worth having, and how much the gains of two trials differ by chance; permille. */
#define GAIN_MIN 1100
#define NOISE 100

#define GAIN_MAX 4000
#define KBIT_MAX (UINT32_MAX / 1000)

/*
 * When the first trial may begin: the time spent in crowds so far, and the age of the
 * current crowd, ms. A lever that must first show a gain waits until the senders'
 * windows have grown: before that, every client gets more than later. Most crowds are
 * over by then.
 */
#define FIRST_MS 120000
#define CROWD_MS 10000
#define CROWD_OFF_MS 40000

void trial_init(struct trial *t, bool on)
{
	*t = (struct trial){
		.on = on,
		.now = t->now,
		.random = 2463534242U,
		.crowd_ms = on ? CROWD_MS : CROWD_OFF_MS,
		.left_ms = on ? FIRST_MS : 0,
		.hold_ms = HOLD_MIN_MS,
	};
}

static unsigned square_root(uint32_t x)
{
	uint32_t root = 0;

	for (uint32_t bit = 1U << 15; bit; bit >>= 1)
		if ((root | bit) * (root | bit) <= x)
			root |= bit;
	return root;
}

/* The mean of the last gains, and twice its standard error. NOISE is the error of a single gain. */
static void weigh(struct trial *t)
{
	unsigned n = t->count < TRIAL_GAINS ? t->count : TRIAL_GAINS;
	uint32_t squares = NOISE * NOISE;	/* at most TRIAL_GAINS * GAIN_MAX * GAIN_MAX more */
	unsigned sum = 0, error;

	for (unsigned i = 0; i < n; i++)
		sum += t->gains[i];
	t->gain = sum / n;
	for (unsigned i = 0; i < n; i++)
		squares += (t->gains[i] - t->gain) * (t->gains[i] - t->gain);
	error = 2 * square_root(squares / n / n);
	t->low = t->gain - error;
	t->high = t->gain + error;
}

static void begin(struct trial *t, bool trying)
{
	t->trying = trying;
	t->on = !t->on;
	t->measuring = false;
	t->since = t->now;
}

/* The rate since the measurement began, kbit/s. */
static uint32_t delivered(const struct trial *t, uint64_t bytes)
{
	uint32_t ms = (uint32_t)t->now - t->from, grown = (uint32_t)bytes - t->from_bytes;
	uint64_t kbit = ms ? grown * 8ULL / ms : 0;

	return kbit < KBIT_MAX ? kbit : KBIT_MAX;
}

static void hold(struct trial *t)
{
	/* xorshift: trials must not fall in step with other periodic events */
	t->random ^= t->random << 13;
	t->random ^= t->random >> 17;
	t->random ^= t->random << 5;
	t->left_ms = t->hold_ms + t->random % (t->hold_ms / 4);
}

static void end(struct trial *t, uint32_t kbit)
{
	bool on = t->on, stays, doubt;
	uint32_t gain;

	t->with_kbit = on ? kbit : t->before_kbit;
	t->without_kbit = on ? t->before_kbit : kbit;
	gain = t->without_kbit ? t->with_kbit * 1000 / t->without_kbit : GAIN_MAX;
	t->gains[t->count++ % TRIAL_GAINS] = gain < GAIN_MAX ? gain : GAIN_MAX;
	weigh(t);
	doubt = t->low <= 1000 && t->high >= GAIN_MIN;
	/* whether the lever stays flipped */
	stays = on ? t->low > 1000 : t->high < GAIN_MIN;
	begin(t, false);
	if (stays)
		t->on = on;
	t->hold_ms = stays || doubt ? HOLD_MIN_MS : t->hold_ms * 3;
	if (t->hold_ms > HOLD_MAX_MS)
		t->hold_ms = HOLD_MAX_MS;
	hold(t);
}

static void start_measuring(struct trial *t, uint64_t bytes)
{
	t->measuring = true;
	t->from = t->now;
	t->from_bytes = bytes;
}

static void try(struct trial *t, const struct trial_now *state)
{
	uint32_t lasted = (uint32_t)t->now - t->since, kbit;

	if (lasted > TRYING_MAX_MS) {
		begin(t, false);
		hold(t);
		return;
	}
	kbit = t->measuring ? delivered(t, state->bytes) : 0;
	if (state->lost) {
		end(t, kbit < t->before_kbit ? kbit : t->before_kbit);
		return;
	}
	if (!state->ready)
		return;
	if (!t->measuring) {
		t->since = t->now;	/* the lever is flipped from here on */
		start_measuring(t, state->bytes);
		return;
	}
	if (t->from == t->since && lasted >= LOST_MS && kbit < t->before_kbit / 2)
		end(t, kbit);
	else if (t->from == t->since && lasted >= SETTLE_MS)
		start_measuring(t, state->bytes);
	else if (t->from != t->since && (uint32_t)t->now - t->from >= MEASURE_MS)
		end(t, kbit);
}

bool trial_tick(struct trial *t, uint64_t now, const struct trial_now *state)
{
	uint64_t passed = now > t->now ? now - t->now : 0;
	uint32_t dt = passed < HOLD_MAX_MS ? passed : HOLD_MAX_MS;

	t->now += passed;
	if (!state->crowd) {
		if (t->trying)
			begin(t, false);
		t->age_ms = 0;
		t->measuring = false;
		return t->on;
	}
	if (t->trying) {
		try(t, state);
		return t->on;
	}
	if (t->age_ms < t->crowd_ms)
		t->age_ms += dt;
	t->left_ms = t->left_ms > dt ? t->left_ms - dt : 0;
	if (!state->ready || t->left_ms || t->age_ms < t->crowd_ms) {
		t->measuring = false;
	} else if (!t->measuring) {
		start_measuring(t, state->bytes);
	} else if ((uint32_t)t->now - t->from >= MEASURE_MS) {
		t->before_kbit = delivered(t, state->bytes);
		begin(t, true);
	}
	return t->on;
}
