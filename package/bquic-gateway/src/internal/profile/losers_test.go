// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"
	"time"
)

// Paths on which one of our senders was slower than stock.
var losers = []randomPath{
	// The route becomes longer during a download. With the least RTT since the start of the
	// connection, the difference looked like a queue that hides bursts and late ACKs.
	{Name: "longer route, 100 packets", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 100, Change: 2 * time.Second, Rate2: 30, RTT2: 60 * time.Millisecond, Size: 15 << 20},
	{Name: "longer route, 30 packets", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 30, Change: 2 * time.Second, Rate2: 30, RTT2: 60 * time.Millisecond, Size: 15 << 20},
	{Name: "longer route, 10 packets", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 10, Change: 2 * time.Second, Rate2: 30, RTT2: 60 * time.Millisecond, Size: 15 << 20},
	{Name: "short route, short buffer", Rate: 30, RTT: 4 * time.Millisecond, Buffer: 30, Size: 6 << 20},
	drawPath(1, 14), drawPath(1, 49), drawPath(2, 11), drawPath(4, 19), drawPath(5, 39), drawPath(5, 48),
	// The receiver held back ACKs on its own, because its route had become ten times as long and that looked like a queue. A
	// buffer of six packets could not hold the packets that each ACK released.
	drawPath(3481233990, 37),
	// The route became ten times as long while the window had a queue, so the RTT hardly rose, or even fell.
	drawPath(3, 40), drawPath(15, 36),
	// The change came in slow start, whose growth looked like noise that hid it.
	drawPath(2, 5), drawPath(7, 14),
	// The route became longer under a queue, over 802.11: a round missed no more than the noise, and the window was compared with
	// a smaller one on the route before.
	{Name: "longer under a queue", Rate: 17.5, RTT: 12 * time.Millisecond, Buffer: 36, WiFi: true, Change: 1900 * time.Millisecond, Rate2: 17.5, RTT2: 83 * time.Millisecond, Size: 10 << 20},
	// The rate grew tenfold under a queue of hundreds of milliseconds. It drained at once, but packets were still paced by the
	// smoothed RTT.
	{Name: "faster, shallow", Upload: true, Rate: 1.3, RTT: 3 * time.Millisecond, Buffer: 100, Change: 1512 * time.Millisecond, Rate2: 13, RTT2: 3 * time.Millisecond, Size: 650000},
	{Name: "faster, deep", Upload: true, Rate: 1.3, RTT: 3 * time.Millisecond, Buffer: 800, Change: 1512 * time.Millisecond, Rate2: 13, RTT2: 3 * time.Millisecond, Size: 650000},
	{Name: "faster and longer", Upload: true, Rate: 4, RTT: 3 * time.Millisecond, Buffer: 300, Change: 1512 * time.Millisecond, Rate2: 40, RTT2: 30 * time.Millisecond, Size: 2000000},
}

// Paths on which it still is slower. If rate or RTT grow tenfold under a small window, detection is often too late (13/16,
// 26/14). On the others, some runs are slower by chance.
var lost = []randomPath{drawPath(13, 16), drawPath(26, 14), drawPath(35, 47), drawPath(2, 44), drawPath(6, 49)}

// loserRuns is how many runs the median is of, where they differ.
const loserRuns = 3

// On losers, our sender is never slower again; on lost, it is no worse than on any other path.
func TestLosers(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, tc := range []struct {
		paths []randomPath
		least float64
	}{{losers, 0.95}, {lost, freshLeast}} {
		for _, p := range tc.paths {
			runs := uint64(1)
			if p.random() {
				runs = loserRuns
			}
			c := p.compare(t, tlsConf, 0, runs)
			t.Logf("%s, %s", p.Name, c)
			if c.ratio() < tc.least {
				t.Errorf("%s, %s: below %.2f", p.Name, c, tc.least)
			}
		}
	}
}
