// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"
	"time"
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
