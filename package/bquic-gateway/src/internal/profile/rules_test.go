// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"
	"time"
)

// The climb has an effect only in long transfers over 802.11 and beside other flows. That it measures a large window
// before it grows has one only without RTT.
var rulesLegs = []leg{
	{1, 20 * time.Millisecond, 65e6, 20 << 20}, {3, 20 * time.Millisecond, 65e6, 12 << 20},
	{3, 0, 65e6, 10 << 20}, {5, 0, 65e6, 10 << 20},
}

// The first paths of a seed are also measured with a longer transfer, in which a standing queue shows.
const longPaths, longFactor = 15, 5

// TestRules measures bquic alone, so that lab/experiments/rules.py can compare it with variants that lack one rule
// or number. BQUIC_RULES has the seeds; rows go to BQUIC_ROWS.
func TestRules(t *testing.T) {
	first, last := seedRange(t, "BQUIC_RULES")
	tlsConf := tlsConfig(t)
	var rows []map[string]any
	add := func(seed uint64, what, cell string, value float64) {
		rows = append(rows, map[string]any{"seed": seed, "what": what, "cell": cell, "value": value})
	}
	bquic := profileNamed(BQUIC).Burst
	for seed := first; seed <= last; seed++ {
		for i := range uint64(pathsPerSeed) {
			p := drawPath(seed, i)
			add(seed, "path", p.String(), p.run(t, tlsConf, bquic, 0).mbps())
		}
		for i := range uint64(longPaths) {
			p := drawPath(seed, i)
			f := &trial{burst: bquic, upload: p.Upload, window: productWindow}
			queue := queueOf(t, tlsConf, p.Seed<<32|p.Number<<8, p.build, f, longFactor*p.Size)
			add(seed, "long path", p.String(), f.mbps())
			add(seed, "queue", p.String(), queue)
		}
		for _, l := range rulesLegs {
			mbps, queue := l.run(t, tlsConf, seed, &trial{burst: bquic})
			add(seed, "leg", l.String(), mbps)
			add(seed, "queue", l.String(), queue)
		}
		for _, b := range bottlenecks {
			if b.hops == 0 && b.name != "FIFO 0.5 BDP" {
				own, each := sharing{b, BQUIC, cubic, 1, near, near, false}.run(t, tlsConf, seed)
				add(seed, "share", b.name, 2*own/(own+each))
			}
		}
	}
	writeRows(t, rows)
}
