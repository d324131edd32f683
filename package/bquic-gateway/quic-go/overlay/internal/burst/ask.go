// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"math"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"
)

// MinAckDelay is the shortest delay that a peer may ask for: timers support no shorter one.
const MinAckDelay = protocol.TimerGranularity

// maxRequestedPackets means no limit in an ACK_FREQUENCY frame. It fits into a 2-byte
// varint, and is far more than a path delivers in 25 ms.
const maxRequestedPackets = 1 << 13

// A Dialect is a form of the ACK_FREQUENCY frame.
type Dialect uint8

const (
	// NoDialect: the extension is not used.
	NoDialect Dialect = iota
	// CurrentDialect is draft-ietf-quic-ack-frequency-11.
	CurrentDialect
	// Draft00Dialect is the extension's first draft, which Firefox speaks. The frame
	// has the same layout with other meanings: the second field is the number of
	// packets per ACK, not one less, and the last field is a byte that is 1 to ignore
	// reordering. There is no IMMEDIATE_ACK.
	Draft00Dialect
)

// Encode returns the frame that asks for f.
func (d Dialect) Encode(sequence uint64, f AckFrequency) *wire.AckFrequencyFrame {
	frame := &wire.AckFrequencyFrame{
		SequenceNumber:        sequence,
		AckElicitingThreshold: uint64(min(f.Packets, maxRequestedPackets)),
		RequestMaxAckDelay:    f.Delay,
	}
	switch d {
	case CurrentDialect:
		frame.AckElicitingThreshold--
		frame.ReorderingThreshold = protocol.PacketNumber(f.Reordering)
	case Draft00Dialect:
		if f.Reordering == 0 {
			frame.ReorderingThreshold = 1
		}
	}
	return frame
}

// Decode is the reverse of Encode. Values out of any useful range are clamped, not refused.
func (d Dialect) Decode(frame *wire.AckFrequencyFrame) AckFrequency {
	f := AckFrequency{
		Packets:    int(min(frame.AckElicitingThreshold, math.MaxInt32-1)), // adding 1 must fit into a 32-bit int
		Delay:      min(frame.RequestMaxAckDelay, protocol.MaxMaxAckDelay),
		Reordering: int(min(frame.ReorderingThreshold, math.MaxInt32)),
	}
	switch d {
	case CurrentDialect:
		f.Packets++
	case Draft00Dialect:
		f.Packets = max(f.Packets, 1)
		f.Reordering = 1
		if frame.ReorderingThreshold != 0 {
			f.Reordering = 0
		}
	}
	return f
}

// asker is the state of the data sender's side.
type asker struct {
	dialect  Dialect
	minDelay time.Duration // the peer's

	acked    int // packets, until they are AckAfter
	sequence uint64
	last     AckFrequency // the newest request, stockFrequency before the first
	lastTime monotime.Time
}

// AdvertiseMinAckDelay returns the min_ack_delay transport parameter, nil for none.
func (c *Conn) AdvertiseMinAckDelay() *time.Duration {
	if c == nil || !c.cfg.AskPeer {
		return nil
	}
	d := MinAckDelay
	return &d
}

// SetPeer sets the peer's transport parameters: min_ack_delay in the form of the
// current draft and of the first one, nil if missing.
func (c *Conn) SetPeer(current, draft00 *time.Duration) {
	if c == nil || !c.cfg.AskPeer {
		return
	}
	c.ask.last = stockFrequency
	switch {
	case current != nil:
		c.ask.dialect, c.ask.minDelay = CurrentDialect, *current
	case draft00 != nil:
		c.ask.dialect, c.ask.minDelay = Draft00Dialect, *draft00
	}
}

// PeerDialect is the form of ACK_FREQUENCY that the peer speaks.
func (c *Conn) PeerDialect() Dialect {
	if c == nil {
		return NoDialect
	}
	return c.ask.dialect
}

// PeerHoldsAcks says if the peer was asked to hold back ACKs, and supports IMMEDIATE_ACK.
func (c *Conn) PeerHoldsAcks() bool {
	return c != nil && c.ask.dialect == CurrentDialect && c.ask.last != stockFrequency
}

// NextRequest returns the ACK_FREQUENCY frame to send now, if any: the first one
// after AckAfter packets, further ones when the delay changes by half or more, at
// most one per RTT.
func (c *Conn) NextRequest(now monotime.Time) *wire.AckFrequencyFrame {
	if c == nil || c.ask.dialect == NoDialect || c.cfg.AckPackets == 0 || c.ask.acked < c.cfg.AckAfter || !c.rtt.HasMeasurement() {
		return nil
	}
	if !c.ask.lastTime.IsZero() && now.Sub(c.ask.lastTime) < c.rtt.SmoothedRTT() {
		return nil
	}
	want := c.configured()
	want.Delay = max(want.Delay, c.ask.minDelay)
	last := c.ask.last
	if want.Packets == last.Packets && want.Delay < last.Delay*3/2 && want.Delay > last.Delay/2 {
		return nil
	}
	frame := c.ask.dialect.Encode(c.ask.sequence, want)
	c.ask.sequence++
	c.ask.last, c.ask.lastTime = want, now
	// The peer may now hold ACKs back for longer than it announced (RFC 9002, section 6.2.1).
	c.rtt.SetMaxAckDelay(max(c.rtt.MaxAckDelay(), want.Delay+protocol.TimerGranularity))
	return frame
}
