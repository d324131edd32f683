// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"bquic/internal/status"
)

const (
	// every is the time between two samples.
	every = time.Minute
	// samples is how many are kept: 12 hours, in 14 KiB.
	samples = 720
)

// Counters are a daemon's counts since its start, and its current values.
type Counters struct {
	Down, Up      uint64 // bytes to clients and from them
	Packets, Acks uint64 // acknowledged packets of ended connections, sent and received, and their ACKs
	Live          status.Sum
}

// A sample covers the time between two readings of the counters. NaN: unknown.
type sample struct{ down, up, perAck, rtt, minRTT float32 }

// A History is the ring. Its zero value is empty.
type History struct {
	mu     sync.Mutex
	ring   [samples]sample
	count  int // of all samples ever
	at     time.Time
	before Counters
}

// Add records the counters at a time. If they are less than before, they were reset,
// and the time between is unknown.
func (h *History) Add(now time.Time, c Counters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Packets += c.Live.PacketsAcked + c.Live.PacketsReceived
	c.Acks += c.Live.AcksReceived + c.Live.AcksSent
	was, seconds := h.before, now.Sub(h.at).Seconds()
	first := h.at.IsZero()
	h.before, h.at = c, now
	if first || seconds <= 0 {
		return
	}
	nothing := float32(math.NaN())
	rate := func(was, is uint64) float32 {
		if is < was {
			return nothing
		}
		return float32(8 * float64(is-was) / seconds)
	}
	s := sample{down: rate(was.Down, c.Down), up: rate(was.Up, c.Up), perAck: nothing, rtt: nothing, minRTT: nothing}
	if c.Packets >= was.Packets && c.Acks > was.Acks {
		s.perAck = float32(c.Packets-was.Packets) / float32(c.Acks-was.Acks)
	}
	if c.Live.Connections > 0 {
		s.rtt, s.minRTT = float32(c.Live.SmoothedRTT), float32(c.Live.MinRTT)
	}
	h.ring[h.count%samples] = s
	h.count++
}

// Run adds a sample every minute, from now until ctx ends.
func (h *History) Run(ctx context.Context, read func() Counters) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	h.Add(time.Now(), read())
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.Add(now, read())
		}
	}
}

// A Report holds the samples, oldest first.
type Report struct {
	Every  float64  `json:"every_s"`
	Down   []number `json:"down_bps"`
	Up     []number `json:"up_bps"`
	PerAck []number `json:"packets_per_ack"`
	RTT    []number `json:"smoothed_rtt_ms"`
	MinRTT []number `json:"min_rtt_ms"`
}

// Report returns the recorded samples.
func (h *History) Report() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{Every: every.Seconds()}
	n := min(h.count, samples)
	for _, of := range []struct {
		to    *[]number
		value func(s *sample) float32
	}{
		{&r.Down, func(s *sample) float32 { return s.down }},
		{&r.Up, func(s *sample) float32 { return s.up }},
		{&r.PerAck, func(s *sample) float32 { return s.perAck }},
		{&r.RTT, func(s *sample) float32 { return s.rtt }},
		{&r.MinRTT, func(s *sample) float32 { return s.minRTT }},
	} {
		*of.to = make([]number, n)
		for i := range n {
			(*of.to)[i] = number(of.value(&h.ring[(h.count-n+i)%samples]))
		}
	}
	return r
}

// A number is null in JSON if it is NaN, otherwise rounded.
type number float32

func (n number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	if v >= 1000 {
		return json.Marshal(math.Round(v))
	}
	return json.Marshal(math.Round(v*100) / 100)
}
