/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns: which of the clients that take turns are at full speed now, which is
 * next, and the level of every client. A part of policy.c, its only caller.
 */
#ifndef WIFIRR_ROTATION_H
#define WIFIRR_ROTATION_H

#include "policy.h"

static inline bool rotation_exempt(const struct policy_client *c)
{
	return c->flags;
}

static inline bool rotation_wanted(const struct policy_client *c)
{
	return c->demand && !c->light && !rotation_exempt(c);
}

/* Ends all turns and empties the queue. */
void rotation_reset(struct policy *p);
/* Removes a client. */
void rotation_remove(struct policy *p, uint16_t id);
/* Gives out turns at time p->now while p->scheduling. Sets levels, p->active and p->next, and brings p->wake_at forward if needed. */
void rotation_tick(struct policy *p);

#endif
