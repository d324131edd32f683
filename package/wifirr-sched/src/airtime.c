/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The airtime backend: per-station weights of mac80211's airtime scheduler,
 * through nl80211. No packet is held back: a station with a low weight still gets
 * all the airtime that other stations leave.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include <linux/netlink.h>

#include "effect.h"
#include "hostapd.h"
#include "nl80211.h"
#include "radio.h"
#include "wifirrd.h"

/* The kernel may drop acknowledgements when many are pending; 32 always fit. */
#define BATCH 32

/*
 * Another program that writes weights, too, is known by the weights themselves. After
 * FOREIGN_MAX foreign values within FOREIGN_WINDOW_MS, wifirrd leaves them to that program.
 */
#define FOREIGN_MAX 3
#define FOREIGN_WINDOW_MS 60000

/* By station id. */
static struct airtime_station {
	uint64_t associated_at;	/* ns; a new value is a new station to the kernel */
	uint64_t bytes_before, received_before;	/* sent and received before it was first seen */
	uint16_t original;	/* weight to restore; 0: not seen yet */
	uint16_t now;		/* weight in the kernel */
	bool refused;		/* the kernel refused the last weight, and that has been logged */
	unsigned missed;	/* dumps since the last one with it */
	struct effect_client watched;
} stations[POLICY_CLIENTS_MAX];

static struct nl80211 nl;
static struct effect effect;
static uint64_t read_at;	/* time of the previous dump, ms */
static int reading;		/* the interface whose stations are dumped */
static bool foreign_seen;
static int managed_by_other;	/* ifindex of the device where another program sets the weights; one that is made again has another */
static unsigned foreign_count;
static uint64_t foreign_since;

static uint16_t wanted_weight(const struct wifirr *w, uint16_t id)
{
	if (w->policy.client[id].level == POLICY_OPEN)
		return stations[id].original;
	return policy_weight(&w->policy, id, w->config.weight_active, w->config.weight_waiting);
}

/* The answer to the request with sequence number first + i is for ids[i]. */
static int read_answers(const uint16_t *ids, const uint16_t *weights, unsigned count,
			uint32_t first, const struct wifirr *w)
{
	unsigned answered = 0, i;
	struct nlmsghdr *nlh;
	char text[ADDR_TEXT];
	int error, len, gone = 0;
	ssize_t received;

	while (answered < count) {
		received = mnl_socket_recvfrom(nl.socket, nl.buffer, sizeof(nl.buffer));
		if (received < 0 && errno == EINTR)
			continue;
		if (received < 0)
			return -1;
		len = received;
		for (nlh = (void *)nl.buffer; mnl_nlmsg_ok(nlh, len); nlh = mnl_nlmsg_next(nlh, &len)) {
			i = nlh->nlmsg_seq - first;
			if (nlh->nlmsg_type != NLMSG_ERROR || i >= count)
				continue;
			answered++;
			error = netlink_error(nlh, nl.error, sizeof(nl.error));
			if (!error) {
				stations[ids[i]].now = weights[i];
				stations[ids[i]].refused = false;
			}
			/* another interface than the device has just vanished with its stations */
			if (error == ENODEV && w->station[ids[i]].ifindex != w->ifindex)
				error = ENOENT;
			if (error == ENODEV || error == EOPNOTSUPP)
				gone = error;	/* other answers are of clients whose weights have to be restored */
			/* The station has just left, perhaps because the device is down, and its event has yet to arrive. */
			if (!error || gone || error == ENOENT || error == ENETDOWN || stations[ids[i]].refused)
				continue;
			stations[ids[i]].refused = true;
			logmsg(LOG_WARNING, "%s: airtime weight %u of %s: %s", w->config.device,
				       weights[i], addr_text(&w->station[ids[i]].addr, text), nl.error);
		}
	}
	errno = gone;
	return gone ? -1 : 0;
}

/*
 * Sets the weights that the stations' levels call for, or restores the original ones. Skips
 * weights that are already set.
 */
