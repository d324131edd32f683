/* SPDX-License-Identifier: Apache-2.0 */
/* Which backend serves the device, and what it knows of whom. */
#include <stdio.h>
#include <syslog.h>

#include "wifirrd.h"

void backend_add(struct wifirr *w, uint16_t id)
{
	if (!w->backend)
		return;
	w->station[id].backed = true;
	w->station[id].bytes = w->station[id].bytes_before = 0;
	/* at worst the client stays unscheduled; if all is gone, read() will tell */
	if (w->backend->add)
		w->backend->add(w, id);
}

void backend_del(struct wifirr *w, uint16_t id)
{
	if (!w->backend || !w->station[id].backed)
		return;
	if (w->backend->del)
		w->backend->del(w, id);
	w->station[id].backed = false;
}

void backend_also(struct wifirr *w, uint16_t id, unsigned at, bool there)
{
	if (w->backend && w->backend->also && w->station[id].backed)
		w->backend->also(w, id, at, there);
}

void backend_stop(struct wifirr *w)
{
	if (!w->backend)
		return;
	w->backend->stop(w);
	w->backend = NULL;
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++)
		w->station[id].backed = false;
}

void backend_lost(struct wifirr *w, const char *what)
{
	if (w->lost)
		return;
	logmsg(LOG_WARNING, "%s: %s is gone: setting it up again", w->config.device, what);
	w->lost = true;
	tick_in(0);
}

static int backend_try(struct wifirr *w, const struct backend *backend, char *reason, size_t size)
{
	options_turns(&w->config, backend == &htb_backend);
	policy_configure(&w->policy, &w->config.policy);
	if (backend->start(w, reason, size) < 0)
		return -1;
	w->backend = backend;
	w->apply_all = true;
	for (uint16_t id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].used)
			backend_add(w, id);
	if (backend->flush)
		backend->flush(w);
	return 0;
}

int backend_start(struct wifirr *w, char *reason, size_t size)
{
	w->refused[0] = '\0';
	if (w->config.backend != BACKEND_HTB) {
		if (backend_try(w, &airtime_backend, reason, size) == 0)
			return 0;
		if (w->config.backend == BACKEND_AIRTIME)
			return -1;
		snprintf(w->refused, sizeof(w->refused), "%s", reason);
		logmsg(LOG_INFO, "%s", reason);
	}
	return backend_try(w, &htb_backend, reason, size);
}
