// SPDX-License-Identifier: Apache-2.0

package burst

import "time"

// Stats describe one connection, from its start. Packets are 1-RTT packets.
type Stats struct {
	PacketsSent     uint64 `json:"packets_sent"`     // ack-eliciting
	PacketsReceived uint64 `json:"packets_received"` // ack-eliciting
	AcksSent        uint64 `json:"acks_sent"`
	AcksReceived    uint64 `json:"acks_received"`
	// Ack-eliciting packets newly acknowledged by the peer, for the sender's data per ACK.
	PacketsAcked uint64 `json:"packets_acked"`

	PacketsLost         uint64 `json:"packets_lost"`
	PacketsLostSpurious uint64 `json:"packets_lost_spurious"`

	// Time between two ack-eliciting packets sent: bucket i counts times below
	// 1 us << i, the last one all longer times.
	InterPacketTime [24]uint64 `json:"inter_packet_time_us_log2"`
	// Packets sent less than 100 us after the previous one: the papers' measure of burstiness.
	Below100us uint64 `json:"below_100us"`
	// Length in packets of runs with less than 100 us between packets: bucket i
	// counts runs of at most 1 << i packets, the last one all longer runs.
	BurstLength [12]uint64 `json:"burst_length_log2"`

	CongestionWindow uint64        `json:"cwnd_bytes"`
	MinRTT           time.Duration `json:"min_rtt_ns"`
	SmoothedRTT      time.Duration `json:"smoothed_rtt_ns"`

	// The end of slow start: time since the first packet, and the window. 0: not ended.
	SlowStartTime   time.Duration `json:"slow_start_ns"`
	SlowStartWindow uint64        `json:"slow_start_cwnd_bytes"`
}

// DataPerAckSent is the number of ack-eliciting packets received per ACK sent, 0 without an ACK.
func (s *Stats) DataPerAckSent() float64 { return ratio(s.PacketsReceived, s.AcksSent) }

// DataPerAckReceived is the number of ack-eliciting packets acknowledged per ACK received, 0 without an ACK.
func (s *Stats) DataPerAckReceived() float64 { return ratio(s.PacketsAcked, s.AcksReceived) }

// ShareBelow100us is the share of packets sent less than 100 us after the previous one, 0 to 1.
func (s *Stats) ShareBelow100us() float64 {
	var n uint64
	for _, c := range s.InterPacketTime {
		n += c
	}
	return ratio(s.Below100us, n)
}

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
