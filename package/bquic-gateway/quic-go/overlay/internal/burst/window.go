// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/protocol"
)

const (
	// Rounds that slow start goes on for at a quarter of its speed when it may be
	// over (RFC 9406, section 4.3, has 5), and the queue that ends it.
	doubtRounds  = 12
	longestQueue = 100 * time.Millisecond
	// Rounds of the same rate, though the window has grown, that are proof.
	flatRounds = 2
	// What such proof leaves of the window at least, in packets, and of a queue:
	// bursts and timers need them.
	leastWindow = 64
	leastQueue  = 20 * time.Millisecond
	// Rounds without a queue until the window grows faster, at twice the speed with
	// each further one. Who shares a short buffer has a loss before.
	quietRounds = 8
	// The delay below which a path has no standing queue, and that of a few packets, which
	// wait for each other and for ACKs on slow ones. It is below CoDel's target of
	// 5 ms (RFC 8289, section 4.2), or what CoDel drops would be taken for loss by chance, and
	// the queue that it keeps for room; a part of the RTT is beyond that on long paths.
	lowDelay   = 4 * time.Millisecond
	lowPackets = 3
)

// Window says how fast the congestion window grows, and what a loss leaves of it.
type Window struct {
	threshold SlowStart // its Threshold only

	// Slow start
	started  bool // it is over
	doubt    int  // rounds since the RTT has risen, 0: it has not
	baseline time.Duration
	doubted  protocol.ByteCount // the window then, in packets
	flat     int                // rounds of the same rate since
	last     Round
	best     Round // the one of the largest rate

	// Afterwards
	quiet int
	step  protocol.ByteCount // packets per round
	climb climb
	min   time.Duration // of the path, when the last round ended
}

// NewWindow begins in slow start.
func NewWindow(cfg Config) Window { return Window{threshold: NewSlowStart(cfg), step: 1} }

// lowQueue is the delay below which a path has no standing queue.
func lowQueue(p *Path) time.Duration {
	const packet = 1500 // bytes
	return max(lowDelay, time.Duration(lowPackets*packet*1e6/max(p.Rate(), 1))*time.Microsecond)
}

// OnAck comes with each ACK. cwnd is in packets.
func (w *Window) OnAck(p *Path, cwnd protocol.ByteCount) { w.maybeDoubt(p.Early(), p, cwnd) }

// maybeDoubt takes the least of a round's first RTTs.
func (w *Window) maybeDoubt(early time.Duration, p *Path, cwnd protocol.ByteCount) {
	if !w.started && w.doubt == 0 && w.risen(early, p) && cwnd >= slowStartLowWindow {
		w.doubt, w.flat, w.baseline, w.doubted = 1, 0, early, cwnd
	}
}

func (w *Window) risen(rtt time.Duration, p *Path) bool {
	return rtt > p.MinRTT()+w.threshold.Threshold(p.MinRTT())
}

// OnRound takes a round that has ended. cwnd is in packets of mss bytes. It returns what is
// to become of it, 0 to leave it alone.
func (w *Window) OnRound(r Round, p *Path, cwnd, mss protocol.ByteCount) protocol.ByteCount {
	if !r.Limited || r.Rate == 0 {
		return 0
	}
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

// saturated says if twice the window has not brought an eighth more: a queue that
// the first packets of a round do not meet, as it drains between rounds.
func (w *Window) saturated(r Round) bool {
	return w.best.Rate > 0 && 2*r.Delivered >= 3*w.best.Delivered && r.Rate < w.best.Rate+w.best.Rate/8
}

// decide ends slow start, or goes on with it, after a round in which the RTT had risen.
func (w *Window) decide(r Round, p *Path, cwnd, mss protocol.ByteCount) protocol.ByteCount {
	w.doubt++
	if w.doubt == 2 {
		return 0 // the round in which it rose
	}
	// What is delivered in a round is the window of the one before. If the path
	// has room, the rate grows as the window does.
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
		// A larger window only made a queue.
		w.started = true
		return min(cwnd, w.doubted, max((p.BDP()+max(p.BDP(), p.sends(leastQueue)))/mss, leastWindow))
	case w.doubt > doubtRounds, r.Early > p.MinRTT()+longestQueue:
		w.started = true
	}
	return 0
}

// Undo goes back to slow start: what had ended it was no loss.
func (w *Window) Undo() { w.started, w.doubt = false, 0 }

// Started says if slow start is over.
func (w *Window) Started() bool { return w.started }

// grow doubles the steps while there is room, and where there is none has them pay.
func (w *Window) grow(r Round, p *Path, cwnd protocol.ByteCount) protocol.ByteCount {
	if p.MinRTT() > w.min { // another path, or the first round
		w.climb.begin(cwnd, large(r.MinRTT, p))
		if w.min > 0 {
			w.quiet = quietRounds // what it takes is not known
		}
	}
	w.min = p.MinRTT()
	quiet := r.MinRTT <= p.MinRTT()+lowQueue(p) && r.Lost <= r.Delivered/50
	set := w.climb.onRound(r, cwnd, quiet)
	if !quiet {
		w.quiet, w.step = 0, 1
	} else if w.quiet++; w.quiet >= quietRounds {
		w.step = max(1, min(2*w.step, cwnd/4))
	}
	switch {
	case !w.climb.grows():
		w.step = 0
	case w.climb.tries():
		w.step = max(w.step, cwnd/climbSteps)
	}
	return set
}

// large says if packets that take so long are a window that fills the path many times.
func large(rtt time.Duration, p *Path) bool { return rtt > largeWindow*p.MinRTT() }

// OnLoss is called once for all losses of a window. It returns what is left of
// the window, given what is left of it by the book. rtt is the newest one: if
// packets wait nowhere, it was no full queue that has dropped one, and the path
// takes what it has taken.
func (w *Window) OnLoss(p *Path, rtt time.Duration, cwnd, cut, mss protocol.ByteCount) protocol.ByteCount {
	if rtt <= p.MinRTT()+lowQueue(p) {
		cut = max(cut, min(cwnd, p.BDP()))
	}
	w.cutTo(p, rtt, cut/mss)
	return cut
}

// OnMark is called once for all packets of a window that bear a mark of congestion (ECN-CE), given what is left of it
// in packets. Nobody marks by chance, so it is no more than the book says, and however short the queue is, there is one.
func (w *Window) OnMark(p *Path, rtt time.Duration, cut protocol.ByteCount) {
	w.quiet, w.step = 0, 1
	w.cutTo(p, rtt, cut)
}

func (w *Window) cutTo(p *Path, rtt time.Duration, cut protocol.ByteCount) {
	w.started = true
	w.climb.begin(cut, large(rtt, p))
}

// Doubt says if slow start goes slowly.
func (w *Window) Doubt() bool { return w.doubt > 0 }

// Step is the number of packets that the window grows by per round after slow start.
func (w *Window) Step() protocol.ByteCount { return w.step }
