// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const (
	// No path may be below this. Some paths are known to be below 0.90 of stock, so now and then there is one
	// among 50 new ones. Such paths are printed, to be added to losers. This limit catches a broken sender: docs/lab.md.
	freshLeast = 0.6
	// A path below this is run more often: a single run says more about the loss that each sender met than about the senders.
	freshDoubt   = 0.90
	freshRepeats = 6
	// One below the limit is run still more often: on a path with long bursts of losses, half of a few runs may stall by chance.
	freshMore = 30
)

// TestFreshPaths draws 50 paths that no earlier run has drawn.
func TestFreshPaths(t *testing.T) {
	// Small seeds are reserved for choosing and for reporting.
	seed := 1<<31 | uint64(rand.Uint32())
	t.Logf("seed %d; all of it: BQUIC_PATHS=%d go test ./internal/profile -run TestPaths -v", seed, seed)
	tlsConf := tlsConfig(t)
	var ratios []float64
	for i := range uint64(pathsPerSeed) {
		p := drawPath(seed, i)
		c := p.compare(t, tlsConf, 0, 1)
		if c.ratio() < freshDoubt && p.random() {
			c = p.compare(t, tlsConf, 1, freshRepeats)
		}
		if c.ratio() < freshLeast && p.random() {
			c = p.compare(t, tlsConf, 1+freshRepeats, freshMore)
		}
		ratios = append(ratios, c.ratio())
		switch {
		case c.ratio() < freshLeast:
			t.Errorf("drawPath(%d, %d): %s", seed, i, c)
		case c.ratio() < freshDoubt:
			t.Logf("drawPath(%d, %d), for losers_test.go: %s", seed, i, c)
		}
	}
	t.Logf("%d paths: geometric mean %.3f, worst %.3f", len(ratios), geomean(ratios), slices.Min(ratios))
}
