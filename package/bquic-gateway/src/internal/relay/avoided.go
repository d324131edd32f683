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
	// A gateway that does not reach noIPv6 networks of IPv6 in a row, because it has no route or gets no answer, has no IPv6. Nor has
	// one that does not reach as many networks of IPv4 by NAT64 a translator.
	noIPv6 = 3
)

// nat64 is the prefix by which clients without IPv4 reach IPv4 (RFC 6052, section 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// avoided holds targets, of TCP or of UDP, that a gateway could not reach, and those of bridged connections that the node could not reach.
// The kernel forwards connections to them, or bridges them to the clients' router: so they do not wait for the gateway, and
// the client learns what becomes of its SYN.
type avoided struct {
	mu sync.Mutex
	by map[netip.AddrPort]avoidance
	// Targets that are reached by IPv6, and by NAT64: a gateway may have the one without the other.
	native, translated reach
}

// A reach tells what the gateway has not reached of some networks.
type reach struct {
	unreached []netip.Prefix // networks since it has reached one; at most noIPv6
	last      time.Time      // when it last has not
}

// of returns the reach that a target belongs to and its network there; nil for IPv4.
func (a *avoided) of(target netip.Addr) (*reach, netip.Prefix) {
	switch {
	case target.Is4():
		return nil, netip.Prefix{}
	case nat64.Contains(target):
		return &a.translated, netip.PrefixFrom(target, nat64.Bits()+24).Masked()
	}
	return &a.native, netip.PrefixFrom(target, 48).Masked()
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
	if r, network := a.of(target.Addr()); r != nil && begun.After(r.last) { // what was late together may have been so by the same chance
		r.missed(network, now)
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
	if r, network := a.of(target.Addr()); r != nil && refusal.Type == tunnel.TargetUnroutable {
		r.missed(network, now)
	}
}

// missed records that the gateway has not reached a network, perhaps because it reaches none.
func (r *reach) missed(network netip.Prefix, now time.Time) {
	r.last = now
	if len(r.unreached) < noIPv6 && !slices.Contains(r.unreached, network) {
		r.unreached = append(r.unreached, network)
	}
}

// reached records that the gateway reaches a target.
func (a *avoided) reached(target netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, _ := a.of(target.Addr()); r != nil {
		r.unreached = nil
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

// avoids is like has, for TCP: again says that the caller should ask the gateway whether it reaches the target by now, and call regained if it
// does. Until then, the target stays avoided: no client's connection has to find out that nothing has changed.
func (a *avoided) avoids(target netip.AddrPort, now time.Time) (avoid, again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := &time.Time{}
	x, ok := a.by[target]
	switch r, _ := a.of(target.Addr()); {
	case r != nil && len(r.unreached) == noIPv6:
		since = &r.last
	case ok && !x.suspected:
		since = &x.since
	default:
		return false, false
	}
	if again = now.Sub(*since) >= avoidTime; again {
		*since = now
	}
	if ok {
		a.by[target] = x
	}
	return true, again
}

// regained records that the gateway reaches a target that was avoided.
func (a *avoided) regained(target netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.by, target)
	if r, _ := a.of(target.Addr()); r != nil {
		r.unreached = nil
	}
}

// without reports whether the gateway seems to have no IPv6, or no NAT64, by which it would reach a target. The caller holds mu.
func (a *avoided) without(target netip.AddrPort, now time.Time) bool {
	r, _ := a.of(target.Addr())
	return r != nil && len(r.unreached) == noIPv6 && now.Sub(r.last) < avoidTime
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
	a.native, a.translated = reach{}, reach{}
}
