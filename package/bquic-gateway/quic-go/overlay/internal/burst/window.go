// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/protocol"
)

const (
	// When slow start may be over, it continues at a quarter of its speed for this many
	// rounds (RFC 9406, section 4.3, has 5), or until a queue of this length.
	doubtRounds  = 12
	longestQueue = 100 * time.Millisecond
	// This many rounds of the same rate, with a growing window, prove that slow start is over.
	flatRounds = 2
	// The least that such proof leaves of the window, in packets, and of a queue:
	// bursts and timers need them.
	leastWindow = 64
	leastQueue  = 20 * time.Millisecond
	// Rounds without a queue until the window grows faster; each further round doubles
	// the speed. A sender that shares a short buffer has a loss before.
	quietRounds = 8
	// A sender that keeps 0.7 of its window after a loss needs 0.3 rounds for each packet of the window until it fills a
	// short buffer again. Losses that are at most half as far apart, or quietRounds, are not due to its growth.
	randomPackets = 7 // of the window, for each round
	// So many random losses are ignored until one is put to the test, and twice as many after each test that they pass.
	leastTrust = 8
	// A delay below the larger of these is no standing queue: a time, and a few packets, which
	// on slow paths wait for each other and for ACKs. The time is below CoDel's target of 5 ms
	// (RFC 8289, section 4.2). Otherwise, CoDel's drops would look like random loss, and the
	// queue that it keeps like spare capacity. On long paths, a fraction of the RTT would
	// exceed the target.
	lowDelay   = 4 * time.Millisecond
	lowPackets = 3
)

// Window decides how fast the congestion window grows, and how far a loss reduces it.
type Window struct {
	threshold SlowStart // its Threshold only

	// Slow start
	started  bool // slow start is over
	doubt    int  // rounds since the RTT rose, 0: it has not
	baseline time.Duration
	doubted  protocol.ByteCount // the window when it rose, in packets
	flat     int                // rounds of the same rate since then
	last     Round
	best     Round // the round of the largest rate

	// After slow start
	quiet   int
	step    protocol.ByteCount // packets per round
	spared  int                // rounds since the last loss
	trust   int                // random losses that may be ignored until the next test
	ignored int                // random losses since the last test
	full    protocol.ByteCount // the window, in packets, when a queue was full, however short; 0: unknown
	climb   climb
	min     time.Duration // the path's least RTT when the last round ended
}

// NewWindow begins in slow start.
func NewWindow() Window { return Window{threshold: NewSlowStart(Config{}), step: 1, trust: leastTrust} }

// lowQueue is the delay below which a path has no standing queue.
func lowQueue(p *Path) time.Duration {
	const packet = 1500 // bytes
	return max(lowDelay, time.Duration(lowPackets*packet*1e6/max(p.Rate(), 1))*time.Microsecond)
}

// OnAck is called for each ACK. cwnd is in packets.
func (w *Window) OnAck(p *Path, cwnd protocol.ByteCount) { w.maybeDoubt(p.Early(), p, cwnd) }

// maybeDoubt takes the least of a round's first RTT samples.
func (w *Window) maybeDoubt(early time.Duration, p *Path, cwnd protocol.ByteCount) {
	if !w.started && w.doubt == 0 && w.risen(early, p) && cwnd >= slowStartLowWindow {
		w.doubt, w.flat, w.baseline, w.doubted = 1, 0, early, cwnd
	}
}

func (w *Window) risen(rtt time.Duration, p *Path) bool {
	return rtt > p.MinRTT()+w.threshold.Threshold(p.MinRTT())
}

// OnRound takes a round that has ended. cwnd is in packets of mss bytes. It returns the new
// window, 0 to keep the current one.
func (w *Window) OnRound(r Round, p *Path, cwnd, mss protocol.ByteCount) protocol.ByteCount {
	if !r.Limited || r.Rate == 0 {
		return 0
	}
	w.spared++
	var set protocol.ByteCount
	if w.started {
		set = w.grow(r, p, cwnd)
	} else if w.doubt > 0 {
		set = w.decide(r, p, cwnd, mss)
	} else if w.saturated(r) {
		w.doubt, w.flat, w.baseline, w.doubted = 2, 1, r.Early, cwnd
	} else {
		w.maybeDoubt(r.Early, p, cwnd) // a round with few ACKs
	}
	w.last = r
	if r.Rate > w.best.Rate {
		w.best = r
	}
	return set
}

// saturated says if one and a half times the data per round has not raised the rate by an
// eighth. The first packets of a round do not meet such a queue, because it drains
// between rounds.
func (w *Window) saturated(r Round) bool {
	return w.best.Rate > 0 && 2*r.Delivered >= 3*w.best.Delivered && r.Rate < w.best.Rate+w.best.Rate/8
}

