/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stations of an access point, from nl80211's dumps and events. If the backend
 * serves a whole radio, this includes the stations of the radio's other interfaces:
 * clients of other access points, and neighbours in a mesh, behind WDS or that the node
 * is a client of, which are never throttled.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <syslog.h>
#include <unistd.h>

#include <linux/genetlink.h>

#include "nl80211.h"
#include "wifirrd.h"

/* A station is announced before it may exchange data: dump again after this time. */
#define LOOK_AGAIN_FIRST_MS 200
#define LOOK_AGAIN_MS 1000

static struct nl80211 request, events;
static struct watch events_watch, timer_watch;
static bool doubtful;		/* what the last list has shown may soon change */
static bool due;		/* the timer runs */
static struct nl80211_interface own;	/* the device */

/* The radio's interfaces that matter here. */
static struct {
	int ifindex;
	bool neighbours;
} interfaces[NL80211_SERVED_MAX], *at;
static unsigned interface_count;

static void on_station_known(void *data, const struct nl80211_station *seen)
{
	struct wifirr *w = data;
	struct addr addr = addr_mac(seen->mac);
	uint16_t id;

	if (!seen->authorized) {
		doubtful = true;
		return;
	}
	id = station_add(w, &addr, STATION_NL80211);
	/* an access point that a client has left without a word keeps its entry for minutes */
	if (id == POLICY_NONE || seen->associated_at < w->station[id].associated_at)
		return;
	w->station[id].associated_at = seen->associated_at;
	w->station[id].expected_kbit = seen->expected_kbit;
	station_seen(w, id, at->ifindex, at->neighbours);
}

static void on_interface(void *data, const struct nl80211_interface *seen)
{
	bool neighbours = nl80211_has_neighbours(seen);
	const struct wifirr *w = data;
	bool sibling = w->backend && w->backend->nl80211 && nl80211_share_radio(seen, &own);

	if (interface_count == NL80211_SERVED_MAX || (seen->ifindex != w->ifindex &&
	    (!sibling || (!neighbours && !nl80211_serves_stations(seen)))))
		return;
	at = &interfaces[interface_count++];
	at->ifindex = seen->ifindex;
	at->neighbours = neighbours;
}

static void look_again(unsigned ms)
{
	struct itimerspec spec = {
		.it_value = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L },
	};

	timerfd_settime(timer_watch.fd, 0, &spec, NULL);
	due = true;
}

void wifi_stations_resync(struct wifirr *w)
{
	struct nl80211_interface now;
	int rc;

	if (!timer_watch.fd)
		return;
	if (survey_pending()) {
		look_again(LOOK_AGAIN_FIRST_MS);
		return;
	}
	doubtful = false;
	interface_count = 0;
	if (nl80211_get_interface(&request, w->ifindex, &now) == 0)
		own = now;	/* channels change */
	rc = nl80211_get_interfaces(&request, own.wiphy, on_interface, w);
	station_mark(w, STATION_NL80211);
	for (unsigned i = 0; rc == 0 && i < interface_count; i++) {
		at = &interfaces[i];
		rc = nl80211_get_stations(&request, at->ifindex, on_station_known, w);
		if (rc < 0 && errno == ENODEV)
			rc = at->ifindex == w->ifindex ? rc : 0;	/* the interface has just vanished */
	}
	if (rc == 0) {
		doubtful |= station_sweep(w, STATION_NL80211);
	} else if (errno == ENODEV) {
		return;
	} else {
		logmsg(LOG_DEBUG, "%s: list of stations: %s", w->config.device, request.error);
		doubtful = true;
	}
	if (doubtful)
		look_again(LOOK_AGAIN_MS);
}

void wifi_stations_look_again(void)
{
	if (timer_watch.fd && !due)
		look_again(LOOK_AGAIN_FIRST_MS);
}

int wifi_stations_served(unsigned *place)
{
	return *place < interface_count ? interfaces[(*place)++].ifindex : 0;
}

