// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

const (
	// Interval is how often Tick is to be called, and restInterval how often while there is nothing to learn.
	Interval     = 250 * time.Millisecond
	restInterval = time.Second
	// RehearsalTime is how long a rehearsal lasts: several periods of a cgroup's
	// quota, which are 100 ms by default (Documentation/scheduler/sched-bwc.rst).
	RehearsalTime = 500 * time.Millisecond
	// BitePause is what a rehearsal sleeps after each Bite.
	BitePause = 5 * time.Millisecond

	// assumedPath is the assumed rate, in bytes per second, of a path that has not shown
	// its own. It is more than TCP gets over a hop of 802.11n or Fast Ethernet, so a
	// slower processor takes nothing until the path has shown its rate.
	assumedPath = 100e6 / 8

	// To begin, the share that may be used must be this much larger than the share needed
	// to carry all of the path; to go on, it must be as large.
	enterMargin = 1.15
	// The time that the process can get is a hard limit, and a processor that is just fast
	// enough builds a queue. To begin, the process must get enterSlack times what is needed;
	// to go on, staySlack times. A rehearsal asks for rehearsalMargin times that and no more,
	// because carried connections lack what it takes.
	enterSlack      = 1.5
	staySlack       = 1.2
	rehearsalMargin = 1.07

	// A path has shown its rate when this many intervals in a row were within
	// plateauDepth of the largest one, with packets of bulk size: a call or a routing
	// protocol is as even, but does not fill the path. The rate is the mean of these
	// intervals, because bytes of one may have been counted in the next.
	plateau      = 4
	plateauDepth = 0.7
	bulkPacket   = 1000 // bytes, at least, on average
	bulkRate     = 1e6 / 8
	// pathAge is how long the largest rate counts alone, and then for the same time
	// together with later ones.
	pathAge = time.Hour

	// The measurement at the start weighs as much as startWeight carried bytes. Bytes older
	// than a few times costMemory no longer count.
	startWeight = 1 << 20
	costMemory  = 16 << 20
	// costFloor is how much an interval must have carried to show the cost of a byte. With
	// less, it shows the cost of an idle process.
	costFloor = 32 << 10

	// The result of a rehearsal is valid for proofAge. A tick that is late by more than
	// lateness casts doubt on it, and causes a new one, at most once per doubtPause.
	proofAge   = time.Minute
	lateness   = 20 * time.Millisecond
	doubtPause = 10 * time.Second

	// A processor that was too slow is tried again after minPause, then after twice that,
	// up to maxPause. The pause starts over once the processor has been fast enough for calm.
	minPause = time.Second
	maxPause = 2 * time.Minute
	calm     = 10 * time.Minute

	// A reason against taking all counts when it has persisted for this many ticks: a path
	// needs plateau of them to show its rate.
	persistent = plateau + 2

	// smoothing is the weight of an interval in the averages of the used share and of the rate.
	smoothing = 0.25
)

// Takes says which new connections and flows are worth carrying.
type Takes uint8

const (
	// Nothing: the processor has no time, or has not proved that it has.
	Nothing Takes = iota
	// Small: the processor has time, but large transfers would be faster without it. The
	// size of a TCP connection is not known in advance.
	Small
	// All: the processor carries all that the path can.
	All
)

func (t Takes) String() string { return [...]string{"nothing", "small", "all"}[t] }

// A Sample holds the counters at a time. Those of the path may be reset.
type Sample struct {
	CPU     time.Duration // of this process
	Carried uint64        // bytes, in both directions
	Other   uint64        // other bytes that this process moved, which cost less
	Idle    bool          // this process has no connections
	Path    Traffic       // of the devices that lead to the Internet
}

// Traffic counts what devices have received and sent.
type Traffic struct{ In, Out Count }

// A Count counts one direction.
type Count struct{ Bytes, Packets uint64 }

// since returns the difference to was. It is wrong if the counters were reset in between, but one interval
// does not show a path's rate.
func (c Count) since(was Count) Count {
	return Count{c.Bytes - was.Bytes, c.Packets - was.Packets}
}

// bulk says if the packets are large.
func (c Count) bulk() bool { return c.Packets > 0 && c.Bytes/c.Packets >= bulkPacket }

