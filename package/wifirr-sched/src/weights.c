/* SPDX-License-Identifier: Apache-2.0 */
/* Airtime weights: what a client's level is worth to mac80211's airtime scheduler. */
#include "policy.h"

/* Weights as parts of an active client's: see policy_weight(). */
#define WEIGHT_SOON_PART 3
#define WEIGHT_IDLE_PART 16
#define WEIGHT_UPLOAD(active) ((active) * 3 / 16)

/* A client takes little if neither what it sends nor what it receives is more, on average. */
#define LITTLE_BPS 100000

/*
 * Clients without demand that send more than that take turns among themselves. Two
 * slots have UPLOAD_PARTS parts, and UPLOAD_TAKEN of them, evenly spread, are a client's.
 */
#define UPLOAD_PARTS 8
#define UPLOAD_TAKEN 3

/* Most of what goes to clients without demand is ACKs for what they send. */
static uint16_t weight_idle(const struct policy *p, uint16_t id, uint16_t active)
{
	unsigned length = 2 * p->config.slot_ms / UPLOAD_PARTS;	/* at least 2: a slot has 10 ms or more */
	unsigned part = (p->now / length + UPLOAD_PARTS - id % UPLOAD_PARTS) % UPLOAD_PARTS;

	if (p->client[id].received_bps <= LITTLE_BPS)
		return active / WEIGHT_IDLE_PART;
	return part * UPLOAD_TAKEN % UPLOAD_PARTS < UPLOAD_TAKEN ? WEIGHT_UPLOAD(active) : 0;
}

static uint16_t weight_light(const struct policy *p, const struct policy_client *c, uint16_t active)
{
	unsigned mean;

	/* a call must not wait; the next page after a download may */
	if (c->received_bps <= LITTLE_BPS && c->delivered_bps <= LITTLE_BPS)
		return active;
	/* of a client that takes turns: in its turn, and before, when it is the next one */
	mean = (p->config.active * active + active / WEIGHT_SOON_PART) / (p->demanding ? p->demanding : 1);
	if (!(c->flags & POLICY_CLIENT_NEIGHBOUR))
		mean /= 2;
	return mean < active ? mean : active;
}

bool policy_weight_possible(uint16_t weight, uint16_t active, uint16_t waiting)
{
	return weight == waiting || (weight > waiting && weight <= active);
}

uint16_t policy_weight(const struct policy *p, uint16_t id, uint16_t active, uint16_t waiting)
{
	const struct policy_client *c = &p->client[id];
	uint16_t weight = 0;

	switch (c->level) {
	case POLICY_OPEN:
	case POLICY_ACTIVE:
		return active;
	case POLICY_LIGHT:
		weight = weight_light(p, c, active);
		break;
	case POLICY_SOON:
		weight = active / WEIGHT_SOON_PART;
		break;
	case POLICY_IDLE:
		weight = weight_idle(p, id, active);
		break;
	default:
		break;
	}
	return weight > waiting ? weight : waiting;
}
