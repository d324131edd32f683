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

// On a path without a queue, losses are random, and marks are not.
func TestRateSenderLossAndMark(t *testing.T) {
	const size = 1200
	for _, tc := range []struct {
		name string
		lost protocol.ByteCount
		less bool
	}{{"loss", size, false}, {"mark", 0, true}} {
		t.Run(tc.name, func(t *testing.T) {
			rtt := utils.NewRTTStats()
			conn := burst.NewConn(burst.Config{Congestion: burst.Rate}, rtt)
			now := monotime.Now()
			s := WithBurst(NewCubicSender(DefaultClock{}, rtt, &utils.ConnectionStats{}, size, true, nil), conn)
			var pn protocol.PacketNumber
			for round := range 5 { // each a window
				window := s.GetCongestionWindow()
				inFlight := window
				if round == 4 {
					inFlight = 0 // it does not grow
				}
				first := pn
				for sent := protocol.ByteCount(0); sent < window; sent += size {
					s.OnPacketSent(now, sent, pn, size, true)
					conn.OnPacketSent(now, pn, false)
					pn++
				}
				now = now.Add(50 * time.Millisecond)
				rtt.UpdateRTT(50*time.Millisecond, 0)
				for acked := first; acked < pn; acked++ {
					conn.OnPacketAcked(acked, size)
					s.OnPacketAcked(acked, size, inFlight, now)
				}
				r, ended := conn.OnAckEnd(now)
				OnAckEnd(s, r, ended)
			}
			before := s.GetCongestionWindow()
			s.OnPacketSent(now, 0, pn, size, true)
			s.OnCongestionEvent(pn, tc.lost, before)
			if book := protocol.ByteCount(float64(before) * renoBeta); tc.less {
				require.Equal(t, book, s.GetCongestionWindow())
			} else {
				require.Greater(t, s.GetCongestionWindow(), book)
			}
			require.False(t, s.InSlowStart())
		})
	}
}

// A queue has drained, and the smoothed RTT still includes it. Packets are paced by what the path has shown since.
func TestRateSenderPacingAfterQueue(t *testing.T) {
	const size, queue, least = 1200, 400 * time.Millisecond, 5 * time.Millisecond
	rtt := utils.NewRTTStats()
	conn := burst.NewConn(burst.Config{Congestion: burst.Rate}, rtt)
	now := monotime.Now()
	s := WithBurst(NewCubicSender(DefaultClock{}, rtt, &utils.ConnectionStats{}, size, true, nil), conn).(*rateSender)
	require.NotZero(t, s.BandwidthEstimate(), "before the first sample")
	var pn protocol.PacketNumber
	for _, sample := range []time.Duration{least, queue, queue, queue, queue, least, least} { // rounds
		s.OnPacketSent(now, 0, pn, size, true)
		conn.OnPacketSent(now, pn, false)
		now = now.Add(sample)
		rtt.UpdateRTT(sample, 0)
		conn.OnPacketAcked(pn, size)
		s.OnPacketAcked(pn, size, s.GetCongestionWindow(), now)
		r, ended := conn.OnAckEnd(now)
		OnAckEnd(s, r, ended)
		pn++
	}
	require.Greater(t, rtt.SmoothedRTT(), queue/4)
	require.Equal(t, BandwidthFromDelta(s.GetCongestionWindow(), least), s.BandwidthEstimate())
}
