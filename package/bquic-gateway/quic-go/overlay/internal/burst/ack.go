// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"math"
	"time"
)

const (
	defaultAckDelay = 25 * time.Millisecond
	// The shortest ACK delay worth having, and the shortest queue to hide it behind: with a
	// shorter one, the buffer may be no larger than the burst that a late ACK releases.
	minQueueDelay = 4 * time.Millisecond
)

// An AckFrequency says when to acknowledge, as asked for in an ACK_FREQUENCY
// frame or configured.
type AckFrequency struct {
	// Packets is the number of ack-eliciting packets per ACK, at least 1; math.MaxInt: no limit.
	Packets int
	// Delay is the longest time that an ACK is held back.
	Delay time.Duration
	// Reordering is the reordering threshold in packets. 1: every gap triggers an
	// immediate ACK. 0: no gap does (draft-ietf-quic-ack-frequency, section 6.2).
	Reordering int
}

// stockFrequency is RFC 9000, section 13.2.2, as quic-go implements it.
var stockFrequency = AckFrequency{Packets: 2, Delay: defaultAckDelay, Reordering: 1}

// configured returns the configured frequency at the current RTT. It is
// stockFrequency where holding back ACKs could cost throughput.
func (c *Conn) configured() AckFrequency {
	f := AckFrequency{Packets: c.cfg.AckPackets, Delay: c.cfg.AckDelay, Reordering: max(c.cfg.AckReordering, 1)}
	if f.Packets == 0 {
		return stockFrequency
	}
	if f.Packets < 0 {
		f.Packets = math.MaxInt
	}
	if f.Delay == 0 {
		f.Delay = defaultAckDelay
	}
	if div := time.Duration(c.cfg.AckRTTDivisor); div > 0 {
		switch c.cfg.AckRTT {
		case SmoothedRTT:
			f.Delay = min(f.Delay, c.rtt.SmoothedRTT()/div)
		case MinRTT:
			f.Delay = min(f.Delay, c.rtt.MinRTT()/div)
		case QueueRTT:
			f.Delay = min(f.Delay, c.slack()/div)
			if f.Delay < minQueueDelay {
				return stockFrequency
			}
		}
	}
	return f
}

// ackPolicy is the state of the receiver's side.
type ackPolicy struct {
	received  int // ack-eliciting packets, at most AckAfter + 1
	requested bool
	request   AckFrequency // by the peer
	largest   uint64       // sequence number of request
}

// Request obeys an ACK_FREQUENCY frame. Frames that arrive out of order are
// ignored (draft-ietf-quic-ack-frequency, section 6.1).
func (c *Conn) Request(sequence uint64, f AckFrequency) {
	if c.ack.requested && sequence <= c.ack.largest {
		return
	}
	c.ack.requested, c.ack.largest, c.ack.request = true, sequence, f
}

// AckFrequency says how to acknowledge now. It returns false while quic-go's own policy applies: until a peer that
// may ask does so. The configured frequency is only for peers that cannot ask, because a receiver has few RTT
// samples, and mistakes a longer route for a queue as long as it remembers the old minimum.
func (c *Conn) AckFrequency() (AckFrequency, bool) {
	if c == nil {
		return AckFrequency{}, false
	}
	if c.ack.requested {
		return c.ack.request, true
	}
	if c.ask.dialect != NoDialect || c.cfg.AckPackets == 0 || c.ack.received <= c.cfg.AckAfter {
		return AckFrequency{}, false
	}
	f := c.configured()
	return f, f != stockFrequency
}
