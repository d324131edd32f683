// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"
	"time"
)

// Paths on which a sender of ours was slower than stock.
var losers = []randomPath{
	// The route becomes longer under a download: the least RTT of the connection's
	// life made the difference a queue, to hide bursts and late ACKs behind.
	{Name: "longer route, 100 packets", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 100, Change: 2 * time.Second, Rate2: 30, RTT2: 60 * time.Millisecond, Size: 15 << 20},
	{Name: "longer route, 30 packets", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 30, Change: 2 * time.Second, Rate2: 30, RTT2: 60 * time.Millisecond, Size: 15 << 20},
	{Name: "longer route, 10 packets", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 10, Change: 2 * time.Second, Rate2: 30, RTT2: 60 * time.Millisecond, Size: 15 << 20},
	{Name: "short route, short buffer", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 30, Size: 6 << 20},
	drawPath(1, 14), drawPath(1, 49), drawPath(2, 11), drawPath(4, 19), drawPath(5, 39), drawPath(5, 48),
}

// A path that was lost on once is not lost on again.
func TestLosers(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, p := range losers {
		standard := p.run(t, tlsConf, profileNamed(Standard).Burst, 0).mbps()
		bquic := p.run(t, tlsConf, profileNamed(BQUIC).Burst, 0).mbps()
		t.Logf("%.3f  %.2f/%.2f  %s, %s", bquic/standard, bquic, standard, p.Name, p)
		if bquic < 0.95*standard {
			t.Errorf("%s, %s: %.2f Mbit/s, %.3f x stock", p.Name, p, bquic, bquic/standard)
		}
	}
}