// A Processor is a model of the processor and the path. It takes connections only if it
// could carry all that the path can. Then their size and number make no difference.
type Processor struct {
	share float64 // share of one processor that may be used
	takes Takes
	busy  bool // why not All: there is no time, although the processor would be fast enough

	ticked time.Time
	next   time.Duration // how long after ticked Tick is to be called again
	last   Sample
	late   bool
	quiet  int     // ticks in which there was nothing to learn
	used   float64 // share of one processor
	moves  float64 // bytes per second that this process moves
	over   int     // ticks since used was within share
	slow   int     // ticks since the processor was as fast as the path

	// Cost is time over bytes.
	time, bytes float64

	recent      [plateau]moved // the last intervals
	turn        int
	rate, older float64 // largest rate shown within pathAge, and before; 0: none
	rated       time.Time

	rehearsing   bool
	rehearsedNow bool      // since the last tick: the time used includes a rehearsal
	rehearsed    time.Time // when the last rehearsal began
	got          float64   // share that the last rehearsal got; Inf: all that it asked for

	since time.Time // when takes changed
	pause time.Duration
	again time.Time // no new attempt before this
}

// New returns a Processor. share is the share of one processor that may be used; with 0,
// it takes all connections at any cost. cost is the time to carry the given number of
// bytes, as measured at the start.
func New(now time.Time, share float64, cost time.Duration, bytes int) *Processor {
	return &Processor{
		share: share,
		time:  cost.Seconds() / float64(bytes) * startWeight,
		bytes: startWeight,
		since: now,
		pause: minPause,
		again: now,
		got:   math.Inf(1),
		busy:  true,
	}
}

// SetShare changes the share.
func (p *Processor) SetShare(share float64) { p.share = share }

// Takes returns which connections are worth taking now.
func (p *Processor) Takes() Takes {
	if p.share == 0 {
		return All
	}
	return p.takes
}

// cost is in seconds per byte.
func (p *Processor) cost() float64 { return p.time / p.bytes }

// path is the rate that the processor has to match, in bytes per second.
func (p *Processor) path() float64 {
	if rate := max(p.rate, p.older); rate > 0 {
		return rate
	}
	return assumedPath
}

// Fills reports whether what this process moves takes more than half of what the path has shown.
func (p *Processor) Fills() bool {
	shown := max(p.rate, p.older)
	return shown > 0 && p.moves > shown/2
}

// need is the share of one processor that carrying all of the path would take.
func (p *Processor) need() float64 { return p.cost() * p.path() }

// Tick takes the counters at the time now. If pace is above 0, the caller must run a
// rehearsal: for RehearsalTime, the process uses this share of one processor, including
// its normal work. The result goes to Rehearsed.
func (p *Processor) Tick(now time.Time, s Sample) (pace float64) {
	if passed := now.Sub(p.ticked); !p.ticked.IsZero() && passed > 0 {
		p.late = passed > p.next+lateness
		p.learn(now, passed.Seconds(), s)
	}
	p.ticked, p.last = now, s
	pace = p.decide(now)
	p.next = Interval
	if p.quiet >= plateau && pace == 0 && !p.rehearsing && p.over == 0 && (p.takes != All || p.slow == 0) {
		p.next = restInterval
	}
	return pace
}

// Next returns how long after the last Tick the next one is due. An earlier one is as good.
func (p *Processor) Next() time.Duration { return p.next }

// moved is bulk traffic of the path in some time.
type moved struct{ bytes, seconds float64 }

func (m moved) rate() float64 { return m.bytes / max(m.seconds, 1e-3) }

