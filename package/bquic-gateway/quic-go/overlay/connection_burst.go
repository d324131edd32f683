// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"fmt"
	"sync"

	"github.com/quic-go/quic-go/internal/ackhandler"
	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/qerr"
	"github.com/quic-go/quic-go/internal/wire"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/quicvarint"
)

// setupBurst is called once the sent packet handler exists and before params are sent.
func (c *Conn) setupBurst(params *wire.TransportParameters) {
	ackhandler.SetBurst(c.sentPacketHandler, c.burst)
	params.MaxAckDelay = c.burst.MaxAckDelay(params.MaxAckDelay)
	params.MinAckDelay = c.burst.AdvertiseMinAckDelay()
	params.MinAckDelayDraft00 = params.MinAckDelay
}

// setBurstPeer is called with the peer's transport parameters.
func (c *Conn) setBurstPeer(params *wire.TransportParameters) {
	c.burst.SetPeer(params.MinAckDelay, params.MinAckDelayDraft00)
	if p, ok := c.packer.(*packetPacker); ok {
		p.burst = c.burst
	}
}

// maybeAskPeer sends an ACK_FREQUENCY frame when one is due.
func (c *Conn) maybeAskPeer(now monotime.Time) {
	if f := c.burst.NextRequest(now); f != nil {
		c.framer.QueueControlFrame(f)
	}
}

func (c *Conn) handleAckFrequencyFrame(f *wire.AckFrequencyFrame) error {
	if f.RequestMaxAckDelay < burst.MinAckDelay {
		return &qerr.TransportError{
			ErrorCode:    qerr.ProtocolViolation,
			FrameType:    uint64(wire.FrameTypeAckFrequency),
			ErrorMessage: fmt.Sprintf("requested max_ack_delay of %s is below min_ack_delay (%s)", f.RequestMaxAckDelay, burst.MinAckDelay),
		}
	}
	dialect := c.burst.PeerDialect()
	if dialect == burst.NoDialect {
		dialect = burst.CurrentDialect // a peer that asks but can't be asked
	}
	c.burst.Request(f.SequenceNumber, dialect.Decode(f))
	return nil
}

// queueImmediateAck makes a PTO probe ask for an immediate ACK
// (draft-ietf-quic-ack-frequency, section 8.3).
func (c *Conn) queueImmediateAck(encLevel protocol.EncryptionLevel) {
	if encLevel == protocol.Encryption1RTT && c.burst.PeerDialect() == burst.CurrentDialect {
		c.framer.QueueControlFrame(&wire.ImmediateAckFrame{})
	}
}

// maybeAppendImmediateAck adds an IMMEDIATE_ACK frame to the packet that ends a stream, when there is nothing left
// to send and the peer holds ACKs back at our request. Losses among the last packets are then known an RTT later.
// A tunnel that has only paused gets no such frame: its next data may arrive before the packet has left.
// The frame is not retransmitted.
func (p *packetPacker) maybeAppendImmediateAck(pl *payload, maxSize protocol.ByteCount, v protocol.Version) {
	f := &wire.ImmediateAckFrame{}
	ends := false
	for _, sf := range pl.streamFrames {
		ends = ends || sf.Frame.Fin
	}
	if !ends || !p.burst.PeerHoldsAcks() || pl.length+f.Length(v) > maxSize ||
		p.framer.HasData() || p.retransmissionQueue.HasData(protocol.Encryption1RTT) {
		return
	}
	// In front of datagrams, because the last datagram has no length.
	pl.frames = append([]ackhandler.Frame{{Frame: f}}, pl.frames...)
	pl.length += f.Length(v)
}

// maybeShrinkPackets is called before packets are sent.
func (c *Conn) maybeShrinkPackets(now monotime.Time) {
	if c.mtuDiscoverer == nil || !c.burst.FoundBlackHole() {
		return
	}
	c.mtuDiscoverer.fall(now)
	c.maxPayloadSizeEstimate.Store(uint32(estimateMaxPayloadSize(burst.BasePacketSize)))
	c.sentPacketHandler.SetMaxDatagramSize(burst.BasePacketSize)
	if c.qlogger != nil {
		c.qlogger.RecordEvent(qlog.MTUUpdated{Value: burst.BasePacketSize})
	}
}

// A windowRider lets window updates ride on ACKs (ModQUIC): each ACK carries the
// windows of the connection and of all streams that were read since the last one.
// Nil is stock behaviour.
type windowRider struct {
	mx      sync.Mutex
	streams map[*streamFlowController]struct{}
}

func newWindowRider(cfg Burst) *windowRider {
	if !cfg.WindowUpdates {
		return nil
	}
	return &windowRider{streams: make(map[*streamFlowController]struct{})}
}

// read notes that data of a stream was read.
func (r *windowRider) read(c *streamFlowController) {
	if r != nil {
		r.mx.Lock()
		r.streams[c] = struct{}{}
		r.mx.Unlock()
	}
}

// take returns the streams that were read since the last call.
func (r *windowRider) take() map[*streamFlowController]struct{} {
	next := make(map[*streamFlowController]struct{})
	r.mx.Lock()
	streams := r.streams
	r.streams = next
	r.mx.Unlock()
	return streams
}

// maybeRideWindowUpdates queues window updates if the next packet has an ACK.
func (c *Conn) maybeRideWindowUpdates(now monotime.Time) {
	rider := c.connFlowController.rider
	if rider == nil {
		return
	}
	withData := c.framer.HasData() || c.retransmissionQueue.HasData(protocol.Encryption1RTT)
	if !c.receivedPacketHandler.HasAck(now, withData) {
		return
	}
	c.connFlowController.riding = true
	if offset := c.connFlowController.GetWindowUpdate(now); offset > 0 {
		c.framer.QueueControlFrame(&wire.MaxDataFrame{MaximumData: offset})
	}
	c.connFlowController.riding = false
	for fc := range rider.take() {
		fc.riding = true
		if offset := fc.GetWindowUpdate(now); offset > 0 {
			c.framer.QueueControlFrame(&wire.MaxStreamDataFrame{StreamID: fc.streamID, MaximumStreamData: offset})
		}
		fc.riding = false
	}
}

// rides says if there is an update to ride on an ACK, however small.
func (c *receiveFlowController) rides() bool {
	offset := c.bytesRead + c.receiveWindowSize
	return c.riding && offset > c.receiveWindow && offset <= quicvarint.Max
}

// Ping sends a PING frame (RFC 9000, section 19.2), which the peer acknowledges. Neither the congestion window nor the
// backoff of PTOs holds it back for long (ackhandler.ProbeNow).
func (c *Conn) Ping() {
	c.pinged.Store(true)
	c.queueControlFrame(&wire.PingFrame{})
}
