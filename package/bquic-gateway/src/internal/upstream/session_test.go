// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"strings"
	"testing"
	"time"
)

// A life plays a session's events, and records the resulting actions.
type life struct {
	t       *testing.T
	s       *Session
	now     time.Time
	packets uint64
	pto     time.Duration
	starved bool     // this process waits for the processor
	cut     bool     // nothing can be reached without the gateway, either
	slow    bool     // it takes long to find that out
	reached int      // how often it was to be found out
	did     []string // "ping", "probe", "close", in order
}

func newLife(t *testing.T) *life {
	now := time.Unix(1e9, 0)
	return &life{t: t, s: NewSession(now), now: now, pto: 50 * time.Millisecond}
}

func (l *life) do(do Do) {
	for i, name := range []string{"ping", "probe", "close"} {
		if do&(1<<i) != 0 {
			l.did = append(l.did, name)
		}
	}
	if do&Reach == 0 {
		return
	}
	if l.reached++; !l.slow {
		l.s.Reached(!l.cut)
	}
}

// hear lets a packet arrive.
func (l *life) hear() {
	l.packets++
	l.do(l.s.Heard(l.now, l.packets))
}

// quiet lets time pass with ticks but without packets.
func (l *life) quiet(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); {
		l.stall(Interval)
	}
}

// idle lets time pass with nothing but answers to QUIC's own PINGs.
func (l *life) idle(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); l.quiet(IdleAfter / 2) {
		l.hear()
	}
}

// busy lets time pass with a packet before each tick.
func (l *life) busy(d time.Duration) {
	for end := l.now.Add(d); l.now.Before(end); {
		l.now = l.now.Add(Interval)
		l.hear()
		l.do(l.s.Tick(l.now, l.pto, l.starved))
	}
}

// stall stops the process for a while.
func (l *life) stall(d time.Duration) {
	l.now = l.now.Add(d)
	l.do(l.s.Heard(l.now, l.packets))
	l.do(l.s.Tick(l.now, l.pto, l.starved))
}

func (l *life) answered(q Question, a Answer) {
	l.hear()
	l.do(l.s.Answered(l.now, q, a, a.reason()))
}

func (a Answer) reason() string { return [...]string{"", "its uplink", "its token"}[a] }

// up answers the first probe.
func (l *life) up() { l.answered(Uplink, Fine) }

