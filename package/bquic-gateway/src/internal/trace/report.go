// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

// A Report describes one connection as seen by one of its ends. Packets are ack-eliciting
// packets with application data keys (1-RTT, 0-RTT). Figures that the file does not contain
// are 0.
type Report struct {
	VantagePoint string  `json:"vantage_point"` // client or server
	GroupID      string  `json:"group_id,omitempty"`
	Seconds      float64 `json:"seconds"` // from the first event to the last
	Events       uint64  `json:"events"`
	// Truncated says that the file ends within an event, because it is still being written.
	Truncated bool `json:"truncated"`
	// FramesRecorded is false if packets were recorded without their frames. Then ACKs cannot be
	// told from data.
	FramesRecorded bool `json:"frames_recorded"`

	Sent     Flow `json:"sent"`
	Received Flow `json:"received"`

	AckFrequency struct {
		Frames uint64         `json:"frames"`
		First  []AckFrequency `json:"first"` // at most 32
	} `json:"ack_frequency"`

	CongestionWindow struct {
		First float64 `json:"first_bytes"`
		Max   float64 `json:"max_bytes"`
		Last  float64 `json:"last_bytes"`
	} `json:"cwnd"`
	SlowStart SlowStart `json:"slow_start"`

	Losses struct {
		Packets      uint64 `json:"packets"` // declared lost, except MTU probes
		ByReordering uint64 `json:"by_reordering_threshold"`
		ByTime       uint64 `json:"by_time_threshold"`
		Spurious     uint64 `json:"spurious"` // acknowledged afterwards
		MTUProbes    uint64 `json:"mtu_probes"`
	} `json:"losses"`

	RTT struct {
		Samples    uint64    `json:"samples"`
		MinMS      float64   `json:"min_ms"`
		SmoothedMS float64   `json:"smoothed_ms"` // last
		LatestMS   Quantiles `json:"latest_ms"`
	} `json:"rtt"`

	Timeline Timeline `json:"timeline"`
}

// A Flow describes the packets that one side sent.
type Flow struct {
	Packets uint64  `json:"packets"`
	Bytes   float64 `json:"bytes"`
	// Acks for these packets, sent by the other side.
	Acks       uint64  `json:"acks"`
	DataPerAck float64 `json:"data_per_ack"`

	InterPacketUS Quantiles `json:"inter_packet_us"`
	Histogram     []Bin     `json:"inter_packet_us_histogram"`
	// Share of packets less than 100 µs after the previous one.
	Below100us float64 `json:"below_100us"`

	// Bursts are runs with less than 100 µs between packets.
	Bursts       uint64       `json:"bursts"`
	BurstLength  Quantiles    `json:"burst_length"`
	BurstLengths []Bin        `json:"burst_length_histogram"`
	Dispersion   []Dispersion `json:"index_of_dispersion"`
}

// Quantiles are exact to 1 %, the mean and the extremes exactly.
type Quantiles struct {
	Mean   float64 `json:"mean"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// A Bin of a histogram. Below is 0 for the last one, which has no bound.
type Bin struct {
	Below float64 `json:"below"`
	Count uint64  `json:"count"`
}

// A Dispersion is the index of dispersion of the number of packets in windows.
type Dispersion struct {
	WindowMS float64 `json:"window_ms"`
	Index    float64 `json:"index"`
}

// An AckFrequency is an ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency, section 4).
type AckFrequency struct {
	AtMS      float64 `json:"at_ms"`
	Direction string  `json:"direction"` // sent or received
	// As in the frame: an ACK is due when more packets than this are unacknowledged.
	Threshold  float64 `json:"ack_eliciting_threshold"`
	DelayMS    float64 `json:"max_ack_delay_ms"`
	Reordering float64 `json:"reordering_threshold"`
}

// SlowStart is how the first slow start ended.
type SlowStart struct {
	Recorded bool    `json:"recorded"` // the file contains states of congestion control
	Ended    bool    `json:"ended"`
	AtMS     float64 `json:"at_ms"`
	// Reason is delay (the RTT rose), loss, ecn, or unknown (empty).
	Reason   string  `json:"reason"`
	Detail   string  `json:"detail,omitempty"` // in the sender's words
	Cwnd     float64 `json:"cwnd_bytes"`       // before a reduction by loss
	RTTMS    float64 `json:"rtt_ms"`           // latest sample at that time
	MinRTTMS float64 `json:"min_rtt_ms"`
	Restarts uint64  `json:"restarts"` // later restarts of slow start
}

func (f *flow) report() Flow {
	f.endRun()
	r := Flow{
		Packets: f.packets, Bytes: f.bytes, Acks: f.acks,
		InterPacketUS: f.gaps.report(1e3), Histogram: f.histogram.report(),
		Bursts: f.bursts.n, BurstLength: f.bursts.report(1), BurstLengths: f.burstLengths.report(),
	}
	if f.acks > 0 {
		r.DataPerAck = float64(f.packets) / float64(f.acks)
	}
	if f.gaps.n > 0 {
		r.Below100us = float64(f.close) / float64(f.gaps.n)
	}
	for _, d := range f.counts {
		if v, ok := d.value(); ok {
			r.Dispersion = append(r.Dispersion, Dispersion{d.window, v})
		}
	}
	return r
}

// report returns the quantiles divided by unit.
func (q *quantiles) report(unit float64) Quantiles {
	at := func(share float64) float64 { return float64(q.quantile(share)) / unit }
	return Quantiles{
		Mean: q.mean() / unit, Min: float64(q.min) / unit, Max: float64(q.max) / unit,
		Median: at(0.5), P90: at(0.9), P99: at(0.99),
	}
}

func (h *histogram) report() []Bin {
	bins := make([]Bin, len(h.counts))
	for i, c := range h.counts {
		bins[i].Count = c
		if i < len(h.bounds) {
			bins[i].Below = h.bounds[i]
		}
	}
	return bins
}
