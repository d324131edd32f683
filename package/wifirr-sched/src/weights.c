/* SPDX-License-Identifier: Apache-2.0 */
/* Airtime weights: what a client's level is worth to mac80211's airtime scheduler. */
#include "policy.h"

/* Weights as parts of an active client's: see policy_weight(). */
#define WEIGHT_SOON_PART 3
#define WEIGHT_IDLE_PART 16
#define WEIGHT_UPLOAD(active) ((active) * 3 / 8)

/*
 * Clients without demand that send more than UPLOAD_BPS take turns among
 * themselves. Two slots have UPLOAD_PARTS parts. A client gets the part of its id
 * and, if it sends enough, a second and a third, evenly spread.
 */
#define UPLOAD_BPS 100000
#define UPLOAD_SECOND_BPS 250000
#define UPLOAD_THIRD_BPS 600000
#define UPLOAD_PARTS 8

/* Most of what goes to clients without demand is ACKs for what they send. */
static uint16_t weight_idle(const struct policy *p, uint16_t id, uint16_t active)
{
	unsigned length = 2 * p->config.slot_ms / UPLOAD_PARTS;	/* at least 2: policy_configure() */
	unsigned part = (p->now / length + UPLOAD_PARTS - id % UPLOAD_PARTS) % UPLOAD_PARTS;
	uint32_t received = p->client[id].received_bps;
	unsigned parts;

	if (received <= UPLOAD_BPS)
		return active / WEIGHT_IDLE_PART;
	parts = 1 + (received >= UPLOAD_SECOND_BPS) + (received >= UPLOAD_THIRD_BPS);
	return part * parts % UPLOAD_PARTS < parts ? WEIGHT_UPLOAD(active) : 0;
}

bool policy_weight_possible(uint16_t weight, uint16_t active, uint16_t waiting)
{
	return weight == active || weight == waiting || weight == active / WEIGHT_SOON_PART ||
		weight == active / WEIGHT_IDLE_PART || weight == WEIGHT_UPLOAD(active);
}

uint16_t policy_weight(const struct policy *p, uint16_t id, uint16_t active, uint16_t waiting)
{
	const struct policy_client *c = &p->client[id];
	uint16_t weight = 0;

	switch (c->level) {
	case POLICY_OPEN:
	case POLICY_LIGHT:	/* takes little and must not wait, as a call */
	case POLICY_ACTIVE:
		return active;
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