static int write_weights(struct wifirr *w, const uint16_t *ids, size_t n, bool restore)
{
	char buf[BATCH * NL80211_REQUEST_SIZE] NL80211_ALIGNED;
	uint16_t changed[BATCH], weights[BATCH];
	struct nlmsghdr *nlh;
	unsigned count = 0;
	size_t used = 0, i;

	for (i = 0; i < n; i++) {
		uint16_t id = ids[i];
		uint16_t weight = restore ? stations[id].original : wanted_weight(w, id);

		/* read_stations() sets the weights of stations not seen yet. */
		if (stations[id].original && stations[id].now != weight) {
			nlh = nl80211_weight(&nl, buf + used, w->station[id].ifindex, w->station[id].addr.bytes, weight);
			used += MNL_ALIGN(nlh->nlmsg_len);
			weights[count] = weight;
			changed[count++] = id;
		}
		if (!count || (count < BATCH && i + 1 < n))
			continue;
		if (mnl_socket_sendto(nl.socket, buf, used) < 0 ||
		    read_answers(changed, weights, count, nl.seq - count + 1, w) < 0)
			return -1;
		count = used = 0;
	}
	return 0;
}

static int write_all_weights(struct wifirr *w, bool restore)
{
	uint16_t ids[POLICY_CLIENTS_MAX];
	size_t n = 0;
	unsigned id;

	for (id = 0; id < POLICY_CLIENTS_MAX; id++)
		if (w->station[id].used && w->station[id].addr.type == ADDR_MAC)
			ids[n++] = id;
	return write_weights(w, ids, n, restore);
}

static void take_over(struct airtime_station *station, const struct nl80211_station *seen)
{
	station->associated_at = seen->associated_at;
	station->bytes_before = seen->tx_bytes;
	station->received_before = seen->rx_bytes;
	station->now = station->original = seen->weight;
}

static void on_station(void *data, const struct nl80211_station *seen)
{
	struct addr addr = addr_mac(seen->mac);
	struct airtime_station *station;
	struct wifirr *w = data;
	uint16_t id;

	if (!seen->authorized || !seen->weight)
		return;
	id = station_find(w, &addr);
	if (id == POLICY_NONE || w->station[id].ifindex != reading)
		return;
	station = &stations[id];
	station->missed = 0;
	if (!station->original || station->associated_at != seen->associated_at) {
		take_over(station, seen);
	} else if (station->now != seen->weight) {
		station->now = station->original = seen->weight;
		foreign_seen = true;
	}
	if (seen->has_airtime)
		effect_observe(&effect, &station->watched, w->policy.client[id].level, seen->backlog, seen->airtime, now_ms() - read_at);
	w->station[id].bytes = seen->tx_bytes - station->bytes_before;
	w->station[id].received = seen->rx_bytes - station->received_before;
	w->station[id].waiting = seen->backlog < UINT32_MAX ? seen->backlog : UINT32_MAX;
}

static void count_foreign(struct wifirr *w)
{
	if (!foreign_seen)
		return;
	foreign_seen = false;
	if (!foreign_count || now_ms() - foreign_since > FOREIGN_WINDOW_MS) {
		foreign_since = now_ms();
		foreign_count = 0;
	}
	if (++foreign_count < FOREIGN_MAX)
		return;
	managed_by_other = w->ifindex;
	backend_lost(w, "control of airtime weights (another program sets them; hostapd's airtime_mode?)");
}

