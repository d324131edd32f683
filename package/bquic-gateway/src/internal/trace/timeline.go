// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import "math"

// maxBins bounds a timeline. When all bins are full, pairs are merged.
const maxBins = 512

// timeline keeps figures in bins of equal length, initially 1 ms.
type timeline struct {
	width float64 // ms
	bins  []bin
}

type bin struct {
	sent, received float64 // bytes
	cwnd, srtt     float64 // last values: bytes, ms; 0 for none
	flight, rtt    float64 // largest values: bytes, ms
	lost           float64 // packets
}

// at returns the bin of a time in ms, which is not negative.
func (l *timeline) at(t float64) *bin {
	if l.width == 0 {
		l.width = 1
	}
	for t >= l.width*maxBins && !math.IsInf(l.width, 0) {
		l.halve()
	}
	i := min(int(t/l.width), maxBins-1)
	for len(l.bins) <= i {
		l.bins = append(l.bins, bin{})
	}
	return &l.bins[i]
}

func (l *timeline) halve() {
	l.width *= 2
	n := (len(l.bins) + 1) / 2
	for i := range n {
		b := l.bins[2*i]
		if 2*i+1 < len(l.bins) {
			c := l.bins[2*i+1]
			b.sent += c.sent
			b.received += c.received
			b.lost += c.lost
			b.flight = max(b.flight, c.flight)
			b.rtt = max(b.rtt, c.rtt)
			if c.cwnd != 0 {
				b.cwnd = c.cwnd
			}
			if c.srtt != 0 {
				b.srtt = c.srtt
			}
		}
		l.bins[i] = b
	}
	l.bins = l.bins[:n]
}

// A Timeline has one value per bin in each of its lists.
type Timeline struct {
	BinMS         float64   `json:"bin_ms"`
	SentMbps      []float64 `json:"sent_mbps"`
	ReceivedMbps  []float64 `json:"received_mbps"`
	Cwnd          []float64 `json:"cwnd_bytes"`      // last, 0 before the first
	BytesInFlight []float64 `json:"bytes_in_flight"` // largest
	SmoothedRTT   []float64 `json:"smoothed_rtt_ms"` // last
	RTT           []float64 `json:"latest_rtt_ms"`   // largest sample, 0 for none
	Lost          []float64 `json:"packets_lost"`
}

// report fills in missing values: a window keeps its value until it changes.
func (l *timeline) report() Timeline {
	t := Timeline{BinMS: l.width}
	var before bin
	for _, b := range l.bins {
		if b.cwnd == 0 {
			b.cwnd = before.cwnd
		}
		if b.srtt == 0 {
			b.srtt = before.srtt
		}
		mbps := 8 / l.width / 1e3
		t.SentMbps = append(t.SentMbps, b.sent*mbps)
		t.ReceivedMbps = append(t.ReceivedMbps, b.received*mbps)
		t.Cwnd = append(t.Cwnd, b.cwnd)
		t.BytesInFlight = append(t.BytesInFlight, b.flight)
		t.SmoothedRTT = append(t.SmoothedRTT, b.srtt)
		t.RTT = append(t.RTT, b.rtt)
		t.Lost = append(t.Lost, b.lost)
		before = b
	}
	return t
}
