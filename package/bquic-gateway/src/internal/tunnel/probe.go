// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"bquic/internal/special"
)

// tryTimeout is the connection timeout of the uplink check.
const tryTimeout = 3 * time.Second

// uplinkRefusal refuses a target while the uplink is down.
func uplinkRefusal(detail string) *Refusal {
	return &Refusal{http.StatusServiceUnavailable, UplinkDown, "the gateway cannot reach the Internet: " + detail}
}

var errEnding = &Refusal{http.StatusServiceUnavailable, UplinkDown, "the gateway is stopping"}

// probe answers a relay that asks whether the gateway accepts it. The answer is
// always a *Refusal.
func (h *Handler) probe() error {
	h.mu.Lock()
	var known []netip.AddrPort
	if h.uplink.state == uplinkUp {
		known = append(known, h.uplink.answered...)
	}
	ending := h.ending
	h.mu.Unlock()
	if ending {
		return errEnding
	}
	if len(known) > 0 && !routed(known) {
		now := time.Now()
		h.note(now, func(u *uplink) { u.lost(now) })
	}
	if h.isDown() {
		return uplinkRefusal("no target answers")
	}
	return &Refusal{http.StatusForbidden, TargetProhibited, "welcome, but not to " + ProbeTarget}
}

// routed reports whether there is a route to any of the targets.
func routed(targets []netip.AddrPort) bool {
	for _, t := range targets {
		if _, err := routeTo(t.Addr()); !errors.Is(err, errNoRoute) {
			return true
		}
	}
	return false
}

func (h *Handler) isDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uplink.down()
}

// note passes an event to the uplink, and logs a change between up and down.
func (h *Handler) note(now time.Time, what func(*uplink)) {
	h.mu.Lock()
	what(&h.uplink)
	state := ""
	if h.uplink.down() {
		state = "down"
	}
	more, tell := h.news.Is(state, now)
	h.mu.Unlock()
	switch {
	case !tell:
	case state != "":
		h.Logger.Warn("the Internet is unreachable: no target answers, and the gateway tells relays so", more...)
	default:
		h.Logger.Info("the Internet is reachable again", more...)
	}
}

// outside reports whether a target is on the public Internet, and so tells about the uplink.
func outside(target netip.AddrPort) bool {
	_, isSpecial := special.Of(target.Addr())
	return !isSpecial
}

// reached records that a target has answered.
func (h *Handler) reached(target netip.AddrPort) {
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	if outside(target) {
		now := time.Now()
		h.note(now, func(u *uplink) { u.answer(now, target) })
	}
}

// failed records that connecting to a target's addresses failed. kind is the type of
// the refusal.
func (h *Handler) failed(tried []netip.AddrPort, kind string) {
	now := time.Now()
	for _, target := range tried {
		switch kind {
		case connectionRefused:
			h.reached(target)
		case TargetUnroutable, connectionTimeout:
			if outside(target) {
				h.note(now, func(u *uplink) { u.silence(now, target, kind == TargetUnroutable) })
			}
		}
	}
}

// tryUplink connects to recent targets of clients when the uplink is in doubt or
// down. It does not wait for the result.
func (h *Handler) tryUplink(ctx context.Context, now time.Time) {
	h.mu.Lock()
	targets, allow := h.uplink.tries(now), h.allow
	h.mu.Unlock()
	if len(targets) == 0 {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		var wg sync.WaitGroup
		for _, target := range targets {
			wg.Go(func() {
				conn, _, err := dial(ctx, "tcp", target.String(), allow)
				if err == nil {
					conn.Close()
				}
				if err == nil || refuse(err).Type == connectionRefused {
					h.reached(target)
				}
			})
		}
		wg.Wait()
		h.note(time.Now(), (*uplink).tried)
	}()
}
