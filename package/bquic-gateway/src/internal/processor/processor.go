// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

const (
	// Interval is how often Tick is to be called.
	Interval = 250 * time.Millisecond
	// RehearsalTime is how long a rehearsal lasts: several periods of a cgroup's
	// quota, which are 100 ms by default (Documentation/scheduler/sched-bwc.rst).
	RehearsalTime = 500 * time.Millisecond
	// BitePause is what a rehearsal sleeps after each Bite.
	BitePause = 5 * time.Millisecond

	// AssumedPath is the rate of a path that has not shown one, in bytes a second:
	// more than TCP gets over a hop of 802.11n or Fast Ethernet, so a processor
	// that carries less waits until it has seen what it would slow down.
	AssumedPath = 100e6 / 8

	// To begin, the share that may be used has to be that much larger than what carrying
	// all of the path would take; to go on, as large.
	enterMargin = 1.15
	// What the process can get is a limit that nothing goes beyond, and a processor that is
	// just fast enough has a queue: to begin, the process has to get enterSlack of what is
	// needed; to go on, staySlack. A rehearsal asks for rehearsalMargin of that, and for no more:
	// what it takes, what is carried meanwhile goes without.
	enterSlack      = 1.5
	staySlack       = 1.2
	rehearsalMargin = 1.07

	// A path has shown its rate when this many intervals in a row were within
	// plateauDepth of the greatest of them, in packets that are bulk's: a call or a
	// routing protocol is as even, but is not all that the path can do. The rate is that of
	// all of them together, as what one is short of may have been counted in the next.
	plateau      = 4
	plateauDepth = 0.7
	bulkPacket   = 1000 // bytes, at least, on average
	bulkRate     = 1e6 / 8
	// pathAge is how long the greatest rate counts alone, and again as long beside
	// those that came after it.
	pathAge = time.Hour

	// What was measured at the start counts as much as this many carried bytes, and
	// those that are older than a few times costMemory count for nothing.
	startWeight = 1 << 20
	costMemory  = 16 << 20
	// costFloor is what an interval must have carried to tell the cost of a byte:
	// less says what an idle process costs.
	costFloor = 32 << 10

	// What a rehearsal has proved is good for ProofAge. A tick that comes late by
	// more than lateness casts doubt on it, which is resolved at most each doubtPause.
	ProofAge   = time.Minute
	lateness   = 20 * time.Millisecond
	doubtPause = 10 * time.Second

	// After it was too slow, a processor is not tried again for MinPause, then twice
	// that, up to MaxPause. It starts over once it has been fast enough for calm.
	MinPause = time.Second
	MaxPause = 2 * time.Minute
	calm     = 10 * time.Minute

	// What speaks against taking all does so when it is true for this many ticks: a
	// path needs plateau of them to show its rate.
	persistent = plateau + 2

	// smoothing is the weight of an interval in the share that is used.
	smoothing = 0.25
)

// Takes is which new connections and flows are worth carrying.
type Takes uint8

const (
	// Nothing: the processor has no time, or has not shown that it has.
	Nothing Takes = iota
	// Small: it has time, but large transfers would be faster without it. Of TCP it
	// cannot be known before what is large.
	Small
	// All: it carries whatever the path does.
	All
)

func (t Takes) String() string { return [...]string{"nothing", "small", "all"}[t] }

// A Sample is what had been counted at a time. Counters may begin anew.
type Sample struct {
	CPU     time.Duration // of this process
	Carried uint64        // bytes, in both directions
	Other   uint64        // bytes that this process moved otherwise, which cost less
	Path    Traffic       // of the devices that lead to the world
}

// Traffic is what devices have received and sent.
type Traffic struct{ In, Out Count }

// A Count is of one direction.
type Count struct{ Bytes, Packets uint64 }

// since returns what was counted after was. If the counters began anew, it is nothing.
func (c Count) since(was Count) Count {
	if c.Bytes < was.Bytes || c.Packets < was.Packets {
		return Count{}
	}
	return Count{c.Bytes - was.Bytes, c.Packets - was.Packets}
}

// bulk says that the packets are large ones.
func (c Count) bulk() bool { return c.Packets > 0 && c.Bytes/c.Packets >= bulkPacket }

// A Processor is what is known of the processor and the path. It takes a
// connection only if it could carry all that the path can: then it makes no
// difference how large the connection is, nor how many there are.
type Processor struct {
	share float64 // of one processor, that may be used
	takes Takes
	busy  bool // why not All: no time, though it would be fast enough

	ticked time.Time
	last   Sample
	late   bool
	used   float64 // share of one processor
	over   int     // ticks since used was within share
	slow   int     // ticks since the path was not faster

	// Cost is time over bytes.
	time, bytes float64

	recent      [plateau]moved // in the last intervals
	turn        int
	rate, older float64 // greatest shown within pathAge, and before it; 0: none
	rated       time.Time

	rehearsing   bool
	rehearsedNow bool      // since the last tick: what was used is not for what was carried
	rehearsed    time.Time // when the last began
	got          float64   // share that the last rehearsal got; Inf: all that it asked for

	since time.Time // of takes
	pause time.Duration
	again time.Time // not before
}

