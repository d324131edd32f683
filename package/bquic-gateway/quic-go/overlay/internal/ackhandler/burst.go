// SPDX-License-Identifier: Apache-2.0

package ackhandler

import (
	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/congestion"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// SetBurst lets b decide about ACKs in the application-data packet number space.
func (h *ReceivedPacketHandler) SetBurst(b *burst.Conn) { h.appDataPackets.burst = b }

// QueueAck makes the packet that is received next be acknowledged at once: the
// one with an IMMEDIATE_ACK frame, as frames are handled before their packet.
func (h *ReceivedPacketHandler) QueueAck() { h.appDataPackets.ackAtOnce = true }

// HasAck says if the next packet has a 1-RTT ACK: one that is due, or any if the
// packet goes anyway, because there is data to send.
func (h *ReceivedPacketHandler) HasAck(now monotime.Time, withData bool) bool {
	t := &h.appDataPackets
	return t.hasNewAck && (withData || t.ackQueued || !t.ackAlarm.IsZero() && !t.ackAlarm.After(now))
}

// burstReceivedPacket decides about the ACK for an ack-eliciting packet. It
// returns false if quic-go's own policy is to decide.
func (h *appDataReceivedPacketTracker) burstReceivedPacket(pn protocol.PacketNumber, ecn protocol.ECN, rcvTime monotime.Time) bool {
	h.burst.OnPacketReceived()
	if h.ackAtOnce {
		h.ackAtOnce = false
		h.ackQueued = true
		h.ackAlarm = 0
		return true
	}
	f, ok := h.burst.AckFrequency()
	if !ok {
		return false
	}
	switch {
	case h.ackQueued:
	case h.ackElicitingPacketsReceivedSinceLastAck >= f.Packets,
		ecn == protocol.ECNCE,
		f.Reordering == 1 && h.isMissing(pn),
		h.hasMissingBeyond(protocol.PacketNumber(f.Reordering)):
		h.ackQueued = true
		h.ackAlarm = 0
	case h.ackAlarm.IsZero(), h.ackAlarm.After(rcvTime.Add(f.Delay)):
		// Armed by the first packet since the last ACK: every packet is acknowledged in
		// time. That one may have come when ACKs were held back for longer: an odd packet
		// by the stock policy waits for 25 ms.
		h.ackAlarm = rcvTime.Add(f.Delay)
	}
	return true
}

// hasMissingBeyond says if a missing packet that no ACK has reported is at least
// threshold packets below the largest received one
// (draft-ietf-quic-ack-frequency, section 6.2). A threshold of 0 is never exceeded.
func (h *appDataReceivedPacketTracker) hasMissingBeyond(threshold protocol.PacketNumber) bool {
	if h.lastAck == nil || threshold == 0 || h.largestObserved < threshold {
		return false
	}
	missing := h.packetHistory.HighestMissingUpTo(h.largestObserved - threshold)
	return missing != protocol.InvalidPacketNumber && missing > h.lastAck.LargestAcked()-threshold
}

// SetBurst lets b decide about pacing, slow start and loss detection.
func SetBurst(sph SentPacketHandler, b *burst.Conn) {
	if h, ok := sph.(*sentPacketHandler); ok && b != nil {
		h.burst = b
		b.OnPathChanged()
		h.timeThresholdEighths = b.TimeThresholdEighths(h.timeThresholdEighths)
		h.congestion = congestion.WithBurst(h.congestion, b)
	}
}

func (h *sentPacketHandler) recordCongestion(now monotime.Time) {
	if h.burst != nil {
		r, ended := h.burst.OnAckEnd(now)
		congestion.OnAckEnd(h.congestion, r, ended)
		h.burst.OnCongestionState(now, h.congestion.InSlowStart(), h.congestion.GetCongestionWindow())
	}
}
