// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func half() float64 { return 0.5 }

// A day plays events on a lineup's places.
type day struct {
	t   *testing.T
	l   *Lineup
	now time.Time
}

func newDay(t *testing.T, tiers ...int) *day {
	now := time.Unix(1e9, 0)
	return &day{t, NewLineup(now, tiers, half), now}
}

// decides checks which places are dialled and retired now.
func (d *day) decides(want string) {
	d.t.Helper()
	dial, retire := d.l.Decide(d.now)
	if got := fmt.Sprint(dial, retire); got != want {
		d.t.Fatalf("after %v: %s, not %s", d.now.Sub(time.Unix(1e9, 0)), got, want)
	}
}

func (d *day) after(pause time.Duration) { d.now = d.now.Add(pause) }
func (d *day) failed(i int)              { d.l.Failed(d.now, i) }
func (d *day) is(i int, state State)     { d.l.Session(d.now, i, state) }

func (d *day) dialled(i int, state State) {
	d.l.Dialled(i)
	d.is(i, state)
}

func TestLineup(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tiers []int
		play  func(*day)
	}{
		{"one", []int{0}, func(d *day) {
			d.decides("[0] []")
			d.decides("[] []")
			d.dialled(0, Up)
			d.after(time.Hour)
			d.decides("[] []")
		}},
		{"one that does not answer is tried again and again, but not all the time", []int{0}, func(d *day) {
			for _, pause := range []time.Duration{minPause, 2 * minPause, 4 * minPause, 8 * minPause, 16 * minPause, maxPause, maxPause} {
				d.decides("[0] []")
				d.failed(0)
				d.after(pause - 1)
				d.decides("[] []")
				d.after(1)
			}
		}},
		{"spare places have no session, and nobody waits for them", []int{0, 0, 1}, func(d *day) {
			d.l.Need(1, false)
			d.decides("[0] []")
			d.failed(0)
			d.decides("[2] []")
			d.after(time.Hour)
			d.dialled(2, Up)
			d.l.Need(1, true)
			d.decides("[0 1] []")
		}},
		{"the second one has to wait", []int{0, 1}, func(d *day) {
			d.decides("[0] []")
			d.after(headStart - 1)
			d.decides("[] []")
			d.after(1)
			d.decides("[1] []")
			d.dialled(1, Up)
			d.decides("[] []")
			d.dialled(0, Up) // late
			d.decides("[] [1]")
			d.is(1, Retired)
			d.decides("[] []")
			d.is(1, Closed)
			d.decides("[] []")
		}},
		{"one that is about to be a session is not retired yet", []int{0, 1}, func(d *day) {
			d.decides("[0] []")
			d.after(headStart)
			d.decides("[1] []")
			d.dialled(1, Dialling)
			d.dialled(0, Up)
			d.decides("[] []")
			d.is(1, Up)
			d.decides("[] [1]")
		}},
		{"the time that it has to wait is not prolonged", []int{0, 0, 1}, func(d *day) {
			d.decides("[0 1] []")
			d.after(headStart - 1)
			d.dialled(0, NoUplink)
			d.after(1)
			d.decides("[2] []")
		}},
		{"but not when the first one has failed", []int{0, 1, 2}, func(d *day) {
			d.decides("[0] []")
			d.failed(0)
			d.decides("[1] []")
			d.failed(1)
			d.decides("[2] []")
		}},
		{"nor when its uplink is down", []int{0, 1}, func(d *day) {
			d.decides("[0] []")
			d.dialled(0, NoUplink)
			d.decides("[1] []")
			d.dialled(1, Up)
			d.after(time.Hour)
			d.decides("[] []")
			d.is(0, Up) // for the first time
			d.decides("[] [1]")
		}},
		{"all without an uplink", []int{0, 1}, func(d *day) {
			d.decides("[0] []")
			d.dialled(0, NoUplink)
			d.decides("[1] []")
			d.dialled(1, NoUplink)
			d.after(time.Hour)
			d.decides("[] []")
		}},
		{"a better one is looked for", []int{0, 1}, func(d *day) {
			d.decides("[0] []")
			d.failed(0)
			d.decides("[1] []")
			d.dialled(1, Up)
			for range 10 {
				d.after(betterPause)
				d.decides("[0] []")
				d.failed(0)
			}
			d.after(betterPause - 1)
			d.decides("[] []")
			d.after(1)
			d.decides("[0] []")
			d.failed(0)
			// And at once if no other gateway can help.
			d.is(1, Silent)
			d.after(minPause)
			d.decides("[0] []")
			d.failed(0)
			d.after(headStart)
			d.decides("[0 1] []") // a replacement
		}},
		{"one that is back must last as long as it was away", []int{0, 1}, func(d *day) {
			d.decides("[0] []")
			d.dialled(0, Up)
			d.after(time.Hour)
			d.is(0, Silent)
			d.after(headStart)
			d.decides("[0 1] []")
			d.dialled(1, Up)
			d.after(time.Minute - headStart)
			d.dialled(0, Up)
			d.decides("[] []")
			d.after(30 * time.Second)
			d.is(0, Silent) // not yet
			d.after(10 * time.Second)
			d.is(0, Up)
			d.after(10*time.Second - 1)
			d.decides("[] []")
			d.after(1)
			d.decides("[] [1]")
			d.is(1, Closed)
			// It is used at once if there is no other, and one that was retired has not failed.
			d.after(time.Hour)
			d.is(0, Silent)
			d.after(headStart)
			d.decides("[0 1] []")
			d.dialled(0, Up)
			d.decides("[] []")
			d.dialled(1, Up)
			d.decides("[] []")
			d.after(headStart)
			d.decides("[] [1]")
			d.is(1, Closed)
			// After a long time away, the trial is limited.
			d.is(0, Silent)
			d.after(headStart)
			d.decides("[0 1] []")
			d.dialled(1, Up)
			d.after(24 * time.Hour)
			d.dialled(0, Up)
			d.after(maxTrial - 1)
			d.decides("[] []")
			d.after(1)
			d.decides("[] [1]")
		}},
		{"equal ones are all used", []int{0, 0, 1}, func(d *day) {
			d.decides("[0 1] []")
			d.dialled(0, Up)
			d.dialled(1, Up)
			d.decides("[] []")
			d.is(0, Closed)
			d.decides("[] []")
			d.after(minPause)
			d.decides("[0] []")
			d.failed(0)
			d.after(2 * minPause)
			d.decides("[0] []")
			// As seldom as a better one, because one is enough.
			for range 10 {
				d.failed(0)
				d.after(betterPause)
				d.decides("[0] []")
			}
			d.failed(0)
			d.after(betterPause - 1)
			d.decides("[] []")
		}},
		{"one that comes and goes is dialled less and less", []int{0}, func(d *day) {
			for _, pause := range []time.Duration{minPause, 2 * minPause, 4 * minPause, 8 * minPause} {
				d.decides("[0] []")
				d.dialled(0, Up)
				d.is(0, Retired)
				d.after(pause - 1)
				d.decides("[] []")
				d.after(1)
			}
			d.decides("[0] []")
			d.dialled(0, Up)
			d.after(maxPause + 1) // this session lasts
			d.is(0, Silent)
			d.after(minPause - 1)
			d.is(0, Closed) // was silent already
			d.decides("[] []")
			d.after(1)
			d.decides("[0] []")
		}},
		{"silence that ends", []int{0}, func(d *day) {
			d.decides("[0] []")
			d.dialled(0, Up)
			d.after(time.Minute)
			d.is(0, Silent)
			d.after(minPause)
			d.decides("[0] []")
			d.is(0, Up)
			d.failed(0)
			d.after(time.Hour)
			d.decides("[] []")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.play(newDay(t, tc.tiers...)) })
	}
}

