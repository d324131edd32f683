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

// TestLook checks that only a relay that takes connections, but has seen none of its busy
// clients, reports it.
func TestLook(t *testing.T) {
	now := time.Unix(1000, 0)
	why := func() Unseen { return Unseen{UnseenOff, "off"} }
	var u unseen
	moved := uint64(0)
	look := func(after time.Duration, taking bool, seen, bytes uint64) bool {
		now, moved = now.Add(after), moved+bytes
		return u.look(now, taking, seen, func() uint64 { return moved }, why)
	}
	for _, tc := range []struct {
		name    string
		after   time.Duration
		taking  bool
		seen    uint64
		bytes   uint64
		changed bool
		says    bool
	}{
		{"nothing is taken", time.Hour, false, 0, 1 << 30, false, false},
		{"it begins", 0, true, 0, 0, false, false},
		{"idle clients", unseenTime, true, 0, unseenBytes - 1, false, false},
		{"and idle again", unseenTime, true, 0, unseenBytes - 1, false, false},
		{"not for long enough", unseenTime / 2, true, 0, unseenBytes, false, false},
		{"busy clients", unseenTime / 2, true, 0, 1, true, true},
		{"it says so until a connection comes", unseenTime, true, 0, 1, false, true},
		{"a connection", time.Second, true, 1, 1, true, false},
		{"busy ever after", time.Hour, true, 1, 1 << 30, false, false},
		{"the gateway is away", time.Second, false, 0, 0, false, false},
		{"it is back", time.Second, true, 0, 0, false, false},
		{"busy, but not for long", unseenTime / 2, true, 0, 1 << 30, false, false},
	} {
		if changed := look(tc.after, tc.taking, tc.seen, tc.bytes); changed != tc.changed || (u.now != nil) != tc.says {
			t.Errorf("%s: changed %v, says %v", tc.name, changed, u.now)
		}
	}
}