// New returns a processor of which share, of one, may be used, and of which carrying
// bytes takes cost, as measured at the start. With a share of 0 it takes all, whatever
// that costs.
func New(now time.Time, share float64, cost time.Duration, bytes int) *Processor {
	return &Processor{
		share: share,
		time:  max(cost.Seconds(), 1e-12) / float64(max(bytes, 1)) * startWeight,
		bytes: startWeight,
		since: now,
		pause: MinPause,
		again: now,
		got:   math.Inf(1),
		busy:  true,
	}
}

// SetShare changes the share.
func (p *Processor) SetShare(share float64) { p.share = share }

// Takes is what is worth taking now.
func (p *Processor) Takes() Takes {
	if p.share == 0 {
		return All
	}
	return p.takes
}

// cost is in seconds a byte.
func (p *Processor) cost() float64 { return p.time / p.bytes }

// path is the rate to be as fast as, in bytes a second.
func (p *Processor) path() float64 {
	if rate := max(p.rate, p.older); rate > 0 {
		return rate
	}
	return AssumedPath
}

// need is the share of one processor that carrying all of the path would take.
func (p *Processor) need() float64 { return p.cost() * p.path() }

// Tick takes what was counted until now. With pace > 0 a rehearsal is to be made: for
// RehearsalTime, the process is to use this share of one processor, the work that it
// has anyway included; Rehearsed tells what it got.
func (p *Processor) Tick(now time.Time, s Sample) (pace float64) {
	passed := now.Sub(p.ticked)
	if p.ticked.IsZero() || passed <= 0 {
		p.ticked, p.last = now, s
		return p.decide(now)
	}
	p.late = passed > Interval+lateness
	p.learn(now, passed.Seconds(), s)
	p.ticked, p.last = now, s
	return p.decide(now)
}

// moved is what the path has moved of bulk.
type moved struct{ bytes, seconds float64 }

func (m moved) rate() float64 { return m.bytes / max(m.seconds, 1e-3) }

// learn updates what is known of load, cost and path.
func (p *Processor) learn(now time.Time, seconds float64, s Sample) {
	if s.CPU >= p.last.CPU && !p.rehearsing && !p.rehearsedNow {
		cpu := (s.CPU - p.last.CPU).Seconds()
		p.used += smoothing * (cpu/seconds - p.used)
		if s.Carried >= p.last.Carried+costFloor && s.Other == p.last.Other {
			p.carried(cpu, float64(s.Carried-p.last.Carried), seconds)
		}
	}
	in, out, bytes := s.Path.In.since(p.last.Path.In), s.Path.Out.since(p.last.Path.Out), 0.0
	if in.bulk() && in.Bytes >= out.Bytes || out.bulk() && out.Bytes >= in.Bytes {
		bytes = float64(in.Bytes + out.Bytes)
	}
	p.recent[p.turn%plateau] = moved{bytes, seconds}
	p.turn++
	p.rehearsedNow = false
	var all moved
	least, most := math.Inf(1), 0.0
	for _, m := range p.recent {
		all.bytes, all.seconds = all.bytes+m.bytes, all.seconds+m.seconds
		least, most = min(least, m.rate()), max(most, m.rate())
	}
	if least < bulkRate || least < plateauDepth*most {
		return
	}
	before := p.path()
	if p.rate > 0 && now.Sub(p.rated) >= pathAge {
		p.older, p.rate = p.rate, 0
	}
	if p.rate == 0 {
		p.rated = now
	}
	p.rate = max(p.rate, all.rate())
	if p.path() < before && p.takes != All { // what was waited for
		p.again, p.pause = now, MinPause
	}
}

// carried learns what a byte costs when there are as many as the path can move. A
// processor with time to spare is woken for each packet: what few bytes took is
// the most that it may be, unless there was no time to spare.
func (p *Processor) carried(cpu, bytes, seconds float64) {
	few := bytes < plateauDepth*p.path()*seconds
	if few && !p.late && cpu <= p.share*seconds && cpu > p.cost()*bytes {
		return
	}
	p.time += cpu
	p.bytes += bytes
	if scale := costMemory / p.bytes; scale < 1 {
		p.time, p.bytes = p.time*scale, p.bytes*scale
	}
}

