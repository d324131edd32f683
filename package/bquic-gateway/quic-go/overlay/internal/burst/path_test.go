// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestMinFilter(t *testing.T) {
	var m minFilter
	begin := monotime.Now()
	require.Zero(t, m.Get())
	m.Add(begin, 0)
	require.Zero(t, m.Get())
	m.Add(begin, 4*ms)
	m.Add(begin.Add(time.Second), 60*ms)
	require.Equal(t, 4*ms, m.Get())
	m.Add(begin.Add(minRTTWindow), 60*ms)
	require.Equal(t, 4*ms, m.Get(), "of the window before")
	m.Add(begin.Add(minRTTWindow+time.Second), 50*ms)
	require.Equal(t, 4*ms, m.Get())
	m.Add(begin.Add(2*minRTTWindow), 55*ms)
	require.Equal(t, 50*ms, m.Get(), "forgotten")
	m.Reset(begin.Add(2*minRTTWindow), 70*ms)
	require.Equal(t, 70*ms, m.Get())
}

// A pipe is a sender with a fixed window, and a bottleneck of 1 MB/s.
type pipe struct {
	path Path
	base time.Duration // RTT without a queue
	gap  time.Duration // between packets
	now  monotime.Time
	next protocol.PacketNumber
	sent []monotime.Time // packets in flight, oldest first
}

const packet protocol.ByteCount = 1000

func newPipe(base time.Duration) *pipe {
	return &pipe{base: base, gap: ms, now: monotime.Now()}
}

// run keeps window packets in flight for d.
func (p *pipe) run(window int, d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); {
		for len(p.sent) < window {
			p.path.OnPacketSent(p.next)
			p.next++
			p.sent = append(p.sent, p.now)
		}
		since := p.sent[0]
		p.sent = p.sent[1:]
		p.now = p.now.Add(p.gap)
		if arrival := since.Add(p.base); p.now.Before(arrival) {
			p.now = arrival
		}
		p.path.OnRTT(p.now, p.now.Sub(since))
		p.path.OnPacketAcked(p.next-protocol.PacketNumber(len(p.sent))-1, packet)
		p.path.Limited()
		p.path.OnAck(p.now)
	}
}

func TestPathLearnsRateAndRTT(t *testing.T) {
	p := newPipe(100 * ms)
	p.run(50, 2*time.Second)
	require.InEpsilon(t, 500e3, float64(p.path.Rate()), 0.05, "the window limits")
	p.run(150, 2*time.Second)
	require.InEpsilon(t, 1e6, float64(p.path.Rate()), 0.05)
	require.Equal(t, 100*ms, p.path.MinRTT())
	require.InEpsilon(t, 100e3, float64(p.path.BDP()), 0.05)
	require.InDelta(t, 50*ms, p.path.Slack(150*ms), float64(2*ms))
	require.InDelta(t, 50*ms, p.path.Slack(250*ms), float64(2*ms), "no packet of the last round has waited longer")

	p.gap = 2 * ms
	p.run(150, 6*time.Second)
	require.InEpsilon(t, 500e3, float64(p.path.Rate()), 0.05, "the larger rate is forgotten")
}

func TestPathChanges(t *testing.T) {
	p := newPipe(40 * ms)
	p.run(40, time.Second)
	p.run(80, 5*time.Second)
	require.Equal(t, 40*ms, p.path.MinRTT(), "a queue of our own: as much is delivered")
	require.InDelta(t, 40*ms, p.path.Slack(80*ms), float64(2*ms))
	p.base = 400 * ms
	p.run(80, 3*time.Second)
	require.Equal(t, 400*ms, p.path.MinRTT(), "a longer route: the same window takes longer")
	require.Zero(t, p.path.Slack(400*ms))
}

