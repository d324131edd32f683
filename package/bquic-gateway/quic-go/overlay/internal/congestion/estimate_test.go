// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"

	"github.com/stretchr/testify/require"
)

// An estimate is current, whatever was computed before.
func TestEstimates(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var rate bandwidthEstimate
	var queue queueEstimate
	p := newPacer()
	windows := []protocol.ByteCount{2 * 1200, 32 * 1252, 14_520_000}
	rtts := []time.Duration{time.Microsecond, 700 * time.Microsecond, 30 * time.Millisecond, time.Minute}
	for range 2000 {
		window := windows[r.IntN(len(windows))]
		rtt := rtts[r.IntN(len(rtts))]
		path := rtt / time.Duration(1+r.IntN(3))
		p.maxDatagramSize = protocol.ByteCount(1200 + 52*r.IntN(3))
		want := BandwidthFromDelta(window, rtt)
		require.Equal(t, want, rate.of(window, rtt))
		require.Equal(t,
			max(p.timeScaledBandwidth(minPacingDelay+protocol.TimerGranularity, want), maxBurstSizePackets*p.maxDatagramSize),
			p.maxBurstSize(want))
		got := queue.of(window, rtt, path)
		exact := float64(window) * float64(rtt-path) / float64(rtt)
		// Times are in whole microseconds.
		require.InDelta(t, exact, float64(got), 1+float64(window)/float64(max(rtt/time.Microsecond, 1)))
	}
}

// Pacing a burst needs no division: its packets use the same estimates.
func TestBurstWithoutDivision(t *testing.T) {
	rtt := utils.NewRTTStats()
	rtt.UpdateRTT(20*time.Millisecond, 0)
	rtt.UpdateRTT(60*time.Millisecond, 0)
	c := NewCubicSender(DefaultClock{}, rtt, &utils.ConnectionStats{}, 1252, false, nil)
	now := monotime.Now()
	c.OnPacketSent(now, 0, 0, 1252, true)
	estimate, burst := c.estimate, c.pacer.burst
	// Only a new estimate would overwrite these marked values.
	c.estimate.rate += 8
	c.pacer.burst.rate = c.pacingRate()
	c.pacer.burst.size = 1 << 20
	for pn := range protocol.PacketNumber(9) {
		require.True(t, c.HasPacingBudget(now))
		c.OnPacketSent(now, 0, pn+1, 1252, true)
	}
	require.Equal(t, estimate.rate+8, c.estimate.rate)
	require.Equal(t, protocol.ByteCount(1<<20), c.pacer.burst.size)
	// A new RTT leads to new estimates.
	rtt.UpdateRTT(80*time.Millisecond, 0)
	c.HasPacingBudget(now)
	require.NotEqual(t, estimate.rate+8, c.estimate.rate)
	require.NotEqual(t, protocol.ByteCount(1<<20), c.pacer.burst.size)
	require.NotZero(t, burst.size)
}
