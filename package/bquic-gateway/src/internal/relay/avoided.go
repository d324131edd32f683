// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"bquic/internal/tunnel"
)

const (
	// avoidTime is how long the relay avoids a target.
	avoidTime = 10 * time.Minute
	// maxAvoided is the limit on such targets; the oldest is dropped.
	maxAvoided = 256
	// A gateway that does not reach noIPv6 networks of IPv6 in a row, because it has no route or gets no answer, has no IPv6.
	noIPv6 = 3
)

// avoided holds targets, of TCP or of UDP, that a gateway could not reach, and those of bridged connections that the node could not reach.
// The kernel forwards connections to them, or bridges them to the clients' router: so they do not wait for the gateway, and
// the client learns what becomes of its SYN.
type avoided struct {
	mu        sync.Mutex
	by        map[netip.AddrPort]avoidance
	unreached []netip.Prefix // networks of IPv6 that the gateway has not reached since it has reached one; at most noIPv6
	last      time.Time      // when it last has not
}

type avoidance struct {
	since     time.Time
	suspected bool // by one connection, and not avoided yet
}

// add makes a target avoided.
func (a *avoided) add(target netip.AddrPort, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(target, avoidance{since: now})
}

// suspect records that a gateway that works has not told in time whether it reaches a target, for a connection that began at begun. Once, this may
// be by chance. A second connection that began after the first one's answer was due shows that the target drops the gateway's packets.
func (a *avoided) suspect(target netip.AddrPort, begun, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if begun.After(a.last) { // what was late together may have been so by the same chance
		a.missed(target, now)
	}
	x, ok := a.by[target]
	switch {
	case !ok || now.Sub(x.since) >= avoidTime:
		a.put(target, avoidance{since: now, suspected: true})
	case x.suspected && begun.After(x.since):
		a.put(target, avoidance{since: now})
	}
}

// refused records that a gateway that works has refused a target.
func (a *avoided) refused(target netip.AddrPort, refusal *tunnel.Refusal, now time.Time) {
	if !refusal.OfTarget() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(target, avoidance{since: now})
	if refusal.Type == tunnel.TargetUnroutable {
		a.missed(target, now)
	}
}

// missed records that the gateway has not reached a target, perhaps because it has no IPv6.
func (a *avoided) missed(target netip.AddrPort, now time.Time) {
	network, err := target.Addr().Prefix(48)
	if err != nil { // IPv4
		return
	}
	a.last = now
	if len(a.unreached) < noIPv6 && !slices.Contains(a.unreached, network) {
		a.unreached = append(a.unreached, network)
	}
}

// reached records that the gateway reaches a target.
func (a *avoided) reached(target netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if target.Addr().Is6() {
		a.unreached = nil
	}
	if a.by[target].suspected {
		delete(a.by, target)
	}
}

func (a *avoided) put(target netip.AddrPort, x avoidance) {
	if a.by == nil {
		a.by = make(map[netip.AddrPort]avoidance)
	}
	if len(a.by) >= maxAvoided {
		oldest := target
		for t, y := range a.by {
			if first, ok := a.by[oldest]; !ok || y.since.Before(first.since) {
				oldest = t
			}
		}
		delete(a.by, oldest)
	}
	a.by[target] = x
}

func (a *avoided) has(target netip.AddrPort, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.without(target, now) {
		return true
	}
	x, ok := a.by[target]
	if ok && now.Sub(x.since) >= avoidTime {
		delete(a.by, target)
		return false
	}
	return ok && !x.suspected
}

// without reports whether the gateway seems to have no IPv6, by which it would reach a target. The caller holds mu.
func (a *avoided) without(target netip.AddrPort, now time.Time) bool {
	return target.Addr().Is6() && len(a.unreached) == noIPv6 && now.Sub(a.last) < avoidTime
}

// hasNoWay is without, for targets of another protocol than a's.
func (a *avoided) hasNoWay(target netip.AddrPort, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.without(target, now)
}

// count returns how many targets are avoided.
func (a *avoided) count(now time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.by {
		if !x.suspected && now.Sub(x.since) < avoidTime {
			n++
		}
	}
	return n
}

// clear forgets all targets: another gateway may reach them.
func (a *avoided) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.by)
	a.unreached = nil
}
