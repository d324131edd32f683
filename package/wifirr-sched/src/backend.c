/* SPDX-License-Identifier: Apache-2.0 */
/* Which stations the backend knows, and the loss of its settings. Calls no backend by name; backends call it. */
#include <syslog.h>

#include "wifirrd.h"

void backend_add(struct wifirr *w, uint16_t id)
{
	if (!w->backend)
		return;
	w->station[id].backed = true;
	w->station[id].bytes = w->station[id].bytes_before = 0;
}

void backend_del(struct wifirr *w, uint16_t id)
{
	if (!w->backend || !w->station[id].backed)
		return;
	w->backend->del(w, id);
	w->station[id].backed = false;
}

void backend_also(struct wifirr *w, uint16_t id, unsigned at, bool there)
{
	if (w->backend && w->backend->also && w->station[id].backed)
		w->backend->also(w, id, at, there);
}

bool backend_stop(struct wifirr *w)
{
	bool owing = w->backend && w->backend->stop(w);

	w->backend = NULL;
	for (unsigned id = 0; id < POLICY_CLIENTS_MAX; id++)
		w->station[id].backed = false;
	return owing;
}

void backend_lost(struct wifirr *w, const char *what)
{
	if (w->lost)
		return;
	logmsg(LOG_WARNING, "%s: lost %s: setting it up again", w->config.device, what);
	w->lost = true;
	tick_in(0);
}
