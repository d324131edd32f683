// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"
	"github.com/quic-go/quic-go/internal/wire"
)

// Conn is our state of one connection. A nil *Conn is stock behaviour: every method
// may be called on it. Except for Stats, only the connection's run loop uses it.
type Conn struct {
	cfg Config
	rtt *utils.RTTStats

	ack ackPolicy
	ask asker
	rec recorder

	hole blackHole
	path Path
}

// NewConn returns nil for the zero Config.
func NewConn(cfg Config, rtt *utils.RTTStats) *Conn {
	if cfg == (Config{}) {
		return nil
	}
	return &Conn{cfg: cfg, rtt: rtt, hole: newBlackHole(protocol.InvalidPacketNumber)}
}

// Config returns the configuration, zero for a nil Conn.
func (c *Conn) Config() Config {
	if c == nil {
		return Config{}
	}
	return c.cfg
}

// MaxAckDelay is the max_ack_delay to advertise, given the stock one.
func (c *Conn) MaxAckDelay(stock time.Duration) time.Duration {
	if c == nil {
		return stock
	}
	return max(stock, c.cfg.AckDelay+protocol.TimerGranularity)
}

// PacketThreshold is the packet threshold of loss detection, given the stock one.
func (c *Conn) PacketThreshold(stock protocol.PacketNumber) protocol.PacketNumber {
	if c == nil || c.cfg.LossPackets == 0 {
		return stock
	}
	return protocol.PacketNumber(c.cfg.LossPackets)
}

// TimeThresholdEighths is the initial time threshold of loss detection, given the stock one.
func (c *Conn) TimeThresholdEighths(stock uint8) uint8 {
	if c == nil || c.cfg.LossEighths == 0 {
		return stock
	}
	return uint8(min(c.cfg.LossEighths, 255))
}

// OnPacketSent counts an ack-eliciting 1-RTT packet. An MTU probe does not start the
// wait for an ACK.
func (c *Conn) OnPacketSent(now monotime.Time, pn protocol.PacketNumber, probe bool) {
	if c != nil {
		c.rec.sent(now)
		c.path.OnPacketSent(pn)
		c.hole.sent = pn
		if c.hole.waiting.IsZero() && !probe {
			c.hole.waiting = now
		}
	}
}

// OnPacketReceived counts an ack-eliciting 1-RTT packet.
func (c *Conn) OnPacketReceived() {
	if c != nil {
		c.ack.received = min(c.ack.received, c.cfg.AckAfter) + 1 // never overflows
		c.rec.receivedPacket()
	}
}

// OnReceived counts the payload of a 1-RTT packet.
func (c *Conn) OnReceived(size protocol.ByteCount) {
	if c != nil {
		c.path.OnReceived(size)
	}
}

// OnAckSent counts a 1-RTT ACK.
func (c *Conn) OnAckSent() {
	if c != nil {
		c.rec.ackSent()
	}
}

// OnPacketAcked notes a 1-RTT packet that arrived, and its size.
func (c *Conn) OnPacketAcked(pn protocol.PacketNumber, size protocol.ByteCount) {
	if c != nil {
		c.hole.acked(pn, size)
		c.path.OnPacketAcked(pn, size)
	}
}

// OnAckReceived counts a 1-RTT ACK and the packets that it newly acknowledged,
// after OnPacketAcked for each of them.
func (c *Conn) OnAckReceived(ack *wire.AckFrame, packets int) {
	if c != nil {
		c.ask.acked = min(c.ask.acked, c.cfg.AckAfter) + packets
		c.rec.ackReceived(packets)
		c.hole.received(ack)
		if packets > 0 {
			c.hole.waiting = 0
		}
	}
}

// OnPacketLost counts an ack-eliciting packet declared lost.
func (c *Conn) OnPacketLost(pn protocol.PacketNumber, size protocol.ByteCount) {
	if c != nil {
		c.rec.lost()
		c.path.OnPacketLost(size)
		c.hole.missing(pn, size)
	}
}

// OnPacketRepeated notes a packet that a PTO probe repeats.
func (c *Conn) OnPacketRepeated(pn protocol.PacketNumber, size protocol.ByteCount) {
	if c != nil {
		c.hole.repeat(pn, size)
	}
}

// OnSpuriousLosses counts packets declared lost that were acknowledged afterwards.
func (c *Conn) OnSpuriousLosses(pns []protocol.PacketNumber) {
	if c != nil && len(pns) > 0 {
		c.rec.spurious(len(pns))
		for _, pn := range pns {
			c.hole.acked(pn, BasePacketSize+1) // its size is unknown: if in doubt, no black hole
		}
	}
}

// Path returns the model of the path, never nil.
func (c *Conn) Path() *Path { return &c.path }

// OnAckEnd is called after all other processing of an ACK. If the ACK has ended a
// round, it returns the round and true.
func (c *Conn) OnAckEnd(now monotime.Time) (Round, bool) {
	if c.rtt.HasMeasurement() {
		c.path.OnRTT(now, c.rtt.LatestRTT())
	}
	return c.path.OnAck(now)
}

// slack returns how long packets or their ACKs may be held back.
func (c *Conn) slack() time.Duration { return c.path.Slack(c.rtt.SmoothedRTT()) }

// OnCongestionState notes the congestion window, and the end of slow start when it comes.
func (c *Conn) OnCongestionState(now monotime.Time, inSlowStart bool, cwnd protocol.ByteCount) {
	if c != nil {
		c.rec.congestion(now, inSlowStart, cwnd)
	}
}

// Stats returns a snapshot. It is safe to call from any goroutine.
func (c *Conn) Stats() Stats {
	if c == nil {
		return Stats{}
	}
	s := c.rec.snapshot()
	if s.PacketsAcked > 0 {
		s.MinRTT, s.SmoothedRTT = c.rtt.MinRTT(), c.rtt.SmoothedRTT()
	}
	return s
}
