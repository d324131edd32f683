/* SPDX-License-Identifier: Apache-2.0 */
#include "trial.h"

/* A trial: it settles, then it is measured, as was what it is compared with; ms. */
#define SETTLE_MS 1000
#define MEASURE_MS 2000

/* One that has delivered less than half for so long need not go on, and one that never came to be neither. */
#define LOST_MS 500
#define TRYING_MAX_MS 20000

/* Time between two trials: three times as long after each that left no doubt. */
#define HOLD_MIN_MS 30000
#define HOLD_MAX_MS 600000

/* What it takes to be worth its while, and how much the gains of two trials differ by chance; permille. */
#define GAIN_MIN 1100
#define NOISE 100

#define GAIN_MAX 4000

void trial_init(struct trial *t, bool on, unsigned first_s, unsigned crowd_s)
{
	*t = (struct trial){
		.on = on,
		.now = t->now,
		.random = 2463534242U,
		.crowd_ms = crowd_s * 1000,
		.left_ms = first_s * 1000,
		.hold_ms = HOLD_MIN_MS,
	};
}

static unsigned square_root(uint64_t x)
{
	uint64_t root = 0;

	for (uint64_t bit = 1ULL << 31; bit; bit >>= 1)
		if ((root | bit) * (root | bit) <= x)
			root |= bit;
	return root;
}

/* The mean of the last ones, and twice its standard error. One alone has that of NOISE. */
static void weigh(struct trial *t)
{
	unsigned n = t->count < TRIAL_GAINS ? t->count : TRIAL_GAINS;
	uint64_t squares = NOISE * NOISE;
	unsigned sum = 0, error;

	for (unsigned i = 0; i < n; i++)
		sum += t->gains[i];
	t->gain = sum / n;
	for (unsigned i = 0; i < n; i++)
		squares += (uint64_t)((int64_t)(t->gains[i] - t->gain) * (t->gains[i] - t->gain));
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

/* Of what was measured, kbit/s. */
static uint32_t delivered(const struct trial *t, uint64_t bytes)
{
	uint64_t ms = t->now - t->from, kbit = ms ? (bytes - t->from_bytes) * 8 / ms : 0;

	return kbit < UINT32_MAX ? kbit : UINT32_MAX;
}

static void hold(struct trial *t)
{
	/* xorshift: what else happens every so many seconds must not keep step */
	t->random ^= t->random << 13;
	t->random ^= t->random >> 17;
	t->random ^= t->random << 5;
	t->left_ms = t->hold_ms + t->random % (t->hold_ms / 4);
}

static void end(struct trial *t, uint32_t kbit)
{
	bool on = t->on, doubt;
	uint64_t gain;

	t->with_kbit = on ? kbit : t->before_kbit;
	t->without_kbit = on ? t->before_kbit : kbit;
	gain = t->without_kbit ? t->with_kbit * 1000ULL / t->without_kbit : GAIN_MAX;
	t->gains[t->count++ % TRIAL_GAINS] = gain < GAIN_MAX ? gain : GAIN_MAX;
	weigh(t);
	begin(t, false);
	doubt = t->low <= 1000 && t->high >= GAIN_MIN;
	/* it was tried the other way: whether that is how it stays */
	if (on ? t->low > 1000 : t->high < GAIN_MIN) {
		t->on = on;
		t->hold_ms = HOLD_MIN_MS;
	} else if (doubt) {
		t->hold_ms = HOLD_MIN_MS;
	} else {
		t->hold_ms = t->hold_ms * 3 < HOLD_MAX_MS ? t->hold_ms * 3 : HOLD_MAX_MS;
	}
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
	uint64_t lasted;
	uint32_t kbit;

	if (t->now - t->since > TRYING_MAX_MS) {
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
		t->since = t->now;	/* it is what it shall be from here on */
		start_measuring(t, state->bytes);
		return;
	}
	lasted = t->now - t->since;
	if (t->from == t->since && lasted >= LOST_MS && kbit < t->before_kbit / 2)
		end(t, kbit);
	else if (t->from == t->since && lasted >= SETTLE_MS)
		start_measuring(t, state->bytes);
	else if (t->from != t->since && t->now - t->from >= MEASURE_MS)
		end(t, kbit);
}

bool trial_tick(struct trial *t, uint64_t now, const struct trial_now *state)
{
	uint64_t dt = now > t->now ? now - t->now : 0;

	t->now += dt;
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
	t->age_ms += dt;
	t->left_ms = t->left_ms > dt ? t->left_ms - dt : 0;
	if (!state->ready || t->left_ms || t->age_ms < t->crowd_ms) {
		t->measuring = false;
	} else if (!t->measuring) {
		start_measuring(t, state->bytes);
	} else if (now - t->from >= MEASURE_MS) {
		t->before_kbit = delivered(t, state->bytes);
		begin(t, true);
	}
	return t->on;
}
