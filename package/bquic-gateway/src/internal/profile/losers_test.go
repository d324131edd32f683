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
	// The receiver held ACKs back on its own behind a queue that was none, as its route had become ten times as long, and a buffer of
	// six packets did not hold what each of them released.
	drawPath(3481233990, 37),
	// The route became ten times as long under a window with a queue, so the RTT hardly rose, or even fell.
	drawPath(3, 40), drawPath(15, 36),
}

// Paths on which it still is. Where rate or RTT become ten times what they are under a small window, it is often too late
// (13/16, 26/14), or the rounds of slow start pass for noise that hides the change (35/47). On the others it is by chance, one run in several.
var lost = []randomPath{drawPath(13, 16), drawPath(26, 14), drawPath(35, 47), drawPath(2, 44), drawPath(6, 49)}

// A path that was lost on once is not lost on again; where it still is, it is no worse than any other.
func TestLosers(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, tc := range []struct {
		paths []randomPath
		least float64
	}{{losers, 0.95}, {lost, freshLeast}} {
		for _, p := range tc.paths {
			c := p.compare(t, tlsConf, 0, 1)
			t.Logf("%s, %s", p.Name, c)
			if c.ratio() < tc.least {
				t.Errorf("%s, %s: below %.2f", p.Name, c, tc.least)
			}
		}
	}
}