func TestSlackIsRoom(t *testing.T) {
	p := newPipe(40 * ms)
	p.run(60, time.Second)
	require.InDelta(t, 20*ms, p.path.Slack(60*ms), float64(ms), "nothing was lost: as long as packets wait")
	p.path.OnPacketLost(packet)
	require.InDelta(t, 0, p.path.Slack(60*ms), float64(ms), "the buffer is full")
	require.InDelta(t, 5*ms, p.path.Slack(55*ms), float64(ms))
	require.InDelta(t, 10*ms, p.path.Slack(50*ms), float64(ms))
	require.InDelta(t, 5*ms, p.path.Slack(45*ms), float64(ms), "no longer than packets wait")
	p.run(80, time.Second)
	require.InDelta(t, 20*ms, p.path.Slack(60*ms), float64(ms), "the buffer holds more than was thought")
	p.path.OnPacketLost(packet)
	p.base = 400 * ms
	p.run(80, 3*time.Second)
	p.run(450, 3*time.Second)
	require.InDelta(t, 50*ms, p.path.Slack(450*ms), float64(ms), "of another path nothing is known")
}

// TestPathChangesBehindAQueue: the path changed while it had a queue of our own, so the RTT has hardly risen,
// or has even fallen.
func TestPathChangesBehindAQueue(t *testing.T) {
	p := newPipe(2 * ms)
	p.run(30, 2*time.Second)
	p.base = 36 * ms
	p.run(30, 300*ms)
	require.Equal(t, 36*ms, p.path.MinRTT(), "a longer route")
	require.Zero(t, p.path.Slack(36*ms))

	p = newPipe(2 * ms)
	p.run(30, 2*time.Second)
	p.base, p.gap = 20*ms, ms/10
	p.run(30, 200*ms)
	require.Equal(t, 20*ms, p.path.MinRTT(), "a longer and faster one")
	require.Zero(t, p.path.Slack(20*ms))
}

// TestPathChangesInSlowStart: a window that doubles is no noise that could hide the change.
func TestPathChangesInSlowStart(t *testing.T) {
	p := newPipe(33 * ms)
	p.gap = ms / 10
	for window := 16; window <= 256; window *= 2 {
		p.run(window, max(33*ms, time.Duration(window)*p.gap))
	}
	p.base, p.gap = 330*ms, ms
	p.run(200, 1300*ms)
	require.Equal(t, 330*ms, p.path.MinRTT())
}

// A single fast round is no measure of what comes after it.
func TestPathAfterAFastRound(t *testing.T) {
	var p Path
	now := monotime.Now()
	round := func(rtt time.Duration, bytes protocol.ByteCount, rate uint64) {
		now = now.Add(rtt)
		p.min.Add(now, rtt)
		p.learn(now, Round{Delivered: bytes, Rate: rate, MinRTT: rtt, Limited: true})
	}
	round(5*ms, 40e3, 1.2e6)
	round(30*ms, 80e3, 4e6)
	for range 20 {
		round(120*ms, 150e3, 1.25e6)
	}
	require.Equal(t, 5*ms, p.MinRTT(), "the queue of slow start is no longer route")
}

// TestPathIsShared: in a queue shared with others, a smaller window delivers less in the same time. The path has
// not changed.
func TestPathIsShared(t *testing.T) {
	p := newPipe(80 * ms)
	p.run(30, 2*time.Second)
	p.path.min.Reset(p.now, 40*ms) // seen before the others started
	p.run(30, 2*time.Second)
	p.run(20, 2*time.Second)
	require.Equal(t, 40*ms, p.path.MinRTT())
}

// TestPathSlowsDown: another sender, for a while, is not a path change if rounds vary that much anyway, although
// the standing queue delays packets longer meanwhile.
func TestPathSlowsDown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	p := newPipe(2 * ms)
	rounds := func(gap time.Duration, n int) {
		for range n {
			p.gap = gap/2 + time.Duration(rng.Int64N(int64(gap)))
			p.run(30, 30*p.gap)
		}
	}
	for range 20 {
		rounds(ms, 60)
		rounds(ms*5/3, 10)
	}
	require.Equal(t, 2*ms, p.path.MinRTT())
}

// learned is a path of 1 MB/s and 100 ms.
func learned() *Path { return learnedOf(100 * ms) }

func learnedOf(rtt time.Duration) *Path {
	p := newPipe(rtt)
	p.run(100, 2*time.Second)
	return &p.path
}