static void on_timer(struct wifirr *w)
{
	uint64_t expirations;

	due = false;
	if (read(timer_watch.fd, &expirations, sizeof(expirations)) > 0)
		wifi_stations_resync(w);
}

static int on_event(const struct nlmsghdr *nlh, void *data)
{
	const struct genlmsghdr *genl = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *tb[NL80211_ATTR_MAC + 1];
	struct wifirr *w = data;
	struct addr addr;
	uint16_t id;

	if (nlh->nlmsg_type != events.family || !nl80211_parse_message(nlh, tb, NL80211_ATTR_MAC))
		return MNL_CB_OK;
	if (genl->cmd != NL80211_CMD_NEW_STATION && genl->cmd != NL80211_CMD_DEL_STATION)
		return MNL_CB_OK;
	if (!w->ifindex || !tb[NL80211_ATTR_MAC] || mnl_attr_get_payload_len(tb[NL80211_ATTR_MAC]) != 6)
		return MNL_CB_OK;

	if (genl->cmd == NL80211_CMD_DEL_STATION) {
		addr = addr_mac(mnl_attr_get_payload(tb[NL80211_ATTR_MAC]));
		id = station_find(w, &addr);
		/* a station that moved within the radio, or to an access point's VLAN, may be reported with either interface */
		if (id != POLICY_NONE && nl80211_u32(tb[NL80211_ATTR_IFINDEX]) == (uint32_t)w->station[id].ifindex)
			station_del(w, &addr, STATION_NL80211);
		else if (id != POLICY_NONE)
			wifi_stations_look_again();
		return MNL_CB_OK;
	}
	/*
	 * Any device in range can cause this event with a single frame. So many
	 * such events together cause only one dump, which shows the authorized stations.
	 */
	wifi_stations_look_again();
	return MNL_CB_OK;
}

static void on_events(struct wifirr *w)
{
	ssize_t len;

	while ((len = recv(events_watch.fd, events.buffer, sizeof(events.buffer), MSG_DONTWAIT)) > 0)
		mnl_cb_run(events.buffer, len, 0, 0, on_event, w);
	if (len < 0 && errno == ENOBUFS)
		wifi_stations_resync(w);
}

int wifi_stations_start(struct wifirr *w, char *reason, size_t size)
{
	*reason = '\0';
	wifi_stations_stop();
	if (nl80211_open(&request) < 0)
		return -1;
	if (nl80211_get_interface(&request, w->ifindex, &own) < 0)
		goto stop;
	if (nl80211_has_neighbours(&own) && own.type != NL80211_IFTYPE_STATION)
		snprintf(reason, size, "--device %s: a mesh or ad-hoc interface: its stations are neighbours, not clients "
			 "(--match ip distinguishes the clients behind them)", w->config.device);
	if (!nl80211_is_access_point(&own))
		goto stop;
	if (nl80211_open(&events) < 0)
		goto stop;
	if (!events.mlme || mnl_socket_setsockopt(events.socket, NETLINK_ADD_MEMBERSHIP,
						  &events.mlme, sizeof(events.mlme)) < 0)
		goto stop;

	timer_watch = (struct watch){
		.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
		.readable = on_timer,
	};
	if (timer_watch.fd < 0) {
		timer_watch.fd = 0;
		goto stop;
	}
	events_watch = (struct watch){
		.fd = mnl_socket_get_fd(events.socket),
		.readable = on_events,
	};
	if (watch_add(&timer_watch) < 0 || watch_add(&events_watch) < 0)
		goto stop;
	wifi_stations_resync(w);
	return 0;
stop:
	wifi_stations_stop();
	return -1;
}

/* Also cleans up after a failed start. The stations stay in the table until device.c drops them. */
void wifi_stations_stop(void)
{
	if (events_watch.fd)
		watch_del(&events_watch);
	if (timer_watch.fd) {
		watch_del(&timer_watch);
		close(timer_watch.fd);
	}
	events_watch.fd = timer_watch.fd = 0;
	interface_count = 0;
	due = false;
	nl80211_close(&events);
	nl80211_close(&request);
}
