// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"bquic/internal/tunnel"
)

// TestAvoided checks that targets are avoided for a while.
func TestAvoided(t *testing.T) {
	now := time.Unix(1000, 0)
	target := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(i))
	}
	var a avoided
	if a.has(target(0), now) {
		t.Error("avoided without a reason")
	}
	for i := range maxAvoided + 10 {
		a.add(target(i), now.Add(time.Duration(i)))
	}
	if len(a.by) != maxAvoided || a.has(target(9), now) || !a.has(target(10), now) || !a.has(target(maxAvoided+9), now) {
		t.Errorf("%d are avoided", len(a.by))
	}
	if a.has(target(20), now.Add(avoidTime+time.Second)) {
		t.Error("avoided for ever")
	}
}

// TestSuspected checks that a target is avoided only when two connections in turn got no answer.
func TestSuspected(t *testing.T) {
	now := time.Unix(1000, 0)
	target := netip.MustParseAddrPort("192.0.2.1:80")
	var a avoided
	suspect := func(begun, due time.Duration) bool {
		a.suspect(target, now.Add(begun), now.Add(due))
		return a.has(target, now.Add(due))
	}
	if suspect(0, 2*time.Second) || suspect(time.Second, 3*time.Second) {
		t.Error("avoided after connections at the same time")
	}
	a.reached(target)
	if suspect(4*time.Second, 6*time.Second) {
		t.Error("avoided although it was reached in between")
	}
	if !suspect(7*time.Second, 9*time.Second) {
		t.Error("not avoided")
	}
	a.reached(target)
	if !a.has(target, now.Add(10*time.Second)) {
		t.Error("no longer avoided, though only an older connection has reached it")
	}
	if suspect(avoidTime+10*time.Second, avoidTime+12*time.Second) {
		t.Error("avoided for ever")
	}
}

// TestNoIPv6 has a gateway without IPv6: after a few targets, the others are not asked for.
func TestNoIPv6(t *testing.T) {
	now := time.Unix(1000, 0)
	target := func(network int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", network)), 443)
	}
	four := netip.MustParseAddrPort("192.0.2.1:443")
	var a avoided
	refused := func(target netip.AddrPort, kind string) { a.refused(target, &tunnel.Refusal{Type: kind}, now) }
	check := func(when string, want bool) {
		t.Helper()
		if a.has(target(99), now) != want || a.has(netip.MustParseAddrPort("192.0.2.2:443"), now) {
			t.Errorf("%s: avoided %v, not %v", when, !want, want)
		}
	}
	for range noIPv6 {
		refused(target(1), tunnel.TargetUnroutable)
	}
	check("one network has no route", false)
	refused(target(2), tunnel.TargetUnroutable)
	a.reached(target(3))
	refused(target(4), tunnel.TargetUnroutable)
	refused(target(5), tunnel.TargetProhibited)
	refused(target(6), tunnel.LimitReached)
	refused(four, tunnel.TargetUnroutable)
	check("a network has been reached", false)
	if !a.has(target(4), now) || !a.has(target(5), now) || !a.has(four, now) || a.has(target(6), now) {
		t.Errorf("avoided are %v", a.by)
	}
	refused(target(7), tunnel.TargetUnroutable)
	refused(target(8), tunnel.TargetUnroutable)
	check("no network has a route", true)
	now = now.Add(avoidTime)
	check("later", false)
	refused(target(9), tunnel.TargetUnroutable)
	check("nothing has changed", true)
	now = now.Add(avoidTime)
	a.reached(target(9))
	refused(target(10), tunnel.TargetUnroutable)
	check("one has been reached by now", false)
	now = now.Add(time.Minute)
	a.reached(target(9))
	for i := range noIPv6 {
		a.suspect(target(i), now.Add(-time.Second), now)
	}
	check("three networks did not answer at the same time", false)
	for i := range noIPv6 - 1 {
		begun := now.Add(time.Second)
		now = begun.Add(time.Second)
		a.suspect(target(i+noIPv6), begun, now)
	}
	check("no network answers", true)
	a.clear()
	check("another gateway", false)
}

// TestNoNAT64 has clients without IPv4, and a gateway with IPv6 but without a translator: after a few targets, the others behind the translator are
// not asked for.
func TestNoNAT64(t *testing.T) {
	now := time.Unix(1000, 0)
	var a avoided
	target := func(address string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(address), 443) }
	has := func(address string) bool { return a.has(target(address), now) }
	for i := range noIPv6 {
		if has("64:ff9b::203.0.113.99") {
			t.Errorf("avoided after %d networks", i)
		}
		a.refused(target(fmt.Sprintf("64:ff9b::198.51.%d.1", i)), &tunnel.Refusal{Type: tunnel.TargetUnroutable}, now)
		a.reached(target("2001:db8::1"))
	}
	if !has("64:ff9b::203.0.113.99") || has("2001:db8::2") || has("203.0.113.99") {
		t.Error("not what is behind the translator is avoided")
	}
	a.reached(target("64:ff9b::203.0.113.1"))
	if has("64:ff9b::203.0.113.99") {
		t.Error("avoided although the gateway has a translator by now")
	}
}