// TestPause: relays that have lost a gateway at the same time do not dial it at the same time.
func TestPause(t *testing.T) {
	for random, pause := range map[float64]time.Duration{0: minPause * 3 / 4, 0.5: minPause, 0.75: minPause * 9 / 8} {
		d := newDay(t, 0)
		d.l.random = func() float64 { return random }
		d.decides("[0] []")
		d.failed(0)
		d.after(pause - 1)
		d.decides("[] []")
		d.after(1)
		d.decides("[0] []")
	}
}

// FuzzLineup checks that no place has two attempts at once, that no session of
// the best tier is retired, and that every wanted place is dialled eventually.
func FuzzLineup(f *testing.F) {
	f.Add(byte(3), []byte{0, 16, 1, 40, 2, 0, 17, 3, 4, 5, 0, 33, 0})
	f.Add(byte(2), []byte{1, 1, 1, 1, 17, 17, 20, 36, 52, 3})
	f.Fuzz(func(t *testing.T, n byte, events []byte) {
		if len(events) > 500 {
			t.Skip()
		}
		var tiers []int
		for i := range 1 + int(n%6) {
			tiers = append(tiers, i/2)
		}
		now := time.Unix(1e9, 0)
		random := 0.0
		l := NewLineup(now, tiers, func() float64 { return random })
		states := make([]State, len(tiers))
		dialling := make([]bool, len(tiers))
		idle := make([]time.Duration, len(tiers)) // how long a place has been wanted without an attempt
		for i := range states {
			states[i] = Closed
		}
		best := func() int {
			best := len(tiers)
			for _, on := range []bool{false, true} { // trial
				for i, s := range states {
					if s == Up && now.Before(l.places[i].trial) == on {
						best = min(best, tiers[i])
					}
				}
				if best < len(tiers) {
					break
				}
			}
			return best
		}
		decide := func(passed time.Duration) {
			dial, retire := l.Decide(now)
			for _, i := range dial {
				if dialling[i] || works(states[i]) || tiers[i] > best() {
					t.Fatalf("place %d is dialled for: it is %s", i, states[i])
				}
				dialling[i] = true
			}
			for _, i := range retire {
				if tiers[i] <= best() || states[i] == Closed {
					t.Fatalf("place %d is retired: it is %s", i, states[i])
				}
				states[i] = Closed
				l.Session(now, i, Retired)
			}
			for i := range tiers {
				switch {
				case dialling[i] || works(states[i]) || tiers[i] > best():
					idle[i] = 0
				default:
					idle[i] += passed
				}
				longest := betterPause * 5 / 4
				if best() == len(tiers) {
					longest = betterPause // it may only now have become the only one left
				}
				if idle[i] > longest+time.Duration(len(tiers))*headStart+time.Second {
					t.Fatalf("place %d was left alone for %v", i, idle[i])
				}
			}
		}
		decide(0)
		for _, e := range events {
			i := int(e>>4) % len(tiers)
			random = float64(e) / 255
			switch e % 8 {
			case 0, 1:
				if dialling[i] {
					dialling[i] = false
					l.Failed(now, i)
				}
			case 2, 3:
				if dialling[i] {
					dialling[i] = false
					states[i] = []State{Up, NoUplink}[e%2]
					l.Dialled(i)
					l.Session(now, i, states[i])
				}
			case 4, 5:
				if states[i] != Closed {
					states[i] = []State{Up, Silent, NoUplink, Closed}[e>>3%4]
					l.Session(now, i, states[i])
				}
			case 6:
				now = now.Add(Interval)
				decide(Interval)
				continue
			case 7:
				for range int(e) {
					now = now.Add(Interval)
					decide(Interval)
				}
				continue
			}
			decide(0)
		}
		if slices.Contains(states, Up) {
			return
		}
		for range int((maxPause*5/4 + headStart*6) / Interval) {
			now = now.Add(Interval)
			decide(Interval)
		}
		for i := range tiers {
			if !dialling[i] && !works(states[i]) {
				t.Fatalf("none is up, and place %d is not dialled for", i)
			}
		}
	})
}