func TestSlowStartEndsWhereTheRateDoesNotFollow(t *testing.T) {
	p := learned()
	w := NewWindow()
	rounds := func(cwnd protocol.ByteCount, rate uint64, rtt time.Duration) protocol.ByteCount {
		return w.OnRound(Round{Delivered: cwnd * 1000, Rate: rate, MinRTT: rtt, Early: rtt, Limited: true}, p, 2*cwnd, 1000)
	}
	for cwnd := protocol.ByteCount(16); cwnd <= 64; cwnd *= 2 {
		require.Zero(t, rounds(cwnd, uint64(cwnd)*1e4, 100*ms))
	}
	require.False(t, w.Doubt())
	rounds(128, 1e6, 128*ms)
	require.True(t, w.Doubt(), "the RTT has risen")
	require.False(t, w.Started())
	rounds(160, 1e6, 160*ms)
	rounds(200, 1e6, 190*ms)
	require.Equal(t, protocol.ByteCount(200), rounds(250, 1e6, 195*ms), "twice what the path holds")
	require.True(t, w.Started())
}

func TestSlowStartGoesOnAfterAFalseAlarm(t *testing.T) {
	p := learned()
	w := NewWindow()
	rounds := func(cwnd protocol.ByteCount, rate uint64, rtt time.Duration) {
		w.OnRound(Round{Delivered: cwnd * 1000, Rate: rate, MinRTT: rtt, Early: rtt, Limited: true}, p, 2*cwnd, 1000)
	}
	rounds(32, 3.2e5, 120*ms)
	require.True(t, w.Doubt())
	rounds(40, 4e5, 120*ms)
	rounds(50, 5e5, 120*ms)
	require.False(t, w.Doubt(), "the rate follows the window")
	rounds(64, 6.4e5, 120*ms)
	require.True(t, w.Doubt())
	rounds(80, 6.4e5, 101*ms)
	rounds(80, 6.4e5, 101*ms)
	require.False(t, w.Doubt(), "the RTT has fallen")
}

func TestWindowGrowsFasterWithoutAQueue(t *testing.T) {
	p := learned()
	w := NewWindow()
	w.OnLoss(p, 200*ms, 100, 70, 1)
	quiet := Round{Delivered: 100e3, Rate: 1e6, MinRTT: 101 * ms, Early: 101 * ms, Limited: true}
	for range quietRounds - 1 {
		w.OnRound(quiet, p, 100, 1000)
		require.EqualValues(t, 1, w.Step())
	}
	for _, want := range []protocol.ByteCount{2, 4, 8, 16, 25, 25} {
		w.OnRound(quiet, p, 100, 1000)
		require.Equal(t, want, w.Step())
	}
	for _, loud := range []Round{
		{Delivered: 100e3, Rate: 1e6, MinRTT: 120 * ms, Limited: true},
		{Delivered: 100e3, Rate: 1e6, MinRTT: 105 * ms, Limited: true}, // what CoDel leaves
		{Delivered: 100e3, Rate: 1e6, MinRTT: 101 * ms, Lost: 3000, Limited: true},
	} {
		w.OnRound(loud, p, 100, 1000)
		require.EqualValues(t, 1, w.Step())
		for range quietRounds {
			w.OnRound(quiet, p, 100, 1000)
		}
		require.EqualValues(t, 2, w.Step())
	}
}

func TestLossWithoutAQueue(t *testing.T) {
	p := learned()
	w := NewWindow()
	bdp := p.BDP()
	require.Equal(t, bdp*7/5, w.OnLoss(p, 200*ms, 2*bdp, bdp*7/5, 1000), "of a full queue")
	require.Equal(t, bdp*3/4, w.OnLoss(p, 105*ms, bdp*11/10, bdp*3/4, 1000), "of CoDel, however long the path is")
	require.Equal(t, bdp, w.OnLoss(p, 101*ms, bdp*11/10, bdp*3/4, 1000), "the path takes that much")
	require.Equal(t, bdp/2, w.OnLoss(p, 101*ms, bdp/2, bdp/3, 1000), "it never grows")
	p.rate, p.rateBefore = 5e5, 0 // 3 packets in 9 ms
	bdp = p.BDP()
	require.Equal(t, bdp, w.OnLoss(p, 108*ms, bdp, bdp*3/4, 1000), "a few packets are no queue on a slow path")
	require.Equal(t, bdp*3/4, w.OnLoss(p, 110*ms, bdp, bdp*3/4, 1000))
}

