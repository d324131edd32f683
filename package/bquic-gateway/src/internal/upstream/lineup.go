// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

const (
	// headStart is how long the gateways of the next smaller weight wait for
	// those of the larger one.
	headStart = 500 * time.Millisecond
	// Pauses between attempts to dial a gateway. A pause doubles from minPause
	// up to maxPause while no gateway is up. While one is up, gateways of the
	// same or a better tier are dialled, with pauses up to betterPause.
	minPause    = 250 * time.Millisecond
	maxPause    = 5 * time.Second
	betterPause = 20 * time.Second
	// maxTrial limits the trial of a gateway that is back: for as long as it was away, one of a
	// smaller weight goes on. So a gateway that comes and goes does not pull new connections to and fro.
	maxTrial = 5 * time.Minute
)

// A Lineup decides which sessions there should be. Each place holds one session with a
// gateway of some tier. Tier 0 has the gateways of the largest weight. The Lineup wants
// sessions for all places of the best tier that has one Up, and of the tiers before it.
type Lineup struct {
	places []place
	random func() float64
	down   time.Time // when the last session ceased to be Up; zero: one is Up
}

type place struct {
	tier     int
	state    State     // Closed: no session
	since    time.Time // when the session began
	left     time.Time // when the place failed; zero: not since it was last Up
	trial    time.Time // the end of the trial
	dialling bool
	failed   bool // an attempt has failed since Lineup.down
	spare    bool // needs no session
	pause    time.Duration
	next     time.Time // no attempt before this time
}

// NewLineup returns a Lineup with a place for each element of tiers, which is sorted. random
// returns numbers in [0, 1) (math/rand/v2.Float64).
func NewLineup(now time.Time, tiers []int, random func() float64) *Lineup {
	l := &Lineup{random: random, down: now}
	for _, tier := range tiers {
		l.places = append(l.places, place{tier: tier, state: Closed, pause: minPause})
	}
	return l
}

// Session records the state of the session in place i; Closed if there is none. It reports whether the session is no longer Up.
func (l *Lineup) Session(now time.Time, i int, state State) (left bool) {
	p := &l.places[i]
	before := p.state
	if state == Retired || state == Dialling { // needs a replacement, or does not exist yet
		state = Closed
	}
	p.state = state
	if before == Closed {
		p.since = now
	}
	best := l.best(now)
	switch {
	case state == Up && !p.left.IsZero():
		p.trial = now.Add(min(now.Sub(p.left), maxTrial))
		p.left = time.Time{}
	case before == Up && (best < 0 || p.tier <= best): // not retired
		p.left = now
	}
	if works(before) && !works(state) {
		if now.Sub(p.since) > maxPause {
			p.pause = minPause
		}
		l.wait(now, p)
	}
	switch {
	case best >= 0:
		l.down = time.Time{}
	case l.down.IsZero():
		l.down = now
		for j := range l.places {
			q := &l.places[j]
			q.failed = false
			soon := maxPause
			if j != i { // the other places are needed now
				soon = minPause
			}
			q.pause = min(q.pause, soon)
			q.next = earlier(q.next, now.Add(soon))
		}
	}
	return before == Up && state != Up
}

// works reports whether a session in state s needs no replacement.
func works(s State) bool { return s == Up || s == NoUplink }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Need records whether place i needs a session. At first, all do.
func (l *Lineup) Need(i int, needed bool) { l.places[i].spare = !needed }

// Failed records that the attempt to dial for place i has failed.
func (l *Lineup) Failed(now time.Time, i int) {
	p := &l.places[i]
	p.dialling = false
	p.failed = true
	l.wait(now, p)
}

// Renew reports whether an attempt for place i may begin although its session is Up, and counts it as begun.
func (l *Lineup) Renew(i int) bool {
	begin := !l.places[i].dialling
	l.places[i].dialling = true
	return begin
}

// Dialled records that the attempt has made a session, whose state Session reports.
func (l *Lineup) Dialled(i int) { l.places[i].dialling = false }

// wait delays the next attempt, and increases the pause for the one after it.
func (l *Lineup) wait(now time.Time, p *place) {
	p.next = now.Add(time.Duration(float64(p.pause) * (0.75 + l.random()/2)))
	longest := maxPause
	if l.down.IsZero() {
		longest = betterPause
	}
	p.pause = min(2*p.pause, longest)
}

// Best returns the best tier with a place for which up is true; -1: none. Places on trial count if there is no other.
func (l *Lineup) Best(now time.Time, up func(i int) bool) int {
	best, trial := -1, false
	for i, p := range l.places {
		if on := now.Before(p.trial); up(i) && (best < 0 || trial && !on || trial == on && p.tier < best) {
			best, trial = p.tier, on
		}
	}
	return best
}

// best returns the tier that takes new connections; -1: none.
func (l *Lineup) best(now time.Time) int {
	return l.Best(now, func(i int) bool { return l.places[i].state == Up })
}

// Decide returns the places to dial for, and the places whose session to retire. It
// counts these attempts as begun.
func (l *Lineup) Decide(now time.Time) (dial, retire []int) {
	last := l.best(now)
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
		if p.tier <= last && !p.spare && !works(p.state) && !p.dialling && !now.Before(p.next) {
			p.dialling = true
			dial = append(dial, i)
		}
	}
	return dial, retire
}

// reach returns the last tier to dial while no session is Up.
func (l *Lineup) reach(now time.Time) int {
	lowest := 0
	for _, p := range l.places {
		lowest = max(lowest, p.tier)
	}
	reach := int(now.Sub(l.down) / headStart)
	for reach < lowest && !l.mayConnect(reach) {
		reach++
	}
	return reach
}

// mayConnect reports whether a place in a tier up to this one may still get a session
// on its first attempt.
func (l *Lineup) mayConnect(tier int) bool {
	for _, p := range l.places {
		if p.tier <= tier && !p.spare && p.state != NoUplink && !p.failed {
			return true
		}
	}
	return false
}
