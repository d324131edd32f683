// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/qlog"
)

// burstSender is the stock sender with its own pacing and its own end of slow start.
type burstSender struct {
	*cubicSender
	cfg       burst.Config
	path      *burst.Path
	bucket    burst.Bucket
	slowStart burst.SlowStart
	queue     queueEstimate
}

// WithBurst wraps a sender made by NewCubicSender. It returns s itself if the
// configuration changes neither pacing nor congestion control.
func WithBurst(s SendAlgorithmWithDebugInfos, conn *burst.Conn) SendAlgorithmWithDebugInfos {
	cfg := conn.Config()
	c, ok := s.(*cubicSender)
	if !ok || cfg.BurstPackets == 0 && !ownSlowStart(cfg) && cfg.Congestion == burst.Reno {
		return s
	}
	if cfg.Congestion == burst.Cubic {
		c.reno = false
		return c
	}
	b := &burstSender{cubicSender: c, cfg: cfg, path: conn.Path(), slowStart: burst.NewSlowStart(cfg)}
	if cfg.Congestion == burst.Rate {
		return newRateSender(b)
	}
	return b
}

func ownSlowStart(cfg burst.Config) bool {
	return cfg.SlowStartDivisor != 0 || cfg.SlowStartMin != 0 || cfg.SlowStartMax != 0
}

// bucketSize is BurstPackets, bounded by the window, by the length of the queue, and by
// its room: a burst of n packets needs room for n. It is 0, and the stock pacer is used,
// while the stock pacer allows bursts that large.
func (s *burstSender) bucketSize() protocol.ByteCount {
	if s.cfg.BurstPackets <= 0 {
		return 0
	}
	srtt := s.rttStats.OwnSmoothedRTT()
	wait := s.path.Slack(srtt)
	if wait <= 0 {
		return 0
	}
	cwnd := s.GetCongestionWindow()
	queue := s.queue.of(cwnd, srtt, srtt-wait)
	if queue <= maxBurstSizePackets*s.maxDatagramSize {
		return 0
	}
	return min(protocol.ByteCount(s.cfg.BurstPackets)*s.maxDatagramSize, queue)
}

func (s *burstSender) rate() uint64 { return uint64(s.pacingRate() / BytesPerSecond) }

func (s *burstSender) TimeUntilSend(bytesInFlight protocol.ByteCount) monotime.Time {
	if s.cfg.BurstPackets == burst.Unlimited {
		return 0
	}
	if size := s.bucketSize(); size > 0 {
		return s.bucket.Until(s.rate(), size, s.maxDatagramSize)
	}
	return s.cubicSender.TimeUntilSend(bytesInFlight)
}

func (s *burstSender) HasPacingBudget(now monotime.Time) bool {
	if s.cfg.BurstPackets == burst.Unlimited {
		return true
	}
	if size := s.bucketSize(); size > 0 {
		return s.bucket.Ready(now, s.rate(), size, s.maxDatagramSize)
	}
	return s.cubicSender.HasPacingBudget(now)
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
		s.bucket.Sent(sentTime, s.rate(), max(s.bucketSize(), maxBurstSizePackets*s.maxDatagramSize), s.maxDatagramSize, bytes)
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
	if s.slowStart.Ended(s.GetCongestionWindow(), s.maxDatagramSize) {
		s.slowStartThreshold = s.congestionWindow
		if s.qlogger != nil {
			s.qlogger.RecordEvent(qlog.DebugEvent{EventName: "slow_start_ended", Message: s.slowStart.Reason(s.rttStats.MinRTT())})
		}
		s.maybeQlogStateChange(qlog.CongestionStateCongestionAvoidance)
	}
}
