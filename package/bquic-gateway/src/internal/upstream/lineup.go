// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

const (
	// HeadStart is how long the gateways of the next weight wait for those of
	// the one before.
	HeadStart = 500 * time.Millisecond
	// While no gateway is up, each is dialled again within MaxPause; while one
	// is, those that are as good or better within BetterPause.
	MinPause    = 250 * time.Millisecond
	MaxPause    = 5 * time.Second
	BetterPause = 20 * time.Second
)

// A Lineup decides which sessions there should be. Each place is for one, with a
// gateway of some tier: 0 is that of the largest weight. All places of the best
// tier with a session that is Up are wanted, and those of the tiers before it.
type Lineup struct {
	places []place
	random func() float64
	down   time.Time // since when none is Up; zero: one is
}

type place struct {
	tier     int
	state    State     // Closed: without a session
	since    time.Time // when it got its session
	dialling bool
	failed   bool // an attempt, since Lineup.down
	pause    time.Duration
	next     time.Time // no attempt before
}

// NewLineup has a place for each element of tiers. random returns numbers from 0
// to 1 (math/rand/v2.Float64).
func NewLineup(now time.Time, tiers []int, random func() float64) *Lineup {
	l := &Lineup{random: random, down: now}
	for _, tier := range tiers {
		l.places = append(l.places, place{tier: tier, state: Closed, pause: MinPause})
	}
	return l
}

// Session notes the state of the session in place i; it is Closed without one.
func (l *Lineup) Session(now time.Time, i int, state State) {
	p := &l.places[i]
	before := p.state
	if state == Retired || state == Dialling { // is replaced, or not there yet
		state = Closed
	}
	if p.state = state; state == before {
		return
	}
	if before == Closed {
		p.since = now
	}
	if works(before) && !works(state) {
		if now.Sub(p.since) > MaxPause {
			p.pause = MinPause
		}
		l.wait(now, p)
	}
	switch up := l.best() >= 0; {
	case up:
		l.down = time.Time{}
	case l.down.IsZero():
		l.down = now
		for j := range l.places {
			q := &l.places[j]
			q.failed = false
			soon := MaxPause
			if j != i { // they matter now
				soon = MinPause
			}
			q.pause = min(q.pause, soon)
			q.next = earlier(q.next, now.Add(soon))
		}
	}
}

// works: there is no need for another session.
func works(s State) bool { return s == Up || s == NoUplink }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Failed notes that the attempt to dial for place i has ended without a session.
func (l *Lineup) Failed(now time.Time, i int) {
	p := &l.places[i]
	p.dialling = false
	p.failed = true
	l.wait(now, p)
}

// Dialled notes that the attempt has made a session, which Session tells of.
func (l *Lineup) Dialled(now time.Time, i int) {
	l.places[i].dialling = false
	l.places[i].since = now
}

// wait has the next attempt wait, and the one after that longer.
func (l *Lineup) wait(now time.Time, p *place) {
	p.next = now.Add(time.Duration(float64(p.pause) * (0.75 + l.random()/2)))
	longest := MaxPause
	if l.down.IsZero() {
		longest = BetterPause
	}
	p.pause = min(2*p.pause, longest)
}

// best returns the tier that takes new connections; -1: none.
func (l *Lineup) best() int {
	best := -1
	for _, p := range l.places {
		if p.state == Up && (best < 0 || p.tier < best) {
			best = p.tier
		}
	}
	return best
}

// Decide returns the places to dial for, which counts as done, and those whose
// session is to be retired.
func (l *Lineup) Decide(now time.Time) (dial, retire []int) {
	last := l.best()
	if last < 0 {
		last = l.reach(now)
	} else {
		for i, p := range l.places {
			if p.tier > last && p.state != Closed {
				retire = append(retire, i)
			}
		}
	}
	for i := range l.places {
		p := &l.places[i]
		if p.tier <= last && !works(p.state) && !p.dialling && !now.Before(p.next) {
			p.dialling = true
			dial = append(dial, i)
		}
	}
	return dial, retire
}

// reach returns the last tier that is dialled now, as none is up.
func (l *Lineup) reach(now time.Time) int {
	lowest := 0
	for _, p := range l.places {
		lowest = max(lowest, p.tier)
	}
	reach := min(lowest, int(now.Sub(l.down)/HeadStart))
	for reach < lowest && !l.hope(reach) {
		reach++
	}
	return reach
}

// hope says that a place of the tiers up to this one may still get a session
// in its first attempt.
func (l *Lineup) hope(tier int) bool {
	for _, p := range l.places {
		if p.tier <= tier && p.state != NoUplink && !p.failed {
			return true
		}
	}
	return false
}