static int read_stations(struct wifirr *w)
{
	unsigned place = 0, id;
	int rc = 0;

	for (id = 0; id < POLICY_CLIENTS_MAX; id++)
		stations[id].missed++;
	while (rc == 0 && (reading = wifi_stations_served(&place))) {
		rc = nl80211_get_stations(&nl, reading, on_station, w);
		if (rc < 0 && errno == ENODEV && reading != w->ifindex)
			rc = 0;
	}
	if (rc == 0) {
		/* nothing is queued for a station that has left; of one dump, another's leaving may have left it out */
		for (id = 0; id < POLICY_CLIENTS_MAX; id++)
			if (stations[id].missed > 1)
				w->station[id].waiting = 0;
	} else if (errno != EINTR) {
		logmsg(LOG_INFO, "%s: list of stations: %s", w->config.device, nl.error);
		return -1;
	}
	read_at = now_ms();
	if (!w->weights_idle && effect_none(&effect)) {
		w->weights_idle = true;
		snprintf(w->warning, sizeof(w->warning), "airtime weights have no effect on this driver: "
			 "waiting clients get as much airtime as active ones, so there are no turns");
		logmsg(LOG_WARNING, "%s: %s", w->config.device, w->warning);
	}
	count_foreign(w);
	if (managed_by_other == w->ifindex)
		return 0;
	return write_all_weights(w, false);
}

static int apply(struct wifirr *w, const uint16_t *ids, size_t n)
{
	char why[128];

	/* new options may have changed the weights in the lease */
	if (radio_hold_weights(w, true, why, sizeof(why)) < 0) {
		logmsg(LOG_WARNING, "%s: %s", w->config.device, why);
		return -1;
	}
	if (write_weights(w, ids, n, false) == 0)
		return 0;
	logmsg(LOG_INFO, "%s: airtime weights: %s", w->config.device, strerror(errno));
	return -1;
}

/* Also called for a station that is still there, when the table needs its place. During a survey, only those that have left go. */
static void del(struct wifirr *w, uint16_t id)
{
	if (!survey_pending())
		write_weights(w, &id, 1, true);
	stations[id] = (struct airtime_station){ 0 };
}

static int refuse(char *reason, size_t size, const char *text)
{
	snprintf(reason, size, "%s", text);
	nl80211_close(&nl);
	return -1;
}

static int start(struct wifirr *w, char *reason, size_t size)
{
	struct nl80211_interface interface;
	struct nl80211_wiphy info;
	struct hostapd_own own;

	hostapd_read_own(w->config.device, &own);
	/* hostapd writes a weight only when its own idea of it changes, which may be seldom */
	if (own.sets_weights || managed_by_other == w->ifindex)
		return refuse(reason, size, "another program sets the stations' weights (hostapd's airtime_mode?)");
	if (w->config.match == MATCH_IP)
		return refuse(reason, size, "weights are per station, not per IP address");
	if (nl80211_open(&nl) < 0)
		return refuse(reason, size, errno == ENOENT ? "no wireless device (the kernel has no nl80211)" : nl.error);
	if (nl80211_get_interface(&nl, w->ifindex, &interface) < 0)
		return refuse(reason, size, errno == ENODEV ? "not a wireless device" : nl.error);
	if (!nl80211_is_access_point(&interface))
		return refuse(reason, size, "the device is not an access point");
	if (nl80211_get_wiphy(&nl, interface.wiphy, &info) < 0)
		return refuse(reason, size, nl.error);
	if (!info.airtime_fairness)
		return refuse(reason, size, "the driver does not support airtime weights");

	if (radio_hold_weights(w, true, reason, size) < 0) {
		nl80211_close(&nl);
		return -1;
	}
	foreign_count = 0;
	foreign_seen = false;
	effect = (struct effect){ 0 };
	read_at = now_ms();
	w->weights_idle = false;
	memset(stations, 0, sizeof(stations));
	return 0;
}

static bool stop(struct wifirr *w)
{
	w->weights_idle = false;
	if (write_all_weights(w, true) == 0)
		radio_hold_weights(w, false, NULL, 0);	/* otherwise radio_stop() says so */
	nl80211_close(&nl);
	return false;
}

const struct backend airtime_backend = {
	.name = "airtime",
	.nl80211 = true,
	.start = start,
	.apply = apply,
	.read = read_stations,
	.del = del,
	.stop = stop,
};
