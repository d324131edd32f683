// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/quic-go/quic-go"
)

// Live is the sum over live connections; the RTTs are means, weighted by packets sent.
type Live struct {
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
func (l *Live) Add(s quic.BurstStats) {
	weight := float64(s.PacketsSent) + 1 // which a new connection has, too
	share := weight / (float64(l.PacketsSent) + float64(l.Connections) + weight)
	l.Connections++
	l.PacketsSent += s.PacketsSent
	l.PacketsReceived += s.PacketsReceived
	l.PacketsAcked += s.PacketsAcked
	l.PacketsLost += s.PacketsLost
	l.AcksSent += s.AcksSent
	l.AcksReceived += s.AcksReceived
	l.SmoothedRTT += (milliseconds(s.SmoothedRTT) - l.SmoothedRTT) * share
	l.MinRTT += (milliseconds(s.MinRTT) - l.MinRTT) * share
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }
