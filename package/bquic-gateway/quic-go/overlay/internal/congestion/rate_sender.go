// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/qlog"
)

// rateSender is Reno with a model of the path. It detects the end of slow start, grows
// faster without a queue, reduces the window after a loss no more than necessary, and
// paces by the RTT of the last round.
type rateSender struct {
	*burstSender
	window burst.Window
	credit protocol.ByteCount
}

func newRateSender(s *burstSender) *rateSender {
	s.estimate.path = s.path
	return &rateSender{burstSender: s, window: burst.NewWindow()}
}

// MaybeExitSlowStart does nothing: rounds decide.
func (s *rateSender) MaybeExitSlowStart() {}

func (s *rateSender) OnPacketAcked(pn protocol.PacketNumber, ackedBytes, priorInFlight protocol.ByteCount, _ monotime.Time) {
	s.largestAckedPacketNumber = max(pn, s.largestAckedPacketNumber)
	if !s.isCwndLimited(priorInFlight) {
		s.maybeQlogStateChange(qlog.CongestionStateApplicationLimited)
		return
	}
	s.path.Limited()
	if s.InRecovery() && s.window.Step() == 1 || s.congestionWindow >= s.maxCongestionWindow() {
		return
	}
	if s.InSlowStart() {
		s.maybeQlogStateChange(qlog.CongestionStateSlowStart)
		if s.window.Doubt() {
			s.congestionWindow += s.maxDatagramSize / 4
		} else {
			s.congestionWindow += s.maxDatagramSize
		}
	} else {
		s.maybeQlogStateChange(qlog.CongestionStateCongestionAvoidance)
		s.credit += ackedBytes * s.window.Step()
		if s.credit >= s.congestionWindow {
			s.credit -= s.congestionWindow
			s.congestionWindow += s.maxDatagramSize
		}
	}
	s.congestionWindow = min(s.congestionWindow, s.maxCongestionWindow())
	s.connStats.CongestionWindow.Store(uint64(s.congestionWindow))
}

func (s *rateSender) OnCongestionEvent(pn protocol.PacketNumber, lostBytes, priorInFlight protocol.ByteCount) {
	before, cutback := s.congestionWindow, s.largestSentAtLastCutback
	s.cubicSender.OnCongestionEvent(pn, lostBytes, priorInFlight)
	if s.largestSentAtLastCutback == cutback {
		return
	}
	s.credit = 0
	rtt := s.rttStats.LatestRTT()
	if lostBytes == 0 { // a mark of congestion
		s.window.OnMark(s.path, rtt, before, s.congestionWindow, s.maxDatagramSize)
		return
	}
	s.congestionWindow = s.window.OnLoss(s.path, rtt, before, s.congestionWindow, s.maxDatagramSize)
	s.slowStartThreshold = s.congestionWindow
	s.connStats.CongestionWindow.Store(uint64(s.congestionWindow))
}

// OnSpuriousLoss may undo the end of slow start.
func (s *rateSender) OnSpuriousLoss(pn protocol.PacketNumber) {
	over := !s.InSlowStart()
	s.cubicSender.OnSpuriousLoss(pn)
	if over && s.InSlowStart() {
		s.window.Undo()
	}
}

func (s *rateSender) onAckEnd(r burst.Round, ended bool) {
	packets := s.congestionWindow / s.maxDatagramSize
	s.window.OnAck(s.path, packets)
	if !ended {
		return
	}
	if set := s.window.OnRound(r, s.path, packets, s.maxDatagramSize); set > 0 {
		s.congestionWindow = set * s.maxDatagramSize
		s.connStats.CongestionWindow.Store(uint64(s.congestionWindow))
	}
	if s.window.Started() && s.InSlowStart() {
		s.slowStartThreshold = s.congestionWindow
		s.maybeQlogStateChange(qlog.CongestionStateCongestionAvoidance)
	}
}

// OnAckEnd is called after all other processing of an ACK, with the round that the ACK
// has ended, if any.
func OnAckEnd(s SendAlgorithm, r burst.Round, ended bool) {
	if s, ok := s.(*rateSender); ok {
		s.onAckEnd(r, ended)
	}
}
