// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/burst"

// A Burst tunes a connection for 802.11 frame aggregation. Its zero value is
// stock behaviour.
type Burst = burst.Config

// BurstUnlimited lifts the limit of Burst.AckPackets or Burst.BurstPackets.
const BurstUnlimited = burst.Unlimited

// The RTT that Burst.AckRTTDivisor divides.
const (
	BurstSmoothedRTT = burst.SmoothedRTT
	BurstMinRTT      = burst.MinRTT
	BurstQueueRTT    = burst.QueueRTT
)

// BurstStats are the statistics of a connection.
type BurstStats = burst.Stats

// BurstStats returns a snapshot. It is empty if Burst is zero. It is
// safe to call at any time, even after the connection was closed.
func (c *Conn) BurstStats() BurstStats { return c.burst.Stats() }

// The congestion controls of Burst.Congestion.
const (
	BurstReno  = burst.Reno
	BurstRate  = burst.Rate
	BurstCubic = burst.Cubic
)
