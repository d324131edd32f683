// SPDX-License-Identifier: Apache-2.0

package ackhandler

import (
	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/congestion"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// SetBurst lets b decide on ACKs in the application-data packet number space.
func (h *ReceivedPacketHandler) SetBurst(b *burst.Conn) { h.appDataPackets.burst = b }

// QueueAck requests an immediate ACK for the next packet received. That is the
// packet with the IMMEDIATE_ACK frame, because frames are handled before their packet.
func (h *ReceivedPacketHandler) QueueAck() { h.appDataPackets.ackAtOnce = true }

// HasAck says if the next packet carries a 1-RTT ACK: one that is due, or, if a packet
// is sent anyway because there is data, any.
func (h *ReceivedPacketHandler) HasAck(now monotime.Time, withData bool) bool {
	t := &h.appDataPackets
	return t.hasNewAck && (withData || t.ackQueued || !t.ackAlarm.IsZero() && !t.ackAlarm.After(now))
}

// burstReceivedPacket decides on the ACK for an ack-eliciting packet. It returns false
// if quic-go's own policy should decide.
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
		// The first packet since the last ACK arms the alarm, so that every packet is
		// acknowledged in time. The delay may have been longer when that packet
		// arrived: with the stock policy, an odd packet waits for 25 ms.
		h.ackAlarm = rcvTime.Add(f.Delay)
	}
	return true
}

// hasMissingBeyond says if a missing packet that no ACK has reported is at least
// threshold packets below the largest received one
// (draft-ietf-quic-ack-frequency, section 6.2). With a threshold of 0, it never is.
func (h *appDataReceivedPacketTracker) hasMissingBeyond(threshold protocol.PacketNumber) bool {
	if h.lastAck == nil || threshold == 0 || h.largestObserved < threshold {
		return false
	}
	missing := h.packetHistory.HighestMissingUpTo(h.largestObserved - threshold)
	return missing != protocol.InvalidPacketNumber && missing > h.lastAck.LargestAcked()-threshold
}

// SetBurst lets b decide on pacing, slow start and loss detection.
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

// ProbeNow sends a probe packet if PTOs have expired without an answer and nothing was sent for the time of a PTO without its
// backoff. After an outage, the next PTO may be as far away as the outage was long (RFC 9002, section 6.2.1), although
// the path works again. ProbeNow is for a PING of the application or of the peer, so these decide how often.
func ProbeNow(sph SentPacketHandler, now monotime.Time) {
	h, ok := sph.(*sentPacketHandler)
	if !ok || !h.handshakeConfirmed || h.ptoCount == 0 || h.numProbesToSend > 0 ||
		now.Before(h.appDataPackets.lastAckElicitingPacketTime.Add(h.rttStats.PTO(true))) {
		return
	}
	h.ptoMode = SendPTOAppData
	h.numProbesToSend = 1
}
