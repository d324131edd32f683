// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"testing"
	"time"
)

// TestRest has a relay that is idle for an hour. It seldom looks at the counters, which is no doubt of the processor, and looks as often as
// before as soon as the path or a connection has something to show.
func TestRest(t *testing.T) {
	now := epoch
	p := New(now, 0.5, time.Microsecond, 1e3)
	s := Sample{Idle: true}
	ticks, rehearsals := 0, 0
	tick := func() {
		now = now.Add(max(p.Next(), Interval))
		ticks++
		if pace := p.Tick(now, s); pace > 0 {
			rehearsals++
			p.Rehearsed(now, pace, pace)
		}
	}
	for now.Before(epoch.Add(time.Hour)) {
		tick()
	}
	if p.Takes() != All || rehearsals > int(time.Hour/proofAge)+1 || ticks > int(time.Hour/restInterval)*11/10 {
		t.Errorf("in an hour it has ticked %d times and rehearsed %d times, and takes %s", ticks, rehearsals, p.Takes())
	}
	s.Idle = false
	if tick(); p.Next() != Interval {
		t.Errorf("with a connection, the next tick is due after %s", p.Next())
	}
	s.Idle = true
	for range plateau {
		tick()
	}
	if p.Next() != restInterval {
		t.Errorf("after the last connection, the next tick is due after %s", p.Next())
	}
	s.Path.In.Bytes += 1e6
	s.Path.In.Packets += 1e3
	if tick(); p.Next() != Interval {
		t.Errorf("with traffic on the path, the next tick is due after %s", p.Next())
	}
}
