// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// uplinkQuiet is how long no target must have answered before silence means anything.
	uplinkQuiet = 10 * time.Second
	// uplinkSuspects is how many networks must have been silent since.
	uplinkSuspects = 3
	// uplinkForget is how long a silent target is evidence.
	uplinkForget = time.Minute
	// uplinkTry is how often targets are tried while there is doubt.
	uplinkTry = 5 * time.Second
	// uplinkTargets is how many targets are tried at a time, and uplinkKept how many
	// of those that answered, and of those that were asked for, are remembered.
	uplinkTargets = 4
	uplinkKept    = 8
)

// An uplinkState is what is known of the way to the Internet.
type uplinkState int

const (
	uplinkUp uplinkState = iota
	// uplinkDoubt: targets that answered before are being tried.
	uplinkDoubt
	uplinkDown
)

// An uplink finds out whether the gateway reaches the Internet from what becomes
// of connections that clients ask for. A target that answers proves that it does,
// also with a refusal. Targets of several networks that are silent, or to which
// there is no route, raise doubt: then targets that answered before, or were asked
// for last, are tried, and when none of them answers either, the uplink is down
// until one does. So a client that asks for addresses where nobody is can raise
// doubt, no more. The zero value is up.
//
// It knows neither clock nor network, and is not safe for concurrent use.
type uplink struct {
	state    uplinkState
	last     time.Time // of an answer
	six      bool      // a target with IPv6 has answered
	silent   []silence // since then
	answered []netip.AddrPort
	asked    []netip.AddrPort

	next   time.Time // of trying
	trying bool
	round  int
}

type silence struct {
	network netip.Prefix
	at      time.Time
}

// networkOf tells targets apart: one dead network is not a dead uplink.
func networkOf(target netip.AddrPort) netip.Prefix {
	bits := 48
	if target.Addr().Is4() {
		bits = 24
	}
	p, _ := target.Addr().Prefix(bits)
	return p
}

// remember puts target first, in the place of another one of its network.
func remember(targets []netip.AddrPort, target netip.AddrPort) []netip.AddrPort {
	network := networkOf(target)
	targets = slices.DeleteFunc(targets, func(t netip.AddrPort) bool { return networkOf(t) == network })
	return slices.Insert(targets, 0, target)[:min(len(targets)+1, uplinkKept)]
}

// answer notes that target has answered.
func (u *uplink) answer(now time.Time, target netip.AddrPort) {
	u.state, u.last, u.silent = uplinkUp, now, nil
	u.six = u.six || target.Addr().Is6()
	u.answered = remember(u.answered, target)
}

// silence notes that target was silent, or that there was no route to it.
func (u *uplink) silence(now time.Time, target netip.AddrPort, noRoute bool) {
	if noRoute && target.Addr().Is6() && !u.six {
		return // a gateway without IPv6
	}
	u.asked = remember(u.asked, target)
	network := networkOf(target)
	u.silent = slices.DeleteFunc(u.silent, func(s silence) bool { return s.network == network || now.Sub(s.at) > uplinkForget })
	u.silent = append(u.silent, silence{network, now})
	u.silent = u.silent[max(0, len(u.silent)-uplinkSuspects):]
	quiet := u.last.IsZero() || now.Sub(u.last) >= uplinkQuiet
	if u.state == uplinkUp && (len(u.silent) == uplinkSuspects && quiet || noRoute && len(u.answered) > 0) && !now.Before(u.next) {
		u.state, u.next = uplinkDoubt, now
	}
}

// lost notes that there is a route to none of the targets that answered before.
func (u *uplink) lost(now time.Time) {
	if u.state != uplinkDown && len(u.answered) > 0 {
		u.state, u.next = uplinkDown, now
	}
}

// tries returns the targets to try now. When there are some, tried is to be
// called, and answer before it when one has answered.
func (u *uplink) tries(now time.Time) []netip.AddrPort {
	if u.state == uplinkUp || u.trying || now.Before(u.next) {
		return nil
	}
	all := slices.Clone(u.answered)
	for _, t := range u.asked {
		if !slices.ContainsFunc(all, func(a netip.AddrPort) bool { return networkOf(a) == networkOf(t) }) {
			all = append(all, t)
		}
	}
	// The first time those that answered last, later on all in turn.
	var some []netip.AddrPort
	for i := range min(len(all), uplinkTargets) {
		some = append(some, all[(u.round*uplinkTargets+i)%len(all)])
	}
	u.round++
	u.trying, u.next = true, now.Add(uplinkTry)
	return some
}

// tried notes that what tries returned was tried.
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