func TestSession(t *testing.T) {
	second := time.Second
	for _, tc := range []struct {
		name   string
		play   func(*life)
		state  State
		reason string
		did    string // all actions; "ping*": one or more
	}{
		{"a probe is answered", func(l *life) { l.up() }, Up, "", ""},
		{"a probe is refused", func(l *life) { l.answered(Uplink, Denied) }, Closed, "its token", "close"},
		{"a probe is not answered", func(l *life) { l.quiet(2 * second); l.do(l.s.Unanswered(Uplink)) }, Closed, Silence, "close"},
		{"an uplink is down from the start", func(l *life) { l.answered(Uplink, UplinkDown) }, NoUplink, "its uplink", ""},
		{"idle", func(l *life) { l.up(); l.idle(time.Hour) }, Up, "", ""},
		{"idle, and away", func(l *life) { l.up(); l.quiet(IdleAfter + CloseAfter + second) }, Closed, Silence, "ping*close"},
		{"busy, and heard of", func(l *life) { l.up(); l.s.Opened(l.now); l.busy(maxUplinkPause - Interval) }, Up, "", ""},
		{"a connection begins after a rest", func(l *life) { l.up(); l.idle(time.Hour); l.s.Opened(l.now); l.busy(second) }, Up, "", ""},
		{"new ones tell that there is an uplink", func(l *life) {
			l.up()
			for range 10 {
				l.s.Opened(l.now)
				l.busy(maxUplinkPause - Interval)
			}
		}, Up, "", ""},
		{"an answer tells so, too", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.busy(second)
			l.answered(Carry, Fine)
			l.busy(maxUplinkPause - Interval)
		}, Up, "", ""},
		{"without new ones, it is asked", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			for range 2 {
				l.busy(maxUplinkPause)
				l.answered(Uplink, Fine)
			}
		}, Up, "", "probe probe"},
		{"and says that it has none", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.busy(maxUplinkPause)
			l.answered(Uplink, UplinkDown)
		}, NoUplink, "its uplink", "probe"},
		{"idle, then busy, and silent", func(l *life) {
			l.up()
			l.idle(time.Minute)
			l.s.Opened(l.now)
			l.quiet(5 * Interval)
		}, Silent, Silence, "ping*"},
		{"starved", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.starved = true
			l.quiet(CloseAfter - second)
			l.hear()
			l.quiet(CloseAfter - second)
		}, Up, "", "ping*"},
		{"starved, and the gateway away", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.starved = true
			l.quiet(AskAfter + CloseAfter + SilentAfter + second)
		}, Silent, Silence, "ping*"},
		{"starved while nothing was asked, and then, too", func(l *life) {
			l.up()
			l.starved = true
			l.quiet(CloseAfter + second)
			l.s.Opened(l.now)
			l.quiet(CloseAfter - second)
		}, Up, "", "ping*"},
		{"starved while the answer to a probe is waited for", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.do(l.s.Unanswered(Carry))
			l.starved = true
			l.busy(2 * second)
			l.do(l.s.Unanswered(Uplink))
			l.starved = false
			l.answered(Uplink, Fine)
		}, Up, "", "probe probe"},
		{"one that ends does not stop the questions", func(l *life) {
			l.up()
			l.idle(time.Minute)
			l.s.Opened(l.now)
			l.quiet(Interval)
			l.do(l.s.Ended())
			l.quiet(4 * Interval)
		}, Silent, Silence, "ping*"},
		{"a long path may take its time", func(l *life) {
			l.up()
			l.pto = second
			l.s.Opened(l.now)
			l.quiet(3 * second)
		}, Up, "", "ping*"},
		{"and is silent at last", func(l *life) {
			l.up()
			l.pto = second
			l.s.Opened(l.now)
			l.quiet(5 * second)
		}, Silent, Silence, "ping*"},
		{"silent, and carrying: closed", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(AskAfter + SilentAfter + CloseAfter)
		}, Closed, Silence, "ping*close"},
		{"silent, and carrying, but nothing is reached without it: kept", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.cut = true
			l.quiet(time.Hour)
		}, Silent, Silence, "ping*"},
		{"until something is", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.cut = true
			l.quiet(time.Minute)
			l.cut = false
			l.quiet(AskAfter + CloseAfter)
		}, Closed, Silence, "ping*close"},
		{"or it answers", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.cut = true
			l.quiet(time.Minute)
			l.cut = false
			l.quiet(CloseAfter - second)
			l.answered(Uplink, Fine)
			l.quiet(CloseAfter)
		}, Silent, Silence, "ping*probe ping*"},
		{"what was found out late does not count", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.cut = true
			l.quiet(time.Minute)
			l.s.reaching = true
			l.answered(Uplink, Fine)
			l.s.Reached(true)
			l.quiet(time.Minute)
		}, Silent, Silence, "ping*probe ping*"},
		{"a silent one that carries nothing any more is closed, too", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.do(l.s.Ended())
			l.quiet(CloseAfter)
		}, Closed, Silence, "ping*close"},
		{"also if it could not be asked", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.do(l.s.Ended())
			l.hear()
			l.do(l.s.Unasked())
			l.quiet(AskAfter + CloseAfter)
		}, Closed, Silence, "ping*probe ping*close"},
		{"packets alone do not end silence", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.hear()
			l.busy(second)
		}, Silent, Silence, "ping*probe"},
		{"an answer does", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.answered(Uplink, Fine)
		}, Up, "", "ping*probe"},
		{"also one to a connection", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.answered(Carry, Fine)
		}, Up, "", "ping*probe"},
		{"small packets arrive, and no answer", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.busy(2 * second)
			l.do(l.s.Unanswered(Uplink))
		}, Retired, NoAnswers, "ping*probe probe"},
		{"silent again while a probe is under way", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(3 * second)
			l.hear()
			l.quiet(2 * second)
			l.do(l.s.Unanswered(Uplink))
		}, Silent, Silence, "ping*probe ping*"},
		{"a slow target", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.busy(2 * second)
			l.do(l.s.Unanswered(Carry))
			l.do(l.s.Unanswered(Carry))
			l.answered(Uplink, Fine)
			l.do(l.s.Ended())
		}, Up, "", "probe"},
		{"the answer to another is not that to a probe", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.do(l.s.Unanswered(Carry))
			l.answered(Carry, Fine)
			l.do(l.s.Unanswered(Carry))
		}, Up, "", "probe"},
		{"one that has ended was not answered, and the probe is not", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.do(l.s.Unanswered(Carry))
			l.do(l.s.Ended())
			l.quiet(AskAfter + SilentAfter)
		}, Silent, Silence, "probe ping*"},
		{"no connection is answered, though packets arrive", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.busy(2 * second)
			l.do(l.s.Unanswered(Carry))
			l.busy(2 * second)
			l.do(l.s.Unanswered(Uplink))
		}, Retired, NoAnswers, "probe probe"},
		{"the first connection that is not answered tells, also on a long path", func(l *life) {
			l.up()
			l.idle(time.Minute)
			l.pto = second
			l.s.Opened(l.now)
			l.quiet(1500 * time.Millisecond)
			l.do(l.s.Unanswered(Carry))
		}, Silent, Silence, "ping*"},
		{"a process that did not run has heard nobody", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(AskAfter)
			for range 3 {
				l.stall(20 * second)
			}
		}, Up, "", "ping*probe ping*"},
		{"and blames no gateway for an answer that waits", func(l *life) {
			l.up()
			l.idle(time.Minute)
			l.s.Opened(l.now)
			l.stall(10 * second)
			l.do(l.s.Unanswered(Carry))
			l.stall(10 * second)
			l.do(l.s.Unanswered(Uplink))
			l.answered(Uplink, Fine)
		}, Up, "", "ping*probe ping*probe"},
		{"a process that runs seldom finds a silent gateway in the end", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			for range 50 {
				l.stall(3 * second)
			}
		}, Closed, Silence, "ping*close"},
		{"one that was stopped catches up with its ticks", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(AskAfter)
			for range 100 {
				l.stall(time.Millisecond)
			}
		}, Up, "", "ping*"},
		{"a clock that goes back, and the gateway away", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(AskAfter)
			l.stall(-time.Hour)
			l.quiet(SilentAfter)
		}, Silent, Silence, "ping*"},
		{"a clock that goes back", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(AskAfter)
			l.stall(-time.Hour)
			l.busy(second)
		}, Up, "", "ping*"},
		{"a target that is refused", func(l *life) { l.up(); l.s.Opened(l.now); l.answered(Carry, Fine); l.do(l.s.Ended()) }, Up, "", ""},
		{"a connection is denied", func(l *life) { l.up(); l.s.Opened(l.now); l.answered(Carry, Denied) }, Retired, "its token", "probe"},
		{"and ends", func(l *life) { l.up(); l.s.Opened(l.now); l.answered(Carry, Denied); l.do(l.s.Ended()) }, Closed, "its token", "probe close"},
		{"a connection learns that the uplink is down", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.answered(Carry, UplinkDown)
			l.do(l.s.Ended())
			l.quiet(minUplinkPause - Interval)
		}, NoUplink, "its uplink", ""},
		{"which is asked again", func(l *life) {
			l.up()
			l.answered(Carry, UplinkDown)
			l.quiet(minUplinkPause)
			l.answered(Uplink, UplinkDown)
			l.quiet(minUplinkPause)
			l.quiet(minUplinkPause)
		}, NoUplink, "its uplink", "probe probe"},
		{"again and again, but seldom", func(l *life) {
			l.up()
			l.answered(Carry, UplinkDown)
			for end := l.now.Add(5 * time.Minute); l.now.Before(end); {
				if l.quiet(Interval); len(l.did) > 0 && l.s.probing {
					l.do(l.s.Answered(l.now, Uplink, UplinkDown, "still down"))
				}
				l.hear()
			}
		}, NoUplink, "still down", "probe probe probe probe probe probe probe probe probe probe probe probe probe"}, // after 2, 6, 14, 30, 60, 90 … seconds
		{"and answers nothing any more", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.answered(Carry, UplinkDown)
			l.do(l.s.Unanswered(Carry))
		}, NoUplink, "its uplink", "probe"},
		{"and is back", func(l *life) {
			l.up()
			l.answered(Carry, UplinkDown)
			l.quiet(minUplinkPause)
			l.answered(Uplink, Fine)
		}, Up, "", "probe"},
		{"one that was asked before it failed does not bring it back", func(l *life) { l.up(); l.answered(Carry, UplinkDown); l.answered(Carry, Fine) }, NoUplink, "its uplink", ""},
		{"a gateway without an uplink, gone", func(l *life) {
			l.up()
			l.answered(Carry, UplinkDown)
			l.quiet(minUplinkPause)
			l.quiet(2 * second)
			l.do(l.s.Unanswered(Uplink))
			l.quiet(CloseAfter)
		}, Closed, Silence, "probe ping*close"},
		{"retired while idle", func(l *life) { l.up(); l.do(l.s.Retire("another")) }, Closed, "another", "close"},
		{"retired while busy", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.do(l.s.Retire("another"))
			l.do(l.s.Retire("yet another"))
			l.busy(time.Hour)
			l.answered(Uplink, Fine)
			l.do(l.s.Unanswered(Carry))
		}, Retired, "another", "probe"},
		{"retired, and its probe is not answered", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.do(l.s.Retire("another"))
			l.do(l.s.Unanswered(Uplink))
			l.quiet(3 * second)
		}, Retired, "another", "probe ping*"},
		{"retired, and silent", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.do(l.s.Retire("another"))
			l.quiet(AskAfter + SilentAfter + CloseAfter)
		}, Closed, Silence, "probe ping*close"},
		{"retired while silent", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.quiet(5 * second)
			l.do(l.s.Retire("another"))
			l.quiet(AskAfter + SilentAfter + CloseAfter - 5*second)
		}, Closed, Silence, "ping*probe ping*close"},
		{"retired, and one of two is done", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.s.Opened(l.now)
			l.do(l.s.Retire("another"))
			l.do(l.s.Ended())
		}, Retired, "another", "probe"},
		{"retired, and done", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.s.Opened(l.now)
			l.do(l.s.Retire("another"))
			l.do(l.s.Ended())
			l.do(l.s.Ended())
		}, Closed, "another", "probe close"},
		{"no stream for a probe", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.busy(second)
			l.do(l.s.Unanswered(Carry))
			l.do(l.s.Unasked())
			l.busy(second)
			l.do(l.s.Unanswered(Carry))
		}, Up, "", "probe probe"},
		{"no stream for the first probe", func(l *life) { l.do(l.s.Unasked()) }, Closed, NoAnswers, "close"},
		{"gone", func(l *life) {
			l.up()
			l.s.Opened(l.now)
			l.s.Gone("reset")
			l.quiet(time.Minute)
			l.do(l.s.Unanswered(Carry))
			l.do(l.s.Unanswered(Uplink))
			l.answered(Uplink, Fine)
			l.do(l.s.Retire("another"))
			l.do(l.s.Ended())
			l.s.Gone("again")
		}, Closed, "reset", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLife(t)
			tc.play(l)
			did := strings.Join(l.did, " ")
			for strings.Contains(did, "ping ping") {
				did = strings.ReplaceAll(did, "ping ping", "ping")
			}
			did = strings.TrimSuffix(strings.ReplaceAll(did+" ", "ping ", "ping*"), " ")
			if l.s.State() != tc.state || l.s.Reason() != tc.reason || did != tc.did {
				t.Errorf("%s (%q), asked for %q; not %s (%q), %q", l.s.State(), l.s.Reason(), did, tc.state, tc.reason, tc.did)
			}
		})
	}
}

