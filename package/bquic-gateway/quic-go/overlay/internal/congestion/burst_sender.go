// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/qlog"
)

// stockBurst is the size of the stock pacer's bucket, which every path is expected to take.
const stockBurst = maxBurstSizePackets

// burstSender is the stock sender with other pacing and another end of slow start.
type burstSender struct {
	*cubicSender
	cfg       burst.Config
	bucket    burst.Bucket
	slowStart burst.SlowStart
}

// WithBurst wraps a sender made by NewCubicSender. It returns s itself where cfg
// leaves pacing and slow start alone.
func WithBurst(s SendAlgorithmWithDebugInfos, cfg burst.Config) SendAlgorithmWithDebugInfos {
	c, ok := s.(*cubicSender)
	if !ok || cfg.BurstPackets == 0 && !ownSlowStart(cfg) {
		return s
	}
	return &burstSender{cubicSender: c, cfg: cfg, slowStart: burst.NewSlowStart(cfg)}
}

func ownSlowStart(cfg burst.Config) bool {
	return cfg.SlowStartDivisor != 0 || cfg.SlowStartMin != 0 || cfg.SlowStartMax != 0
}

// bucketSize is BurstPackets, but no more than the window, and no more than the
// queue that the path has shown to take: a burst of n packets needs room for n.
func (s *burstSender) bucketSize() protocol.ByteCount {
	size := min(protocol.ByteCount(s.cfg.BurstPackets)*s.maxDatagramSize, s.GetCongestionWindow())
	srtt, minRTT := s.rttStats.SmoothedRTT(), s.rttStats.MinRTT()
	if srtt <= 0 || minRTT > srtt {
		minRTT = srtt
	}
	var queue protocol.ByteCount
	if srtt > 0 {
		queue = protocol.ByteCount(float64(s.GetCongestionWindow()) * float64(srtt-minRTT) / float64(srtt))
	}
	return min(size, max(queue, stockBurst*s.maxDatagramSize))
}

func (s *burstSender) rate() uint64 { return uint64(s.pacingRate() / BytesPerSecond) }

func (s *burstSender) TimeUntilSend(bytesInFlight protocol.ByteCount) monotime.Time {
	switch s.cfg.BurstPackets {
	case 0:
		return s.cubicSender.TimeUntilSend(bytesInFlight)
	case burst.Unlimited:
		return 0
	default:
		return s.bucket.Until(s.rate(), s.bucketSize(), s.maxDatagramSize)
	}
}

func (s *burstSender) HasPacingBudget(now monotime.Time) bool {
	switch s.cfg.BurstPackets {
	case 0:
		return s.cubicSender.HasPacingBudget(now)
	case burst.Unlimited:
		return true
	default:
		return s.bucket.Ready(now, s.rate(), s.bucketSize(), s.maxDatagramSize)
	}
}

func (s *burstSender) OnPacketSent(
	sentTime monotime.Time,
	bytesInFlight protocol.ByteCount,
	pn protocol.PacketNumber,
	bytes protocol.ByteCount,
	isRetransmittable bool,
) {
	s.cubicSender.OnPacketSent(sentTime, bytesInFlight, pn, bytes, isRetransmittable)
	if s.cfg.BurstPackets > 0 {
		s.bucket.Sent(sentTime, s.rate(), s.bucketSize(), s.maxDatagramSize, bytes)
	}
	if isRetransmittable {
		s.slowStart.OnPacketSent(pn)
	}
}

// MaybeExitSlowStart is called once for each ACK that updated the RTT.
func (s *burstSender) MaybeExitSlowStart() {
	if !ownSlowStart(s.cfg) {
		s.cubicSender.MaybeExitSlowStart()
		return
	}
	if s.InSlowStart() {
		s.slowStart.OnRTT(s.rttStats.LatestRTT(), s.rttStats.MinRTT())
		s.maybeEndSlowStart()
	}
}

func (s *burstSender) OnPacketAcked(pn protocol.PacketNumber, ackedBytes, priorInFlight protocol.ByteCount, eventTime monotime.Time) {
	s.cubicSender.OnPacketAcked(pn, ackedBytes, priorInFlight, eventTime)
	if ownSlowStart(s.cfg) && s.InSlowStart() {
		s.slowStart.OnPacketAcked(pn, s.rttStats.MinRTT())
		s.maybeEndSlowStart()
	}
}

func (s *burstSender) maybeEndSlowStart() {
	if s.slowStart.Ended(s.GetCongestionWindow() / s.maxDatagramSize) {
		s.slowStartThreshold = s.congestionWindow
		s.maybeQlogStateChange(qlog.CongestionStateCongestionAvoidance)
	}
}

func (s *burstSender) OnRetransmissionTimeout(packetsRetransmitted bool) {
	s.cubicSender.OnRetransmissionTimeout(packetsRetransmitted)
	s.slowStart.Restart()
}