func TestLossOfAShortBuffer(t *testing.T) {
	p := learned()
	bdp := p.BDP() // 100 packets
	quiet := Round{Delivered: bdp, Rate: 1e6, MinRTT: 101 * ms, Early: 101 * ms, Limited: true}
	for _, tc := range []struct {
		cwnd   protocol.ByteCount // packets
		rounds int                // since the last loss
		random bool
	}{
		{100, 1, true}, {100, quietRounds, true}, {100, quietRounds + 1, false},
		{42, 6, true}, {42, 7, false}, {6, 1, false},
	} {
		w := NewWindow()
		w.OnLoss(p, 200*ms, 100*1000, 70*1000, 1000)
		for range tc.rounds {
			w.OnRound(quiet, p, tc.cwnd, 1000)
		}
		left := w.OnLoss(p, 101*ms, tc.cwnd*1000, tc.cwnd*700, 1000)
		require.Equal(t, tc.random, left == tc.cwnd*1000, "%+v: %d bytes", tc, left)
	}

	// Random losses go on after the standard reduction.
	w := NewWindow()
	for _, ignored := range []int{leastTrust, 2 * leastTrust, 4 * leastTrust} {
		for range ignored {
			require.Equal(t, bdp, w.OnLoss(p, 101*ms, bdp, bdp*7/10, 1000))
		}
		require.Equal(t, bdp*7/10, w.OnLoss(p, 101*ms, bdp, bdp*7/10, 1000), "a test, after %d losses", ignored)
	}
	w.OnLoss(p, 200*ms, bdp, bdp*7/10, 1000)
	for range leastTrust {
		require.Equal(t, bdp, w.OnLoss(p, 101*ms, bdp, bdp*7/10, 1000))
	}
	require.Equal(t, bdp*7/10, w.OnLoss(p, 101*ms, bdp, bdp*7/10, 1000))

	// The tests that losses on one path have passed say nothing about another one.
	longer := learnedOf(200 * ms)
	w = NewWindow()
	for range leastTrust + 1 {
		w.OnLoss(p, 101*ms, bdp, bdp*7/10, 1000)
	}
	w.OnRound(quiet, p, 100, 1000)
	w.OnRound(Round{Delivered: bdp, Rate: 5e5, MinRTT: 201 * ms, Early: 201 * ms, Limited: true}, longer, 100, 1000)
	for range leastTrust {
		require.Equal(t, bdp, w.OnLoss(longer, 201*ms, bdp, bdp*7/10, 1000))
	}
	require.Equal(t, bdp*7/10, w.OnLoss(longer, 201*ms, bdp, bdp*7/10, 1000))

	// Below the window that filled the buffer, others may still be growing back.
	w = NewWindow()
	w.OnLoss(p, 200*ms, 100*1000, 70*1000, 1000)
	for range 2 * quietRounds {
		w.OnRound(quiet, p, 99, 1000)
		require.EqualValues(t, 1, w.Step())
	}
	w.OnRound(quiet, p, 100, 1000)
	require.EqualValues(t, 2, w.Step())
}

func TestMarkWithoutAQueue(t *testing.T) {
	p := learned()
	w := NewWindow()
	quiet := Round{Delivered: 100e3, Rate: 1e6, MinRTT: 101 * ms, Early: 101 * ms, Limited: true}
	w.OnLoss(p, 200*ms, 100, 70, 1)
	for range quietRounds {
		w.OnRound(quiet, p, 100, 1000)
	}
	require.EqualValues(t, 2, w.Step())
	w.OnMark(p, 101*ms, 100, 70, 1)
	require.EqualValues(t, 1, w.Step(), "there is a queue, however short")
	for range 2 * quietRounds {
		w.OnRound(quiet, p, 70, 1000)
		require.EqualValues(t, 1, w.Step())
	}

	w = NewWindow()
	w.OnMark(p, 101*ms, 100, 70, 1)
	require.True(t, w.Started())
}