// learn updates what is known of load, cost and path.
func (p *Processor) learn(now time.Time, seconds float64, s Sample) {
	p.moves += smoothing * (float64(s.Carried+s.Other-p.last.Carried-p.last.Other)/seconds - p.moves)
	if !p.rehearsing && !p.rehearsedNow {
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
	p.quiet++
	if !s.Idle || float64(in.Bytes+out.Bytes) >= bulkRate*seconds {
		p.quiet = 0
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
	if p.path() < before && p.takes != All { // a slower path is worth a new attempt
		p.again, p.pause = now, minPause
	}
}

// carried learns the cost of a byte at the full rate of the path. A processor with time
// to spare is woken for each packet, so the cost with few bytes is only an upper
// bound, unless there was no time to spare.
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

// decide updates the decision.
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
		p.pause = minPause
	}
	switch {
	case p.takes == All && p.over >= persistent:
		// It seemed faster than the path, so the path had not shown its full rate.
		p.rate, p.older = 0, 0
		p.withdraw(now, Nothing)
	case p.takes == All && p.slow >= persistent:
		p.withdraw(now, Small)
	case p.takes == All:
		doubt := p.late && now.Sub(p.rehearsed) >= doubtPause || now.Sub(p.rehearsed) >= proofAge
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

// Bite returns how much processor time a rehearsal uses until its next pause. Carried
// connections have their turn in the pauses, even on a single processor. So there is
// always a pause, however far the rehearsal is behind. It makes up for at most one pause
// that took twice as long.
func Bite(pace float64, passed, spent time.Duration) time.Duration {
	const most = 0.9 // of a processor
	rest := 1 - min(pace, most)
	// The work due at the end of this bite, which itself takes time.
	due := (pace*float64(passed+BitePause) - float64(spent)) / rest
	return time.Duration(max(0, min(due, 2*pace*float64(BitePause)/rest)))
}

// Rehearsed takes the share of one processor that the process got in a rehearsal that
// asked for pace.
func (p *Processor) Rehearsed(now time.Time, pace, got float64) {
	p.rehearsing, p.rehearsedNow = false, true
	need, enough := p.need(), got >= pace/rehearsalMargin
	p.got = got
	if enough {
		p.got = math.Inf(1)
	}
	switch {
	case !enough:
		p.withdraw(now, Nothing)
	case p.takes == All:
	case pace < need*enterSlack: // more is needed by now, or the rehearsal was only for going on
	case need*enterMargin <= p.share:
		p.change(now, All)
	}
}

// withdraw takes less for a while.
func (p *Processor) withdraw(now time.Time, takes Takes) {
	p.busy = takes == Nothing
	p.change(now, takes)
	p.wait(now)
}

func (p *Processor) wait(now time.Time) {
	p.again = now.Add(p.pause)
	p.pause = min(2*p.pause, maxPause)
}

func (p *Processor) change(now time.Time, takes Takes) {
	if takes == All {
		p.busy = false
	}
	if p.takes != takes {
		p.takes, p.since = takes, now
	}
}

// Why a processor does not take all.
const (
	WhyMeasuring = "measuring" // the measurement is not complete
	WhyBusy      = "busy"      // the processor would be fast enough, but has no time
	WhySlow      = "slow"      // direct forwarding is faster, or may be
)

// A Status is the model and the decision.
type Status struct {
	Takes string `json:"takes"`         // "all", "small" (UDP), "nothing"
	Why   string `json:"why,omitempty"` // "": takes all
	// Carries is the rate that the processor can carry, Path the rate that the path has
	// shown (0: none yet), in bits per second.
	Carries float64 `json:"carries_bps"`
	Path    float64 `json:"path_bps"`
	Share   float64 `json:"share"`            // share of one processor that may be used
	Used    float64 `json:"used"`             // share of one processor in use
	Reason  string  `json:"reason,omitempty"` // Why, in words and figures
}

// Status returns the current state.
func (p *Processor) Status() Status {
	st := Status{
		Takes:   p.Takes().String(),
		Carries: 8 * min(cmp.Or(p.share, 1), p.got) / p.cost(),
		Path:    8 * max(p.rate, p.older),
		Share:   p.share,
		Used:    p.used,
	}
	path := fmt.Sprintf("the path %s", Rate(st.Path))
	if st.Path == 0 {
		path = "the path has not shown its rate"
	}
	switch {
	case p.Takes() == All:
	case p.busy && p.pause == minPause:
		st.Why, st.Reason = WhyMeasuring, "the processor is being measured"
	case p.busy:
		st.Why, st.Reason = WhyBusy, fmt.Sprintf("the processor is busy: it carries %s now, %s", Rate(st.Carries), path)
	default:
		st.Why, st.Reason = WhySlow, fmt.Sprintf("the processor carries %s, %s", Rate(st.Carries), path)
	}
	return st
}

// Rate formats bits per second with two significant digits.
func Rate(bits float64) string {
	mbit := bits / 1e6
	if mbit < 10 {
		return fmt.Sprintf("%.1f Mbit/s", mbit)
	}
	return fmt.Sprintf("%.0f Mbit/s", mbit)
}
