// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/quic-go/quic-go"
)

func text(t *testing.T, h *History) string {
	t.Helper()
	data, err := json.Marshal(h.Report())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAdd(t *testing.T) {
	at := time.Unix(1000, 0)
	connected := func(s quic.BurstStats) (c Counters) {
		c.Live.Add(s)
		return c
	}
	stats := quic.BurstStats{PacketsSent: 9, PacketsAcked: 100, AcksReceived: 10, SmoothedRTT: 20 * time.Millisecond, MinRTT: 5 * time.Millisecond}
	more := stats
	more.PacketsAcked, more.AcksReceived = 140, 14
	for _, tc := range []struct {
		name     string
		counters []Counters // a minute apart
		want     string
	}{
		{"nothing", nil, `{"every_s":60,"down_bps":[],"up_bps":[],"packets_per_ack":[],"smoothed_rtt_ms":[],"min_rtt_ms":[]}`},
		{"one look", []Counters{{Down: 5}}, `{"every_s":60,"down_bps":[],"up_bps":[],"packets_per_ack":[],"smoothed_rtt_ms":[],"min_rtt_ms":[]}`},
		{"rates", []Counters{{Down: 1000, Up: 5}, {Down: 1000 + 7500, Up: 5}},
			`{"every_s":60,"down_bps":[1000],"up_bps":[0],"packets_per_ack":[null],"smoothed_rtt_ms":[null],"min_rtt_ms":[null]}`},
		{"began anew", []Counters{{Down: 1000, Packets: 9, Acks: 3}, {Down: 9}, {Down: 24}},
			`{"every_s":60,"down_bps":[null,2],"up_bps":[0,0],"packets_per_ack":[null,null],"smoothed_rtt_ms":[null,null],"min_rtt_ms":[null,null]}`},
		{"connected", []Counters{connected(stats), connected(more)},
			`{"every_s":60,"down_bps":[0],"up_bps":[0],"packets_per_ack":[10],"smoothed_rtt_ms":[20],"min_rtt_ms":[5]}`},
	} {
		var h History
		for i, c := range tc.counters {
			h.Add(at.Add(time.Duration(i)*every), c)
		}
		if got := text(t, &h); got != tc.want {
			t.Errorf("%s:\n%s, not\n%s", tc.name, got, tc.want)
		}
	}
}

// TestBounded: memory and the size of the answer do not grow with time.
func TestBounded(t *testing.T) {
	var h History
	if size := unsafe.Sizeof(h); size > 15<<10 {
		t.Errorf("a history takes %d bytes", size)
	}
	at := time.Unix(1000, 0)
	for i := range 3*samples + 1 {
		h.Add(at.Add(time.Duration(i)*every), Counters{Down: uint64(i) * uint64(i) * 1e12})
	}
	r := h.Report()
	if len(r.Down) != samples || r.Down[0] >= r.Down[1] || r.Down[samples-2] >= r.Down[samples-1] {
		t.Errorf("%d samples, from %v to %v", len(r.Down), r.Down[0], r.Down[samples-1])
	}
	if got := text(t, &h); len(got) > 60<<10 || strings.Contains(got, "NaN") {
		t.Errorf("an answer of %d bytes", len(got)) // there are two daemons, and rpcd accepts 256 KiB
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h History
		ctx, cancel := context.WithCancel(t.Context())
		down := uint64(0)
		go h.Run(ctx, func() Counters {
			down += 75
			return Counters{Down: down}
		})
		time.Sleep(3*every + time.Second)
		if got := h.Report().Down; len(got) != 3 || got[0] != 10 || got[2] != 10 {
			t.Errorf("after three minutes: %v", got)
		}
		cancel()
		synctest.Wait()
	})
}