func FuzzPath(f *testing.F) {
	f.Add([]byte{10, 1, 100, 20, 2, 100, 30, 3, 200, 255, 255, 255, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Path
		w := NewWindow()
		now := monotime.Now()
		var pn protocol.PacketNumber
		cwnd := protocol.ByteCount(32)
		most := cwnd
		for ; len(data) >= 3; data = data[3:] {
			most = max(most, cwnd)
			for range data[0] % 32 {
				p.OnPacketSent(pn)
				p.OnPacketAcked(pn, 1452)
				pn++
			}
			now = now.Add(time.Duration(data[1]) * time.Duration(data[1]) * time.Microsecond)
			p.OnRTT(now, time.Duration(data[2])*ms)
			if data[2]%2 == 0 {
				p.Limited()
			}
			if data[0]%8 == 0 {
				p.OnPacketLost(protocol.ByteCount(data[1]) * 1452)
			}
			r, ended := p.OnAck(now)
			if p.Rate() > maxRate || p.BDP() < 0 || p.MinRTT() < 0 || p.Slack(time.Duration(data[2])*ms) < 0 {
				t.Fatalf("rate %d, BDP %d, least RTT %s", p.Rate(), p.BDP(), p.MinRTT())
			}
			w.OnAck(&p, cwnd)
			if ended {
				if set := w.OnRound(r, &p, cwnd, 1452); set > 0 {
					if set > most || set < min(cwnd, slowStartLowWindow) {
						t.Fatalf("a window of %d becomes %d, after %d at most", cwnd, set, most)
					}
					cwnd = set
				}
			}
			if step := w.Step(); step < 0 || step > max(1, cwnd/4)*2 {
				t.Fatalf("%d packets per round on top of %d", step, cwnd)
			}
			if data[0]%16 == 0 {
				was := cwnd * 1452
				left := w.OnLoss(&p, time.Duration(data[2])*ms, was, was*7/10, 1452)
				if left < was*7/10 || left > was || !w.Started() {
					t.Fatalf("a loss leaves %d of %d", left, was)
				}
				cwnd = max(left/1452, 2)
			} else {
				cwnd = min(cwnd+w.Step(), 10000)
			}
		}
	})
}

// climbOn simulates a path with a queue, whose delivery rate is a function of the window.
func climbOn(rate func(cwnd protocol.ByteCount) uint64, cwnd protocol.ByteCount, rounds int) (c climb, end protocol.ByteCount) {
	for range rounds {
		r := Round{Rate: rate(cwnd), Limited: true}
		r.Delivered = protocol.ByteCount(r.Rate / 10) // rounds of 100 ms
		if set := c.onRound(r, cwnd, false); set > 0 {
			cwnd = set
		} else if c.grows() {
			cwnd++
		}
	}
	return c, cwnd
}

