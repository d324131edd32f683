// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// uplinkQuiet is how long no target must have answered before silence counts.
	uplinkQuiet = 10 * time.Second
	// uplinkSuspects is how many networks must have been silent since the last answer.
	uplinkSuspects = 3
	// uplinkForget is how long a silent target counts.
	uplinkForget = time.Minute
	// uplinkTry is how often targets are tried while the uplink is in doubt or down.
	uplinkTry = 5 * time.Second
	// uplinkTargets is how many targets are tried at a time. uplinkKept is how many
	// targets that answered, and how many that were requested, are remembered.
	uplinkTargets = 4
	uplinkKept    = 8
	// uplinkUnknown is how long the uplink may count as down if no target has ever answered.
	// The targets to try are then only those that were silent, and may not exist. After
	// uplinkStale, those that have answered may no longer exist either.
	uplinkUnknown = 5 * time.Minute
	uplinkStale   = time.Hour
)

// An uplinkState is what is known about the path to the Internet.
type uplinkState int

const (
	uplinkUp uplinkState = iota
	// uplinkDoubt: known targets are being tried.
	uplinkDoubt
	uplinkDown
)

// An uplink detects whether the gateway reaches the Internet, from the outcome of
// clients' connections. A target that answers, even with a refused connection, proves
// that the uplink works. Targets in several networks that are silent, or have no route,
// raise doubt. The gateway then tries targets that answered before, and the last ones
// requested. If none of them answers, the uplink is down until one does. So once a target has
// answered, a client that requests unused addresses can only raise doubt. The zero value is up.
//
// It uses neither clock nor network, and is not safe for concurrent use.
type uplink struct {
	state    uplinkState
	last     time.Time // when a target last answered
	four     bool      // an IPv4 target has answered
	six      bool      // an IPv6 target has answered
	silent   []silence // silent networks since last
	answered []netip.AddrPort
	asked    []netip.AddrPort

	doubted time.Time // when it last began to be in doubt, or to be down without one

	next   time.Time // when to try next
	trying bool
	round  int
}

type silence struct {
	network netip.Prefix
	at      time.Time
}

// networkOf returns the network of a target. One dead network does not prove a dead uplink.
func networkOf(target netip.AddrPort) netip.Prefix {
	bits := 48
	if target.Addr().Is4() {
		bits = 24
	}
	p, _ := target.Addr().Prefix(bits)
	return p
}

// remember puts target first, and removes any other target in its network. If target is of IPv6, the latest one of IPv4 comes second: a gateway
// may lose its IPv6 alone.
func remember(targets []netip.AddrPort, target netip.AddrPort) []netip.AddrPort {
	network := networkOf(target)
	targets = slices.DeleteFunc(targets, func(t netip.AddrPort) bool { return networkOf(t) == network })
	if i := slices.IndexFunc(targets, func(t netip.AddrPort) bool { return t.Addr().Is4() }); i > 0 && target.Addr().Is6() {
		four := targets[i]
		copy(targets[1:], targets[:i])
		targets[0] = four
	}
	return append([]netip.AddrPort{target}, targets[:min(len(targets), uplinkKept-1)]...)
}

// answer records that target has answered.
func (u *uplink) answer(now time.Time, target netip.AddrPort) {
	u.state, u.last, u.silent = uplinkUp, now, nil
	u.four = u.four || target.Addr().Is4()
	u.six = u.six || target.Addr().Is6()
	u.answered = remember(u.answered, target)
}

// silence records that target was silent, or that there was no route to it.
func (u *uplink) silence(now time.Time, target netip.AddrPort, noRoute bool) {
	if noRoute && (target.Addr().Is6() && !u.six || target.Addr().Is4() && u.six && !u.four) {
		return // a gateway without IPv6, or without IPv4
	}
	u.asked = remember(u.asked, target)
	network := networkOf(target)
	u.silent = slices.DeleteFunc(u.silent, func(s silence) bool { return s.network == network || now.Sub(s.at) > uplinkForget })
	u.silent = append(u.silent, silence{network, now})
	u.silent = u.silent[max(0, len(u.silent)-uplinkSuspects):]
	quiet := u.last.IsZero() || now.Sub(u.last) >= uplinkQuiet
	if u.state == uplinkUp && (len(u.silent) == uplinkSuspects && quiet || noRoute && len(u.answered) > 0) && !now.Before(u.next) {
		u.state, u.next, u.doubted = uplinkDoubt, now, now
	}
}

// lost records that none of the targets that answered before has a route.
func (u *uplink) lost(now time.Time) {
	if u.state != uplinkDown && len(u.answered) > 0 {
		u.state, u.next, u.doubted = uplinkDown, now, now
	}
}

// tries returns the targets to try now. If there are any, the caller must call answer for
// each that answers, and then tried.
func (u *uplink) tries(now time.Time) []netip.AddrPort {
	longest := uplinkStale
	if len(u.answered) == 0 {
		longest = uplinkUnknown
	}
	if u.state == uplinkDown && now.Sub(u.doubted) >= longest {
		u.state, u.silent = uplinkUp, nil // relays ask for other targets
	}
	if u.state == uplinkUp || u.trying || now.Before(u.next) {
		return nil
	}
	all := slices.Clone(u.answered)
	for _, t := range u.asked {
		if !slices.ContainsFunc(all, func(a netip.AddrPort) bool { return networkOf(a) == networkOf(t) }) {
			all = append(all, t)
		}
	}
	// The first round tries the targets that answered last, later rounds try all in turn.
	var some []netip.AddrPort
	for i := range min(len(all), uplinkTargets) {
		some = append(some, all[(u.round*uplinkTargets+i)%len(all)])
	}
	u.round++
	u.trying, u.next = true, now.Add(uplinkTry)
	return some
}

// tried records that the targets from tries were tried.
func (u *uplink) tried() {
	u.trying = false
	switch u.state {
	case uplinkDoubt:
		u.state = uplinkDown
	case uplinkUp:
		u.round = 0
	}
}

// down reports whether the gateway does not reach the Internet.
func (u *uplink) down() bool { return u.state == uplinkDown }
