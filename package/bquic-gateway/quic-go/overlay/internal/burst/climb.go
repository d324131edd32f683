// SPDX-License-Identifier: Apache-2.0

package burst

import "github.com/quic-go/quic-go/internal/protocol"

const (
	// Rounds and time, in microseconds, over which a delivery rate is measured: long enough
	// that one A-MPDU more or less does not matter.
	climbRounds = 4
	climbTime   = 1000 * 1000
	// Time, in microseconds, for which a window stays if neither a larger nor a smaller one
	// was better.
	climbPause = 8 * climbTime
	// Rounds without a queue after which the queue is considered gone.
	emptyRounds = 3
	// A window that is larger by half must deliver more by at least a sixteenth. Where several
	// senders fill one queue, the larger window takes its gain from the others, and that pays as
	// long as they have an eighth.
	climbGain = 16
	// A window is large if it fills the path this many times.
	largeWindow = 8
)

// A climb looks for the smallest window that delivers as much as larger ones do. A larger
// window only fills queues. Over 802.11, both directions share the air, so that one may take from the other what it gains: what
// counts is what both deliver. Two windows are measured one right after the other: in between, the path may have
// become another. Over 802.11, either measurement is often wrong by as much as matters, so a larger window must have paid
// twice, or twice as much.
type climb struct {
	phase  climbPhase
	window protocol.ByteCount // in packets, and what it delivers in bytes/s
	rate   uint64
	floor  protocol.ByteCount // the first smaller window to try, in packets; 0: low of the window
	paid   bool               // the window has just delivered enough more than a smaller one, once
	topped bool               // a larger window has just been measured, and did not pay

	rounds    int
	quiet     int    // last rounds without a queue
	delivered uint64 // bytes in these rounds, in both directions
	took      uint64 // microseconds
}

type climbPhase uint8

const (
	climbBase  climbPhase = iota // measures what the window delivers
	climbGrows                   // the window grows
	climbLow                     // measures whether a third less delivers less
	climbStays
)

// begin starts from a window of cwnd packets, of which nothing is known. It grows first,
// unless it is already large and may become smaller.
func (c *climb) begin(cwnd protocol.ByteCount, large bool) {
	c.window, c.rate, c.paid, c.topped = cwnd, 0, false, false
	if large && low(cwnd) >= leastWindow {
		c.enter(climbBase)
	} else {
		c.enter(climbGrows)
	}
}

// grows says if the window may grow.
func (c *climb) grows() bool { return c.phase == climbGrows }

// onRound takes a round. quiet says that its packets met no queue. It returns the new
// window, 0 to keep the current one.
func (c *climb) onRound(r Round, cwnd protocol.ByteCount, quiet bool) protocol.ByteCount {
	if c.empty(quiet) {
		c.begin(cwnd, false)
		return 0
	}
	if c.phase == climbGrows {
		grown := 2*cwnd >= 3*c.window || c.rate == 0 && 4*cwnd >= 5*c.window
		if grown && !quiet && low(cwnd) >= leastWindow {
			c.topped = false
			c.enter(climbBase)
		}
		return 0
	}
	c.rounds++
	if c.rounds == 1 { // still shows the previous window
		return 0
	}
	c.delivered += uint64(r.Delivered + r.Received)
	c.took += uint64(r.Delivered) * 1e6 / r.Rate
	if c.phase == climbStays {
		if c.took >= climbPause {
			c.enter(climbGrows)
		}
		return 0
	}
	if c.rounds <= climbRounds || c.took < climbTime {
		return 0
	}
	rate := c.delivered * 1e6 / max(c.took, 1)
	if c.phase == climbLow {
		if pays(c.rate, rate) {
			return c.paying(cwnd >= low(c.window) && pays(c.rate, rate+rate/climbGain))
		}
		c.paid, c.topped = false, true
	}
	c.window, c.rate = cwnd, rate
	if low(c.window) < leastWindow {
		c.enter(climbStays)
		return c.window
	}
	c.enter(climbLow)
	return c.smaller()
}

// paying returns the window after one that delivers enough more than a smaller one. Twice enough, clearly, counts as
// having paid twice. Then most of the queue is not this sender's: others get the air that a smaller window leaves, and a
// larger one is tried at once.
func (c *climb) paying(clearly bool) protocol.ByteCount {
	next := c.window
	switch {
	case !c.paid && !clearly:
		c.paid = true
		c.enter(climbBase)
		return next
	case c.topped:
		c.enter(climbStays)
	case clearly:
		c.enter(climbBase)
		next = c.window * 3 / 2
	default:
		c.enter(climbGrows)
	}
	c.paid = false
	return next
}

// smaller is the next smaller window to try.
func (c *climb) smaller() protocol.ByteCount {
	next := low(c.window)
	if c.floor > 0 {
		next = min(next, c.floor)
	}
	c.floor = 0
	return next
}

// empty says if there was no queue for some rounds: other senders have left, or the path
// has become faster.
func (c *climb) empty(quiet bool) bool {
	if !quiet {
		c.quiet = 0
		return false
	}
	c.quiet++
	return c.quiet >= emptyRounds
}

func (c *climb) enter(p climbPhase) { c.phase, c.rounds, c.quiet, c.delivered, c.took = p, 0, 0, 0, 0 }

// low is the window a third smaller.
func low(window protocol.ByteCount) protocol.ByteCount { return window * 2 / 3 }

// pays says if a larger window delivers enough more than a smaller one.
func pays(larger, smaller uint64) bool {
	return larger > smaller && (larger-smaller)*climbGain >= smaller
}
