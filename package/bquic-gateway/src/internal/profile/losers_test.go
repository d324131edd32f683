// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"crypto/tls"
	"math"
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

const (
	// Runs differ on some paths. A path runs at least loserRuns times, and up to mostLoserRuns until the mean is loserErrors standard errors above
	// its limit: a few runs that are slower by chance may seem to be clear.
	loserRuns, mostLoserRuns = 5, 60
	loserErrors              = 4
)

// slower reports whether bquic is slower on the path than least times stock, on average.
func (p randomPath) slower(t *testing.T, tlsConf *tls.Config, least float64) bool {
	t.Helper()
	var sum, squares, n, mean, variance float64
	for repeat := range uint64(mostLoserRuns) {
		c := p.compare(t, tlsConf, repeat, 1)
		x := math.Log(c.ratio() / least)
		sum, squares, n = sum+x, squares+x*x, n+1
		mean = sum / n
		variance = squares/n - mean*mean
		if !p.random() || n >= loserRuns && mean > loserErrors*math.Sqrt(variance/n) {
			break
		}
	}
	t.Logf("%s, %s: %.3f in %.0f runs", p.Name, p, least*math.Exp(mean), n)
	return mean < 0
}

// On losers, our sender is never slower again; on lost, it is no worse than on any other path.
func TestLosers(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, tc := range []struct {
		paths []randomPath
		least float64
	}{{losers, 0.95}, {lost, freshLeast}} {
		for _, p := range tc.paths {
			if p.slower(t, tlsConf, tc.least) {
				t.Errorf("below %.2f", tc.least)
			}
		}
	}
}