// decide ends slow start or continues it, after a round in which the RTT had risen.
func (w *Window) decide(r Round, p *Path, cwnd, mss protocol.ByteCount) protocol.ByteCount {
	w.doubt++
	if w.doubt == 2 {
		return 0 // the round in which it rose
	}
	// A round delivers the window of the previous one. If the path has room, the rate
	// grows with the window.
	follows := r.Delivered > w.best.Delivered && r.Rate > w.best.Rate &&
		2*(r.Rate-w.best.Rate)*uint64(w.best.Delivered) > uint64(r.Delivered-w.best.Delivered)*w.best.Rate
	if r.Early < w.baseline && !w.risen(r.Early, p) || follows {
		w.doubt = 0
		return 0
	}
	if r.Rate < w.last.Rate*33/32 && r.Rate > w.last.Rate*31/32 {
		w.flat++
	} else {
		w.flat = 0
	}
	switch {
	case w.flat >= flatRounds:
		// The larger window has only built a queue.
		w.end(p, mss)
		return min(cwnd, w.doubted, w.climb.floor)
	case w.doubt > doubtRounds, r.Early > p.MinRTT()+longestQueue:
		w.end(p, mss)
	}
	return 0
}

// end ends slow start. What the path holds is known, but the windows from there to the one that slow start has reached are
// untested.
func (w *Window) end(p *Path, mss protocol.ByteCount) {
	w.started = true
	w.climb.floor = max((p.BDP()+max(p.BDP(), p.sends(leastQueue)))/mss, leastWindow)
}

// Undo returns to slow start: the loss that ended it was spurious.
func (w *Window) Undo() { w.started, w.doubt = false, 0 }

// Started says if slow start is over.
func (w *Window) Started() bool { return w.started }

// grow doubles the steps while the path has room. Otherwise, larger windows have to pay.
func (w *Window) grow(r Round, p *Path, cwnd protocol.ByteCount) protocol.ByteCount {
	if p.MinRTT() > w.min { // a new path, or the first round
		w.climb.begin(cwnd, large(r.MinRTT, p))
		if w.min > 0 {
			w.full, w.quiet = 0, quietRounds // its capacity is unknown
			w.ignored, w.trust = 0, leastTrust
		}
	}
	w.min = p.MinRTT()
	quiet := r.MinRTT <= p.MinRTT()+lowQueue(p) && r.Lost <= r.Delivered/50
	set := w.climb.onRound(r, cwnd, quiet)
	if !quiet {
		w.quiet, w.step = 0, 1
	} else if w.quiet++; w.quiet >= quietRounds && cwnd >= w.full {
		w.step = max(1, min(2*w.step, cwnd/4))
	}
	if !w.climb.grows() {
		w.step = 0
	}
	return set
}

// large says if an RTT this long means that the window fills the path many times.
func large(rtt time.Duration, p *Path) bool { return rtt > largeWindow*p.MinRTT() }

// OnLoss is called once for all losses of a window. It returns the reduced window,
// given the standard reduction, cut. rtt is the latest RTT: if packets met no queue, and losses are close together, no
// full queue has dropped one, and the path can carry as much as before.
//
// Behind a policer, a window that ignores losses goes on causing them. So now and then one is put to the test by the
// standard reduction. Random losses go on.
func (w *Window) OnLoss(p *Path, rtt time.Duration, cwnd, cut, mss protocol.ByteCount) protocol.ByteCount {
	soon := min(quietRounds, int(cwnd/mss)/randomPackets)
	switch {
	case rtt > p.MinRTT()+lowQueue(p) || w.spared > soon:
		w.filled(cwnd / mss)
		w.ignored, w.trust = 0, leastTrust
	case w.ignored < w.trust:
		w.ignored++
		cut = max(cut, min(cwnd, p.BDP()))
	default:
		w.ignored, w.trust = 0, 2*w.trust
	}
	w.spared = 0
	w.cutTo(p, rtt, cut, mss)
	return cut
}

// OnMark is called once for all packets of a window with a congestion mark (ECN-CE), given the reduced window.
// Marks are never random: the standard reduction applies, and there is a queue, however short.
func (w *Window) OnMark(p *Path, rtt time.Duration, cwnd, cut, mss protocol.ByteCount) {
	w.filled(cwnd / mss)
	w.cutTo(p, rtt, cut, mss)
}

// filled notes that a window of cwnd packets has filled a queue. It grows faster only beyond that: before, others may
// still be growing back.
func (w *Window) filled(cwnd protocol.ByteCount) { w.quiet, w.step, w.full = 0, 1, cwnd }

func (w *Window) cutTo(p *Path, rtt time.Duration, cut, mss protocol.ByteCount) {
	if !w.started {
		w.end(p, mss)
	}
	w.climb.begin(cut/mss, large(rtt, p))
}

// Doubt says if slow start continues at reduced speed.
func (w *Window) Doubt() bool { return w.doubt > 0 }

// Step is the number of packets that the window grows by per round after slow start.
func (w *Window) Step() protocol.ByteCount { return w.step }
