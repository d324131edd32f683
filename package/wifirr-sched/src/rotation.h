/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns: which of the clients that want them are at full speed now, who is next,
 * and the level of everybody. A part of policy.c, which alone calls it.
 */
#ifndef WIFIRR_ROTATION_H
#define WIFIRR_ROTATION_H

#include "policy.h"

static inline bool rotation_exempt(const struct policy_client *c)
{
	return c->flags & (POLICY_CLIENT_ALWAYS | POLICY_CLIENT_IGNORED);
}

static inline bool rotation_wanted(const struct policy_client *c)
{
	return c->demand && !c->light && !rotation_exempt(c);
}

/* Nobody has a turn, nobody waits. */
void rotation_reset(struct policy *p);
/* A client goes. */
void rotation_remove(struct policy *p, uint16_t id);
/* Gives out turns for the time now while p->scheduling; sets levels, p->next and, where that comes sooner, p->wake_at. */
void rotation_tick(struct policy *p);

#endif