// TestReach: whether targets are reached without a gateway is found out while something is carried and the gateway
// does not answer, once at a time, and once a second.
func TestReach(t *testing.T) {
	l := newLife(t)
	l.up()
	l.s.Opened(l.now)
	l.cut = true
	for _, step := range []struct {
		what        string
		do          func()
		least, most int
	}{
		{"it is heard of", func() { l.busy(time.Minute) }, 0, 0},
		{"it is asked, and answers", func() { l.quiet(AskAfter + SilentAfter/2); l.hear() }, 0, 0},
		{"it does not answer", func() { l.quiet(10 * time.Second) }, 7, 10},
		{"finding out takes long", func() { l.slow = true; l.quiet(time.Minute) }, 1, 1},
		{"nothing is carried", func() {
			l.s.Reached(false)
			l.answered(Uplink, Fine)
			l.do(l.s.Ended())
			l.quiet(IdleAfter + CloseAfter/2)
		}, 0, 0},
	} {
		l.reached = 0
		if step.do(); l.reached < step.least || l.reached > step.most {
			t.Errorf("%s: %d times", step.what, l.reached)
		}
	}
}

// TestLost: while the gateway has no uplink, connections that wait for an answer are lost if their targets can be reached without it. That holds
// for what a session carries after another one has replaced it, too.
func TestLost(t *testing.T) {
	for _, retired := range []bool{false, true} {
		l := newLife(t)
		l.up()
		l.s.Opened(l.now)
		if retired {
			l.do(l.s.Retire("another"))
		} else {
			l.answered(Carry, UplinkDown)
		}
		asked := func(d time.Duration, a Answer) { // answers all probes
			for end := l.now.Add(d); l.now.Before(end); l.busy(Interval) {
				if l.s.probing {
					l.answered(Uplink, a)
				}
			}
		}
		for _, step := range []struct {
			what    string
			do      func()
			reached bool // it was to be found out
			cut     bool
			lost    bool
		}{
			{"the uplink has just failed", func() { asked(lostAfter-Interval, UplinkDown) }, false, true, false},
			{"nothing can be reached", func() { l.cut = true; asked(2*maxUplinkPause, UplinkDown) }, true, true, false},
			{"another exit works", func() { l.cut = false; asked(2*maxUplinkPause, UplinkDown) }, true, true, true},
			{"the uplink is back", func() { asked(2*maxUplinkPause, Fine) }, false, false, false},
			{"it fails again", func() { l.answered(Carry, UplinkDown); asked(lostAfter-Interval, UplinkDown) }, false, true, false},
			{"nothing is carried", func() { l.do(l.s.Ended()); asked(2*maxUplinkPause, UplinkDown) }, false, !retired, false},
		} {
			l.reached = 0
			if step.do(); l.reached > 0 != step.reached || l.s.Cut() != step.cut || l.s.Lost() != step.lost {
				t.Errorf("%s, retired %v: asked %d times, cut %v, lost %v", step.what, retired, l.reached, l.s.Cut(), l.s.Lost())
			}
		}
	}
}