// decide draws the conclusion.
func (p *Processor) decide(now time.Time) (pace float64) {
	if p.share == 0 {
		return 0
	}
	need := p.need()
	p.over, p.slow = p.over+1, p.slow+1
	if p.used <= p.share {
		p.over = 0
	}
	if need <= p.share {
		p.slow = 0
	}
	if p.takes != Nothing && now.Sub(p.since) >= calm {
		p.pause = MinPause
	}
	switch {
	case p.takes == All && p.over >= persistent:
		// It was thought to be faster than the path: what that has shown was not all.
		p.rate, p.older = 0, 0
		p.withdraw(now, Nothing)
	case p.takes == All && p.slow >= persistent:
		p.withdraw(now, Small)
	case p.takes == All:
		doubt := p.late && now.Sub(p.rehearsed) >= doubtPause || now.Sub(p.rehearsed) >= ProofAge
		if doubt && !p.rehearsing {
			return p.rehearse(now, need*staySlack)
		}
	case p.takes == Small && (p.late || p.over > 0):
		p.withdraw(now, Nothing)
	case p.rehearsing || now.Before(p.again):
	case need*enterMargin > p.share && !p.late && p.over == 0:
		p.busy = false
		p.change(now, Small)
	case need*enterMargin > p.share:
	default:
		return p.rehearse(now, need*enterSlack)
	}
	return 0
}

func (p *Processor) rehearse(now time.Time, share float64) (pace float64) {
	p.rehearsing, p.rehearsed = true, now
	return share * rehearsalMargin
}

// Bite is how much processor time a rehearsal is to use until its next pause. Whoever
// carries something has its turn in the pauses, also on a single processor: so there
// is a pause however far the rehearsal is behind, and of that it makes up for
// one that took twice as long.
func Bite(pace float64, passed, spent time.Duration) time.Duration {
	const most = 0.9 // of a processor
	rest := 1 - min(pace, most)
	// A bite of its own length later, this is due.
	due := (pace*float64(passed+BitePause) - float64(spent)) / rest
	return time.Duration(max(0, min(due, 2*pace*float64(BitePause)/rest)))
}

// Rehearsed tells which share of one processor the process got in a rehearsal that
// asked for pace.
func (p *Processor) Rehearsed(now time.Time, pace, got float64) {
	p.rehearsing, p.rehearsedNow = false, true
	need, enough := p.need(), got >= pace/rehearsalMargin
	p.got = got
	if enough {
		p.got = math.Inf(1)
	}
	switch {
	case p.takes == All && !enough:
		p.withdraw(now, Nothing)
	case p.takes == All:
	case !enough:
		p.busy = true
		p.change(now, Nothing)
		p.wait(now)
	case pace < need*enterSlack: // it is known by now that more is needed, or it was to go on
	case need*enterMargin <= p.share:
		p.change(now, All)
	}
}

// withdraw takes less from now on, for a while.
func (p *Processor) withdraw(now time.Time, takes Takes) {
	p.busy = takes == Nothing
	p.change(now, takes)
	p.wait(now)
}

func (p *Processor) wait(now time.Time) {
	p.again = now.Add(p.pause)
	p.pause = min(2*p.pause, MaxPause)
}

func (p *Processor) change(now time.Time, takes Takes) {
	if takes == All {
		p.busy = false
	}
	if p.takes != takes {
		p.takes, p.since = takes, now
	}
}

// Why is what keeps a processor from taking all.
const (
	WhyMeasuring = "measuring" // it is not known yet
	WhyBusy      = "busy"      // it would be fast enough, if it had time
	WhySlow      = "slow"      // direct forwarding is faster, or may be
)

// A Status is what is known, and what follows.
type Status struct {
	Takes string `json:"takes"`         // "all", "small" (UDP), "nothing"
	Why   string `json:"why,omitempty"` // "": takes all
	// Carries is what the processor can carry, Path what the path has shown that it
	// can (0: nothing yet), in bits a second.
	Carries float64 `json:"carries_bps"`
	Path    float64 `json:"path_bps"`
	Share   float64 `json:"share"`            // of one processor, that may be used
	Used    float64 `json:"used"`             // of one processor
	Reason  string  `json:"reason,omitempty"` // Why in words and figures
}

// Status is the state for those who ask.
func (p *Processor) Status() Status {
	st := Status{
		Takes:   p.Takes().String(),
		Carries: 8 * min(cmp.Or(p.share, 1), p.got) / p.cost(),
		Path:    8 * max(p.rate, p.older),
		Share:   p.share,
		Used:    p.used,
	}
	path := fmt.Sprintf("the path %s", rate(st.Path))
	if st.Path == 0 {
		path = "the path has not shown its rate"
	}
	switch {
	case p.Takes() == All:
	case p.busy && p.pause == MinPause:
		st.Why, st.Reason = WhyMeasuring, "the processor is being measured"
	case p.busy:
		st.Why, st.Reason = WhyBusy, fmt.Sprintf("the processor is busy: it carries %s now, %s", rate(st.Carries), path)
	default:
		st.Why, st.Reason = WhySlow, fmt.Sprintf("the processor carries %s, %s", rate(st.Carries), path)
	}
	return st
}

// rate is of bits a second, with two digits that count.
func rate(bits float64) string {
	mbit := bits / 1e6
	if mbit < 10 {
		return fmt.Sprintf("%.1f Mbit/s", mbit)
	}
	return fmt.Sprintf("%.0f Mbit/s", mbit)
}
