// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"

	"bquic/internal/metrics"
	"bquic/internal/proof"
)

// TestProofMetrics checks the metrics of a comparison that has enough connections, but too few page loads.
func TestProofMetrics(t *testing.T) {
	w := new(metrics.Writer)
	writeProof(w, &proof.Report{
		Verdict: proof.Faster,
		Overall: proof.Line{Carried: 12480, Direct: 655, Complete: &proof.Change{Change: -0.18, Low: -0.23, High: -0.12}},
		Pages:   proof.Line{Carried: 3, Direct: 1},
	})
	var got []string
	for line := range strings.Lines(string(w.Text())) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	const want = `bquic_relay_verdict{verdict="off"} 0
bquic_relay_verdict{verdict="unsure"} 0
bquic_relay_verdict{verdict="faster"} 1
bquic_relay_verdict{verdict="slower"} 0
bquic_relay_verdict{verdict="silent"} 0
bquic_relay_verdict{verdict="spared"} 0
bquic_relay_compared{what="connections",way="carried"} 12480
bquic_relay_compared{what="connections",way="direct"} 655
bquic_relay_compared{what="pages",way="carried"} 3
bquic_relay_compared{what="pages",way="direct"} 1
bquic_relay_change_ratio{what="connections"} -0.18
bquic_relay_change_low_ratio{what="connections"} -0.23
bquic_relay_change_high_ratio{what="connections"} -0.12
`
	if text := strings.Join(got, ""); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
