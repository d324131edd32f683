// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"testing"
	"time"
)

func TestFirst(t *testing.T) {
	ms := time.Millisecond
	for _, tc := range []struct {
		name  string
		paths []Path
		first int
	}{
		{"one", []Path{{Streams: 9, RTT: time.Second}}, 0},
		{"equal", []Path{{Streams: 2, RTT: 5 * ms}, {Streams: 2, RTT: 5 * ms}}, 0},
		{"the one that carries less", []Path{{Streams: 3, RTT: 5 * ms}, {Streams: 2, RTT: 5 * ms}}, 1},
		{"less than a millisecond is no difference", []Path{{RTT: 900 * time.Microsecond}, {RTT: 50 * time.Microsecond}}, 0},
		{"the nearer one", []Path{{RTT: 20 * ms}, {RTT: 5 * ms}}, 1},
		{"a full queue", []Path{{RTT: 120 * ms}, {Streams: 10, RTT: 8 * ms}}, 1},
		{"the nearer one has enough", []Path{{Streams: 3, RTT: 5 * ms}, {RTT: 15 * ms}}, 1},
		{"one that has said nothing for less than its RTT", []Path{{RTT: 5 * ms, Quiet: 4 * ms}, {RTT: 6 * ms}}, 0},
		{"one that stalls", []Path{{RTT: 5 * ms, Quiet: 90 * ms}, {Streams: 3, RTT: 6 * ms}}, 1},
		{"all of them stall", []Path{{Streams: 1, RTT: 5 * ms, Quiet: 90 * ms}, {Streams: 1, RTT: 6 * ms, Quiet: 80 * ms}}, 1},
		{"no RTT yet", []Path{{Streams: 1}, {}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := First(tc.paths); got != tc.first {
				t.Errorf("%d, not %d", got, tc.first)
			}
		})
	}
}

// Two paths with rates of 3 to 1 receive connections at about that ratio, and so
// finish at the same time.
func TestFirstBalances(t *testing.T) {
	paths := []Path{{RTT: 10 * time.Millisecond}, {RTT: 30 * time.Millisecond}}
	for range 400 {
		paths[First(paths)].Streams++
	}
	if n := paths[0].Streams; n < 295 || n > 305 {
		t.Errorf("%d of 400 take the path with a third of the RTT", n)
	}
}

func TestCompared(t *testing.T) {
	l := newLife(t)
	l.up()
	ask := func(want Path) {
		t.Helper()
		got, do := l.s.Compared(l.now, 7*time.Millisecond)
		l.do(do)
		if got != want {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	rtt := 7 * time.Millisecond
	ask(Path{RTT: rtt})
	l.s.Opened(l.now)
	l.now = l.now.Add(20 * time.Millisecond)
	ask(Path{Streams: 1, RTT: rtt, Quiet: 20 * time.Millisecond})
	l.s.Opened(l.now) // does not restart the time
	l.now = l.now.Add(20 * time.Millisecond)
	ask(Path{Streams: 2, RTT: rtt, Quiet: 40 * time.Millisecond})
	l.hear()
	ask(Path{Streams: 2, RTT: rtt})
	if len(l.did) > 0 {
		t.Errorf("it has asked for %q", l.did)
	}

	// After a long silence the RTT is old, so the gateway is sent a PING, once a second.
	l.do(l.s.Ended())
	l.do(l.s.Ended())
	l.now = l.now.Add(AskAfter)
	ask(Path{RTT: rtt})
	ask(Path{RTT: rtt})
	if len(l.did) != 1 || l.did[0] != "ping" {
		t.Errorf("after a second, it has asked for %q", l.did)
	}
	// Without an acknowledgement, the session becomes Silent.
	l.quiet(SilentAfter + Interval)
	if l.s.State() != Silent {
		t.Errorf("it is %s", l.s.State())
	}
}
