// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/quic-go/quic-go"
)

// A Sum is the sum over connections; the RTTs are means, weighted by packets sent.
type Sum struct {
	Connections     int     `json:"connections"`
	PacketsSent     uint64  `json:"packets_sent"`
	PacketsReceived uint64  `json:"packets_received"`
	PacketsAcked    uint64  `json:"packets_acked"`
	PacketsLost     uint64  `json:"packets_lost"`
	AcksSent        uint64  `json:"acks_sent"`
	AcksReceived    uint64  `json:"acks_received"`
	SmoothedRTT     float64 `json:"smoothed_rtt_ms"`
	MinRTT          float64 `json:"min_rtt_ms"`
}

// Add adds a connection.
func (a *Sum) Add(s quic.BurstStats) {
	weight := float64(s.PacketsSent) + 1 // which a new connection has, too
	share := weight / (float64(a.PacketsSent) + float64(a.Connections) + weight)
	a.Connections++
	a.PacketsSent += s.PacketsSent
	a.PacketsReceived += s.PacketsReceived
	a.PacketsAcked += s.PacketsAcked
	a.PacketsLost += s.PacketsLost
	a.AcksSent += s.AcksSent
	a.AcksReceived += s.AcksReceived
	a.SmoothedRTT += (milliseconds(s.SmoothedRTT) - a.SmoothedRTT) * share
	a.MinRTT += (milliseconds(s.MinRTT) - a.MinRTT) * share
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }
