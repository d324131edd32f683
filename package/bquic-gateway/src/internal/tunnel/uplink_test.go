// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Each step is a time, an event and the expected state.
func TestUplink(t *testing.T) {
	target := func(n int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(n), 1}), 443)
	}
	target6 := func(n int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("[2001:db8:%x::1]:443", n)) }
	start := time.Unix(1000, 0)
	type step struct {
		at    float64 // seconds
		event string
		n     int
		state uplinkState // after the event
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"answers", []step{{0, "answer", 1, uplinkUp}, {60, "answer", 2, uplinkUp}, {61, "tries", 0, uplinkUp}}},
		{"silence of one network", []step{{0, "answer", 1, uplinkUp}, {20, "silent", 2, uplinkUp}, {21, "silent", 2, uplinkUp}, {22, "silent", 2, uplinkUp}, {23, "tries", 0, uplinkUp}}},
		{"silence while others answer", []step{{0, "answer", 1, uplinkUp}, {8, "silent", 2, uplinkUp}, {8, "silent", 3, uplinkUp}, {9, "silent", 4, uplinkUp}}},
		{"silence of three", []step{{0, "answer", 1, uplinkUp}, {20, "silent", 2, uplinkUp}, {20, "silent", 3, uplinkUp}, {20, "silent", 4, uplinkDoubt}, {20, "tries", 4, uplinkDoubt}, {23, "tried", 0, uplinkDown}}},
		{"silence long ago", []step{{0, "silent", 2, uplinkUp}, {1, "silent", 3, uplinkUp}, {70, "silent", 4, uplinkUp}}},
		{"a scanner", []step{{0, "answer", 1, uplinkUp}, {20, "silent", 2, uplinkUp}, {20, "silent", 3, uplinkUp}, {20, "silent", 4, uplinkDoubt}, {20, "tries", 4, uplinkDoubt},
			{20, "answer", 1, uplinkUp}, {20, "tried", 0, uplinkUp}, {21, "silent", 5, uplinkUp}, {21, "tries", 0, uplinkUp}}},
		{"down and up", []step{{0, "silent", 2, uplinkUp}, {0, "silent", 3, uplinkUp}, {1, "silent", 4, uplinkDoubt}, {1, "tries", 3, uplinkDoubt}, {2, "tries", 0, uplinkDoubt},
			{4, "tried", 0, uplinkDown}, {5, "tries", 0, uplinkDown}, {6, "tries", 3, uplinkDown}, {9, "tried", 0, uplinkDown}, {11, "tries", 3, uplinkDown},
			{12, "answer", 3, uplinkUp}, {14, "tried", 0, uplinkUp}, {20, "tries", 0, uplinkUp}}},
		{"nobody ever answered", []step{{0, "silent", 2, uplinkUp}, {0, "silent", 3, uplinkUp}, {1, "silent", 4, uplinkDoubt}, {1, "tries", 3, uplinkDoubt},
			{4, "tried", 0, uplinkDown}, {300, "tries", 3, uplinkDown}, {300, "tried", 0, uplinkDown}, {301, "tries", 0, uplinkUp}, {301, "tries", 0, uplinkUp},
			{302, "silent", 5, uplinkUp}, {302, "silent", 6, uplinkUp}, {306, "silent", 7, uplinkDoubt}, {306, "tries", 4, uplinkDoubt}, {309, "tried", 0, uplinkDown}, {310, "tries", 0, uplinkDown}}},
		{"down for long", []step{{0, "answer", 1, uplinkUp}, {20, "silent", 2, uplinkUp}, {20, "silent", 3, uplinkUp}, {20, "silent", 4, uplinkDoubt}, {20, "tries", 4, uplinkDoubt},
			{23, "tried", 0, uplinkDown}, {3600, "tries", 4, uplinkDown}, {3603, "tried", 0, uplinkDown}, {3620, "tries", 0, uplinkUp}, {3621, "silent", 5, uplinkUp},
			{3621, "silent", 6, uplinkUp}, {3622, "silent", 7, uplinkDoubt}, {3622, "tries", 4, uplinkDoubt}, {3625, "tried", 0, uplinkDown}, {3700, "tries", 4, uplinkDown}}},
		{"a client is quicker than a try", []step{{0, "silent", 2, uplinkUp}, {0, "silent", 3, uplinkUp}, {1, "silent", 4, uplinkDoubt}, {1, "tries", 3, uplinkDoubt},
			{2, "answer", 9, uplinkUp}, {4, "tried", 0, uplinkUp}}},
		{"no route", []step{{0, "answer", 1, uplinkUp}, {1, "no route", 2, uplinkDoubt}, {1, "tries", 2, uplinkDoubt}, {1, "tried", 0, uplinkDown}}},
		{"no route to one", []step{{0, "answer", 1, uplinkUp}, {1, "no route", 2, uplinkDoubt}, {1, "tries", 2, uplinkDoubt}, {1, "answer", 1, uplinkUp}, {1, "tried", 0, uplinkUp}, {2, "no route", 3, uplinkUp}, {7, "no route", 3, uplinkDoubt}}},
		{"no route from the first", []step{{0, "no route", 1, uplinkUp}, {0, "no route", 2, uplinkUp}, {0, "no route", 3, uplinkDoubt}, {0, "tries", 3, uplinkDoubt}, {0, "tried", 0, uplinkDown}}},
		{"no IPv6", []step{{0, "no route6", 1, uplinkUp}, {0, "no route6", 2, uplinkUp}, {0, "no route6", 3, uplinkUp}, {1, "tries", 0, uplinkUp}}},
		{"no IPv4", []step{{0, "answer6", 1, uplinkUp}, {1, "no route", 2, uplinkUp}, {7, "no route", 3, uplinkUp}, {8, "no route", 4, uplinkUp}, {20, "no route", 5, uplinkUp},
			{21, "tries", 0, uplinkUp}, {30, "silent", 6, uplinkUp}, {30, "silent", 7, uplinkUp}, {30, "silent", 8, uplinkDoubt}}},
		{"no IPv4 any more", []step{{0, "answer6", 1, uplinkUp}, {0, "answer", 1, uplinkUp}, {1, "no route", 2, uplinkDoubt}}},
		{"no IPv6 any more", []step{{0, "answer6", 1, uplinkUp}, {1, "no route6", 2, uplinkDoubt}, {1, "tries", 2, uplinkDoubt}, {2, "tried", 0, uplinkDown}}},
		{"all routes lost", []step{{0, "lost", 0, uplinkUp}, {0, "answer", 1, uplinkUp}, {1, "lost", 0, uplinkDown}, {1, "tries", 1, uplinkDown}, {1, "tried", 0, uplinkDown}, {2, "lost", 0, uplinkDown}, {6, "tries", 1, uplinkDown}, {6, "answer", 1, uplinkUp}}},
		{"all routes lost for long", []step{{0, "answer", 1, uplinkUp}, {4000, "lost", 0, uplinkDown}, {4001, "tries", 1, uplinkDown}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var u uplink
			for i, s := range tc.steps {
				now := start.Add(time.Duration(s.at * float64(time.Second)))
				switch s.event {
				case "answer":
					u.answer(now, target(s.n))
				case "answer6":
					u.answer(now, target6(s.n))
				case "silent", "no route":
					u.silence(now, target(s.n), s.event != "silent")
				case "no route6":
					u.silence(now, target6(s.n), true)
				case "lost":
					u.lost(now)
				case "tries":
					if got := u.tries(now); len(got) != s.n {
						t.Errorf("step %d: %v are tried, want %d", i, got, s.n)
					}
				case "tried":
					u.tried()
				}
				if u.state != s.state {
					t.Errorf("step %d %v: state %d", i, s, u.state)
				}
				if u.down() != (u.state == uplinkDown) {
					t.Error("down")
				}
			}
		})
	}

	// All remembered targets are tried in turn, and their number is limited.
	var u uplink
	for i := range 100 {
		u.answer(start, target(i))
	}
	for i := range 100 {
		u.silence(start.Add(time.Hour), target(100+i), false)
	}
	now := start.Add(time.Hour)
	var tried []netip.AddrPort
	for range 8 {
		now = now.Add(uplinkTry)
		some := u.tries(now)
		if len(some) != uplinkTargets {
			t.Fatalf("%v are tried", some)
		}
		tried = append(tried, some...)
		u.tried()
	}
	for i := range uplinkKept {
		if !slices.Contains(tried, target(99-i)) || !slices.Contains(tried, target(199-i)) {
			t.Errorf("%s or %s was never tried", target(99-i), target(199-i))
		}
	}
	if len(u.answered) != uplinkKept || len(u.asked) != uplinkKept || len(u.silent) > uplinkSuspects {
		t.Errorf("%d, %d, %d are remembered", len(u.answered), len(u.asked), len(u.silent))
	}
}
