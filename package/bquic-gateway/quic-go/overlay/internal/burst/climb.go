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
	// A window that is larger by some part must deliver more by at least an eighth of that
	// part. Where several senders fill one queue, the larger window takes its gain from
	// the others, and that pays as long as they have an eighth.
	climbGain = 8
	// A window is large if it fills the path this many times.
	largeWindow = 8
)

// A climb looks for the smallest window that delivers as much as larger ones do. A larger
// window only fills queues.
type climb struct {
	phase  climbPhase
	window protocol.ByteCount // in packets, and what it delivers in bytes/s
	rate   uint64
	other  protocol.ByteCount // in climbAgain: the one before, and what it has delivered
	tried  uint64
	topped bool // a larger window has been measured since begin

	rounds    int
	quiet     int    // last rounds without a queue
	delivered uint64 // bytes in these rounds
	took      uint64 // microseconds
}

type climbPhase uint8

const (
	climbBase  climbPhase = iota // measures what the window delivers
	climbGrows                   // the window grows by a half
	climbTop                     // measures whether the larger window pays
	climbLow                     // measures whether a third less delivers less
	climbAgain                   // measures the window again, before the larger one is believed to pay
	climbStays
)

// begin starts from a window of cwnd packets, of which nothing is known. It grows first,
// unless it is already large and may become smaller.
func (c *climb) begin(cwnd protocol.ByteCount, large bool) {
	c.window, c.rate, c.topped = cwnd, 0, false
	if large && cwnd > leastWindow {
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
		switch {
		case quiet || 2*cwnd < 3*leastWindow:
		case c.rate == 0 && 4*cwnd >= 5*c.window:
			c.enter(climbBase)
		case c.rate > 0 && 2*cwnd >= 3*c.window:
			c.enter(climbTop)
		}
		return 0
	}
	c.rounds++
	if c.rounds == 1 { // still shows the previous window
		return 0
	}
	c.delivered += uint64(r.Delivered)
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
	return c.measured(c.delivered*1e6/max(c.took, 1), cwnd)
}

// measured takes what a window of cwnd packets delivers, and returns the next window to try.
func (c *climb) measured(rate uint64, cwnd protocol.ByteCount) protocol.ByteCount {
	switch c.phase {
	case climbTop:
		if pays(c.rate, rate, c.window, cwnd) {
			return c.again(cwnd, rate)
		}
		c.topped = true
	case climbLow:
		if pays(rate, c.rate, cwnd, c.window) {
			return c.again(cwnd, rate)
		}
		c.window, c.rate, c.topped = cwnd, rate, true
	case climbAgain:
		c.rate = rate
		if c.other > c.window {
			c.topped = true
			if pays(rate, c.tried, c.window, c.other) {
				c.window, c.rate = c.other, c.tried
				c.enter(climbGrows)
				return c.window
			}
		} else if pays(c.tried, rate, c.other, c.window) {
			if c.topped {
				c.enter(climbStays)
			} else {
				c.enter(climbGrows)
			}
			return 0
		} else {
			c.window, c.rate, c.topped = c.other, c.tried, true
		}
	default:
		c.window, c.rate = cwnd, rate
	}
	if c.window <= leastWindow {
		c.enter(climbStays)
		return c.window
	}
	c.enter(climbLow)
	return low(c.window)
}

// again measures the window once more, after the other one. By chance, or because other traffic has come or gone between the
// two, the larger one often seems to pay, and its queue would stay for many seconds.
func (c *climb) again(other protocol.ByteCount, rate uint64) protocol.ByteCount {
	c.other, c.tried = other, rate
	c.enter(climbAgain)
	return c.window
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

// low is the next smaller window.
func low(window protocol.ByteCount) protocol.ByteCount { return max(window*2/3, leastWindow) }

// pays says if the larger window delivers enough more.
func pays(rate, larger uint64, window, cwnd protocol.ByteCount) bool {
	return larger > rate && (larger-rate)*climbGain*uint64(window) >= rate*uint64(cwnd-window)
}
