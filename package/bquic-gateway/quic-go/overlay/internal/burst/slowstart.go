// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quic-go/quic-go/internal/protocol"
)

const (
	stockSlowStartDivisor = 8
	stockSlowStartMin     = 4 * time.Millisecond
	stockSlowStartMax     = 16 * time.Millisecond

	// The number of RTT samples at the beginning of a round that decide, as in
	// HyStart. With fewer ACKs, the decision comes at the end of the round.
	slowStartSamples = 8
	// Windows below this many packets say nothing about a queue (HyStart's low window).
	slowStartLowWindow = 16
)

// SlowStart detects the end of slow start by the rise of a round's least RTT over
// the connection's least RTT (HyStart's delay increase), with its own limits.
//
// The queue is bounded: the round before the last had a rise below the threshold,
// and the window at most doubles per round. So when slow start ends, packets wait
// for at most minRTT + 2*threshold beyond minRTT.
type SlowStart struct {
	divisor, lower, upper time.Duration

	lastSent protocol.PacketNumber

	inRound  bool
	roundEnd protocol.PacketNumber
	samples  int
	roundMin time.Duration
	found    bool
}

// NewSlowStart uses stock values where cfg has none.
func NewSlowStart(cfg Config) SlowStart {
	return SlowStart{
		divisor: time.Duration(cmp.Or(cfg.SlowStartDivisor, stockSlowStartDivisor)),
		lower:   cmp.Or(cfg.SlowStartMin, stockSlowStartMin),
		upper:   cmp.Or(cfg.SlowStartMax, stockSlowStartMax),
	}
}

// Threshold is the rise of the RTT that ends slow start.
func (s *SlowStart) Threshold(minRTT time.Duration) time.Duration {
	return max(min(minRTT/s.divisor, s.upper), s.lower)
}

// OnPacketSent notes the largest packet number sent.
func (s *SlowStart) OnPacketSent(pn protocol.PacketNumber) { s.lastSent = pn }

// OnRTT takes the RTT sample of an ACK, before OnPacketAcked for its packets.
func (s *SlowStart) OnRTT(rtt, minRTT time.Duration) {
	if !s.inRound {
		s.inRound, s.samples, s.roundMin, s.roundEnd = true, 0, rtt, s.lastSent
	}
	if s.samples < slowStartSamples {
		s.samples++
		s.roundMin = min(s.roundMin, rtt)
		if s.samples == slowStartSamples {
			s.decide(minRTT)
		}
	}
}

// OnPacketAcked ends the round with its last packet.
func (s *SlowStart) OnPacketAcked(pn protocol.PacketNumber, minRTT time.Duration) {
	if s.inRound && pn >= s.roundEnd {
		s.decide(minRTT)
		s.inRound = false
	}
}

func (s *SlowStart) decide(minRTT time.Duration) {
	if s.roundMin > minRTT+s.Threshold(minRTT) {
		s.found = true
	}
}

// Ended says if slow start is over, given a window of cwnd bytes in packets of packet bytes.
func (s *SlowStart) Ended(cwnd, packet protocol.ByteCount) bool {
	return s.found && cwnd >= slowStartLowWindow*packet
}

// Reason says in words what ended slow start.
func (s *SlowStart) Reason(minRTT time.Duration) string {
	return fmt.Sprintf("a round's least RTT was %s, the least of all %s, the threshold %s", s.roundMin, minRTT, s.Threshold(minRTT))
}