func TestClimb(t *testing.T) {
	flat := func(protocol.ByteCount) uint64 { return 2e6 }
	_, cwnd := climbOn(flat, 400, 60)
	require.Less(t, cwnd, protocol.ByteCount(leastWindow*2), "what only waits goes")
	require.GreaterOrEqual(t, cwnd, protocol.ByteCount(leastWindow))

	linear := func(cwnd protocol.ByteCount) uint64 { return uint64(cwnd) * 1e4 } // others fill the queue
	_, cwnd = climbOn(linear, 200, 400)
	require.Greater(t, cwnd, protocol.ByteCount(350), "what pays grows")

	_, cwnd = climbOn(linear, 200, 120)
	require.GreaterOrEqual(t, cwnd, protocol.ByteCount(375), "what clearly pays is tried at once")

	// Two directions share the air: what one gains, the other loses.
	both, cwnd := climb{}, protocol.ByteCount(200)
	for range 400 {
		r := Round{Rate: linear(cwnd), Limited: true}
		r.Delivered = protocol.ByteCount(r.Rate / 10)
		r.Received = 1e6 - r.Delivered
		if set := both.onRound(r, cwnd, false); set > 0 {
			cwnd = set
		} else if both.grows() {
			cwnd++
		}
	}
	require.Less(t, cwnd, protocol.ByteCount(100), "what is taken does not pay")

	// A window that is larger by a half delivers so much more, whatever it is.
	half := func(more float64) func(protocol.ByteCount) uint64 {
		return func(cwnd protocol.ByteCount) uint64 {
			return uint64(2e6 * math.Pow(float64(cwnd)/200, math.Log(1+more)/math.Log(1.5)))
		}
	}
	_, cwnd = climbOn(half(0.5/6), 200, 400)
	require.Greater(t, cwnd, protocol.ByteCount(300), "a sixth of the part pays")
	_, cwnd = climbOn(half(0.5/6), 200, 120)
	require.Less(t, cwnd, protocol.ByteCount(300), "and grows slowly")
	_, cwnd = climbOn(half(0.5/10), 200, 100)
	require.Less(t, cwnd, protocol.ByteCount(100), "a tenth of the part does not")
	_, cwnd = climbOn(half(-0.05), 200, 100)
	require.Less(t, cwnd, protocol.ByteCount(100), "what harms goes")

	knee := func(cwnd protocol.ByteCount) uint64 { return uint64(min(cwnd, 200)) * 1e4 }
	_, cwnd = climbOn(knee, 200, 600)
	require.Less(t, cwnd, protocol.ByteCount(320))
	require.GreaterOrEqual(t, cwnd, protocol.ByteCount(130))

	c := climb{}
	c.begin(400, true)
	require.False(t, c.grows(), "there is no need to")
	c.begin(leastWindow, true)
	require.True(t, c.grows(), "it may not become smaller")
	steep := func(cwnd protocol.ByteCount) uint64 { return uint64(min(cwnd, 300)) * 1e4 }
	_, cwnd = climbOn(steep, 150, 100)
	require.Greater(t, cwnd, protocol.ByteCount(200), "what is less is worse: more is tried at once")

	// The route becomes twice as long while the window grows, so a larger one delivers less than a smaller one did.
	least := protocol.ByteCount(200)
	longer := func() func(cwnd protocol.ByteCount) uint64 {
		longer := false
		return func(cwnd protocol.ByteCount) uint64 {
			longer = longer || cwnd >= 320
			if longer {
				least = min(least, cwnd)
				return uint64(cwnd) * 5e3
			}
			return uint64(cwnd) * 1e4
		}
	}
	_, cwnd = climbOn(longer(), 200, 400)
	require.Greater(t, cwnd, protocol.ByteCount(375), "a rate of the path as it was is no measure")
	require.GreaterOrEqual(t, least, protocol.ByteCount(200))

	c, cwnd = climbOn(flat, 400, 60)
	for range emptyRounds {
		c.onRound(Round{Rate: 2e6, Delivered: 2e5, Limited: true}, cwnd, true)
	}
	require.True(t, c.grows(), "the queue has gone")
	lucky := func() func(cwnd protocol.ByteCount) uint64 {
		rounds := 0
		return func(protocol.ByteCount) uint64 {
			if rounds++; rounds <= climbRounds+8 {
				return 2.2e6
			}
			return 2e6
		}
	}
	_, cwnd = climbOn(lucky(), 400, 100)
	require.Less(t, cwnd, protocol.ByteCount(leastWindow*2), "to have paid once, by chance, is not enough")
	_, cwnd = climbOn(flat, leastWindow, 100)
	require.Greater(t, cwnd, protocol.ByteCount(leastWindow), "a small window grows")
}

// After slow start, the smallest window that may do is tried first.
func TestClimbFromTheFloor(t *testing.T) {
	windows := func(least protocol.ByteCount) []protocol.ByteCount {
		c := climb{floor: 80}
		c.begin(400, true)
		seen, cwnd := []protocol.ByteCount{400}, protocol.ByteCount(400)
		for range 100 {
			r := Round{Rate: uint64(min(cwnd, least)) * 1e4, Limited: true}
			r.Delivered = protocol.ByteCount(r.Rate / 10)
			if set := c.onRound(r, cwnd, false); set > 0 && set != cwnd {
				seen, cwnd = append(seen, set), set
			}
		}
		return seen
	}
	require.Equal(t, []protocol.ByteCount{400, 80}, windows(40))
	require.Equal(t, []protocol.ByteCount{400, 80, 400, 266, 177, 266}, windows(266), "it delivers less: from above")
}