func TestSound(t *testing.T) {
	l := newLife(t)
	for i, step := range []struct {
		do   func()
		want bool
	}{
		{func() {}, false},
		{l.up, true},
		{func() { l.do(l.s.Unanswered(Carry)) }, false},
		{func() { l.answered(Uplink, Fine) }, true},
		{func() { l.answered(Carry, UplinkDown) }, false},
	} {
		if step.do(); l.s.Sound() != step.want {
			t.Errorf("step %d: %s", i, l.s.State())
		}
	}
}

// FuzzSession plays any events and checks the invariants. Once the gateway is gone and its targets can
// be reached without it, a session with connections must end. Once the gateway answers, a session
// must be Up again, unless it is Retired or Closed.
func FuzzSession(f *testing.F) {
	f.Add([]byte{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, true)
	f.Add([]byte{8, 1, 4, 9, 0, 0, 0, 6, 2, 0, 0, 0}, false)
	f.Add([]byte{8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 6, 7, 13, 0, 0, 5, 0}, false)
	f.Add([]byte{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 11, 8, 12}, true)
	f.Fuzz(func(t *testing.T, events []byte, silent bool) {
		if len(events) > 1000 {
			t.Skip()
		}
		l := newLife(t)
		streams, probing, closes := 0, true, 0
		unheard := time.Duration(0) // while the process ran, connections were carried, and the path was not cut
		check := func(do Do, idle bool) {
			t.Helper()
			if do&Probe != 0 {
				if probing {
					t.Fatal("a probe while one is under way")
				}
				probing = true
			}
			if do&Close != 0 {
				closes++
			}
			if do&Reach != 0 {
				l.s.Reached(!l.cut)
			}
			if closes > 1 || do&^Close != 0 && l.s.State() == Closed {
				t.Fatal("a closed session asks for something")
			}
			if closes > 0 && l.s.State() != Closed {
				t.Fatalf("a closed session is %s", l.s.State())
			}
			if idle && do != 0 {
				t.Fatalf("an idle session that is Up asks for %03b", do)
			}
			if l.s.State() == Retired && l.s.Streams() == 0 {
				t.Fatal("retired, and carries nothing")
			}
			if (l.s.State() == Up) != (l.s.Reason() == "") && l.s.State() != Dialling {
				t.Fatalf("%s for the reason %q", l.s.State(), l.s.Reason())
			}
		}
		tick := func(d time.Duration) {
			t.Helper()
			l.now = l.now.Add(d)
			idle := l.s.State() == Up && streams == 0 && !probing && !l.s.asked && l.now.Sub(l.s.heard) < IdleAfter
			check(l.s.Tick(l.now, l.pto, l.starved), idle)
			switch {
			case streams == 0 || l.s.State() == Dialling || l.s.State() == Closed:
				unheard = 0
			case !l.cut:
				unheard += min(d, Interval)
			}
			if unheard > 2*AskAfter+SilentAfter+CloseAfter+3*Interval {
				t.Fatalf("%s, carries something, and heard nothing for %v", l.s.State(), unheard)
			}
		}
		hear := func() {
			l.packets++
			unheard = 0
			check(l.s.Heard(l.now, l.packets), false)
		}
		answered := func(q Question, a Answer) {
			if q == Uplink && !probing || q == Carry && streams == 0 {
				return
			}
			hear()
			if q == Uplink {
				probing = false
			}
			check(l.s.Answered(l.now, q, a, a.reason()), false)
		}
		for _, e := range events {
			switch e % 16 {
			case 0:
				tick(Interval)
			case 1:
				if s := l.s.State(); s == Up || s == NoUplink {
					streams++
					l.s.Opened(l.now)
				}
			case 2:
				if streams > 0 {
					streams--
					check(l.s.Ended(), false)
				}
			case 3:
				hear()
			case 4:
				if streams > 0 {
					check(l.s.Unanswered(Carry), false)
				}
			case 5:
				if probing {
					probing = false
					check(l.s.Unanswered(Uplink), false)
				}
			case 6:
				tick(time.Duration(e) * Interval)
			case 7:
				check(l.s.Retire("another"), false)
			case 8:
				answered(Uplink, Fine)
			case 9:
				answered(Uplink, UplinkDown)
			case 10:
				answered(Uplink, Denied)
			case 11:
				answered(Carry, Fine)
			case 12:
				answered(Carry, UplinkDown)
			case 13:
				answered(Carry, Denied)
			case 14:
				if probing {
					probing = false
					check(l.s.Unasked(), false)
				}
			case 15:
				l.cut = !l.cut
			}
		}
		// From here on, the gateway is gone or answers every question.
		l.cut = false
		for range int((maxUplinkPause + CloseAfter + AskAfter) / Interval * 2) {
			if probing && silent {
				for range 6 {
					tick(Interval)
				}
				probing = false
				check(l.s.Unanswered(Uplink), false)
			}
			if !silent {
				hear()
				answered(Uplink, Fine)
			}
			tick(Interval)
		}
		switch state := l.s.State(); {
		case silent && streams > 0 && state != Closed:
			t.Fatalf("%s at the end, the gateway being gone", state)
		case silent && state != Closed && state != Up:
			t.Fatalf("%s at the end, the gateway being gone", state)
		case !silent && state != Up && state != Retired && state != Closed:
			t.Fatalf("%s at the end, though the gateway answers", state)
		}
		for ; streams > 0; streams-- {
			check(l.s.Ended(), false)
		}
		if state := l.s.State(); state != Up && state != Closed {
			t.Fatalf("%s after the last that it carried", state)
		}
	})
}

// TestResting checks when a session needs fewer ticks: not while it carries something, or waits for something.
func TestResting(t *testing.T) {
	l := newLife(t)
	rests := func(want bool, when string) {
		t.Helper()
		if l.s.Resting() != want {
			t.Errorf("%s: resting %t", when, !want)
		}
	}
	rests(false, "while it is being dialled")
	l.hear()
	l.answered(Uplink, Fine)
	rests(true, "idle")
	l.s.Opened(l.now)
	rests(false, "with a connection")
	l.do(l.s.Ended())
	rests(true, "after its last connection")
	l.quiet(IdleAfter)
	rests(false, "while a PING is not acknowledged")
	l.hear()
	rests(true, "after the acknowledgement")
	l.do(l.s.Unanswered(Carry))
	rests(false, "while it is probed")
}
