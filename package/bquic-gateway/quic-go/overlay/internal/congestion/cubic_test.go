// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"

	"github.com/stretchr/testify/require"
)

func TestWithBurstChoosesTheSender(t *testing.T) {
	for _, tc := range []struct {
		congestion burst.Congestion
		reno, rate bool
	}{
		{burst.Reno, true, false},
		{burst.Rate, true, true},
		{burst.Cubic, false, false},
	} {
		rtt := utils.NewRTTStats()
		stock := NewCubicSender(DefaultClock{}, rtt, &utils.ConnectionStats{}, initialMaxDatagramSize, true, nil)
		s := WithBurst(stock, burst.NewConn(burst.Config{Congestion: tc.congestion}, rtt))
		_, rate := s.(*rateSender)
		require.Equal(t, tc.rate, rate)
		require.Equal(t, tc.reno, stock.reno)
	}
}

// With thresholds of its own, slow start ends when all first RTT samples of a round are above them, not before.
func TestOwnThresholdsOfSlowStart(t *testing.T) {
	const size = 1200
	rtt := utils.NewRTTStats()
	conn := burst.NewConn(burst.Config{Congestion: burst.Reno, SlowStartDivisor: 1, SlowStartMin: 40 * time.Millisecond}, rtt)
	s := WithBurst(NewCubicSender(DefaultClock{}, rtt, &utils.ConnectionStats{}, size, true, nil), conn)
	now := monotime.Now()
	var pn protocol.PacketNumber
	for _, round := range []struct {
		rtt  time.Duration
		ends bool
	}{{50 * time.Millisecond, false}, {85 * time.Millisecond, false}, {150 * time.Millisecond, true}} {
		require.True(t, s.InSlowStart())
		window, first := s.GetCongestionWindow(), pn
		for sent := protocol.ByteCount(0); sent < window; sent += size {
			s.OnPacketSent(now, sent, pn, size, true)
			pn++
		}
		now = now.Add(round.rtt)
		for acked := first; acked < pn; acked++ {
			rtt.UpdateRTT(round.rtt, 0)
			s.MaybeExitSlowStart()
			s.OnPacketAcked(acked, size, window, now)
		}
		require.Equal(t, round.ends, !s.InSlowStart(), "after a round of %v", round.rtt)
	}
}
