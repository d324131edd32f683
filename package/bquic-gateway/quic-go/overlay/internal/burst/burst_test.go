// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"math"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"
	"github.com/quic-go/quic-go/internal/wire"

	"github.com/stretchr/testify/require"
)

// rttStats has the given min and smoothed RTT.
func rttStats(minRTT, srtt time.Duration) *utils.RTTStats {
	r := utils.NewRTTStats()
	r.UpdateRTT(minRTT, 0)
	for range 100 {
		r.UpdateRTT(srtt, 0)
	}
	return r
}

func TestNilConnIsStock(t *testing.T) {
	c := NewConn(Config{}, utils.NewRTTStats())
	require.Nil(t, c)
	_, ok := c.AckFrequency()
	require.False(t, ok)
	require.Nil(t, c.AdvertiseMinAckDelay())
	require.Nil(t, c.NextRequest(monotime.Now()))
	require.Equal(t, 26*time.Millisecond, c.MaxAckDelay(26*time.Millisecond))
	require.Equal(t, protocol.PacketNumber(3), c.PacketThreshold(3))
	require.Equal(t, uint8(1), c.TimeThresholdEighths(1))
	require.Equal(t, Stats{}, c.Stats())
	c.OnPacketSent(monotime.Now(), 1, false)
	c.OnPacketReceived()
	c.OnAckSent()
	c.OnAckReceived(nil, 1)
	c.OnPacketLost(1, 1)
	c.OnSpuriousLosses([]protocol.PacketNumber{1})
	c.OnCongestionState(monotime.Now(), true, 1)
	c.SetPeer(nil, nil)
	c.OnPathChanged()
	c.OnPacketRepeated(1, 1)
	require.Equal(t, protocol.ByteCount(1400), c.ProbeSize(1400))
	require.Equal(t, monotime.Time(7), c.PTO(7, 1))
	require.False(t, c.FoundBlackHole())
	require.False(t, c.PeerHoldsAcks())
	require.Equal(t, NoDialect, c.PeerDialect())
}

// TestBucketAtAnyTime: at any rate and after any pause, a whole burst may leave at once.
func TestBucketAtAnyTime(t *testing.T) {
	const packet, packets = protocol.ByteCount(1452), 8
	for _, rate := range []uint64{1e3, 1e6, 1e10} {
		var b Bucket
		size, now := packet*packets, monotime.Time(time.Hour)
		for _, pause := range []time.Duration{0, 1e6 * time.Hour, time.Duration(uint64(size)*1e9/rate + 1000)} { // also longer than the product of both may be
			now = now.Add(pause)
			for i := range packets {
				require.True(t, b.Ready(now, rate, size, packet), "a whole burst")
				require.LessOrEqual(t, b.Until(rate, size, packet), now)
				require.True(t, i == 0 || b.Ready(now.Add(-time.Minute), rate, size, packet), "a time before the last packet")
				b.Sent(now, rate, size, packet, packet)
			}
			require.False(t, b.Ready(now, rate, size, packet))
		}
	}
}

func TestConfiguredAckFrequency(t *testing.T) {
	ms := time.Millisecond
	for _, tc := range []struct {
		name         string
		cfg          Config
		minRTT, srtt time.Duration
		want         AckFrequency
	}{
		{"no policy", Config{Stats: true}, 20 * ms, 40 * ms, stockFrequency},
		{"papers", Config{AckPackets: 10, AckDelay: 25 * ms, AckRTTDivisor: 4, AckRTT: MinRTT}, 20 * ms, 90 * ms, AckFrequency{10, 5 * ms, 1}},
		{"papers, long path", Config{AckPackets: 10, AckDelay: 25 * ms, AckRTTDivisor: 4, AckRTT: MinRTT}, 200 * ms, 200 * ms, AckFrequency{10, 25 * ms, 1}},
		{"smoothed", Config{AckPackets: Unlimited, AckRTTDivisor: 2, AckReordering: 8}, 5 * ms, 40 * ms, AckFrequency{math.MaxInt, 20 * ms, 8}},
		{"queue", Config{AckPackets: Unlimited, AckRTTDivisor: 2, AckRTT: QueueRTT}, 20 * ms, 50 * ms, AckFrequency{math.MaxInt, 15 * ms, 1}},
		{"no queue: aside", Config{AckPackets: Unlimited, AckRTTDivisor: 2, AckRTT: QueueRTT}, 20 * ms, 21 * ms, stockFrequency},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewConn(tc.cfg, rttStats(tc.minRTT, tc.srtt))
			c.path.OnRTT(monotime.Now(), tc.minRTT)
			got := c.configured()
			require.Equal(t, tc.want.Packets, got.Packets)
			require.Equal(t, tc.want.Reordering, got.Reordering)
			require.InDelta(t, tc.want.Delay, got.Delay, float64(ms/10))
		})
	}
}

func TestAckAfter(t *testing.T) {
	c := NewConn(Config{AckPackets: 10, AckAfter: 3}, rttStats(time.Millisecond, time.Millisecond))
	for range 3 {
		c.OnPacketReceived()
		_, ok := c.AckFrequency()
		require.False(t, ok)
	}
	c.OnPacketReceived()
	f, ok := c.AckFrequency()
	require.True(t, ok)
	require.Equal(t, 10, f.Packets)
}

func TestPeerRequestsAreObeyedInOrder(t *testing.T) {
	c := NewConn(Config{AskPeer: true}, rttStats(time.Millisecond, time.Millisecond))
	_, ok := c.AckFrequency()
	require.False(t, ok)
	c.Request(4, AckFrequency{Packets: 20, Delay: time.Second, Reordering: 3})
	c.Request(3, AckFrequency{Packets: 1})
	c.Request(4, AckFrequency{Packets: 2})
	f, ok := c.AckFrequency()
	require.True(t, ok)
	require.Equal(t, AckFrequency{Packets: 20, Delay: time.Second, Reordering: 3}, f)
	c.Request(5, AckFrequency{Packets: 7})
	f, _ = c.AckFrequency()
	require.Equal(t, 7, f.Packets)
}

// TestPeerThatAsks: the peer's path may have become longer without a sample on our side that shows it.
func TestPeerThatAsks(t *testing.T) {
	ms := time.Millisecond
	cfg := Config{AckPackets: Unlimited, AckRTTDivisor: 2, AckRTT: QueueRTT, AskPeer: true}
	for _, asks := range []bool{false, true} {
		c := NewConn(cfg, rttStats(2*ms, 60*ms))
		c.path.OnRTT(monotime.Now(), 2*ms)
		c.OnPacketReceived()
		if asks {
			c.SetPeer(&ms, nil)
		}
		_, ok := c.AckFrequency()
		require.Equal(t, !asks, ok)
		c.Request(0, AckFrequency{Packets: 9, Delay: 5 * ms, Reordering: 1})
		f, ok := c.AckFrequency()
		require.True(t, ok)
		require.Equal(t, 9, f.Packets)
	}
}

func TestAsking(t *testing.T) {
	ms := time.Millisecond
	rtt := rttStats(10*ms, 20*ms)
	c := NewConn(Config{AckPackets: 10, AckRTTDivisor: 2, AckAfter: 100, AckReordering: 8, AskPeer: true}, rtt)
	now := monotime.Now()
	c.OnAckReceived(nil, 200)
	require.Nil(t, c.NextRequest(now), "peer does not know the extension")

	peer := 1 * ms
	c.SetPeer(&peer, nil)
	c.ask.acked = 99
	require.Nil(t, c.NextRequest(now), "too early")
	c.OnAckReceived(nil, 1)
	f := c.NextRequest(now)
	require.NotNil(t, f)
	require.Equal(t, uint64(9), f.AckElicitingThreshold)
	require.Equal(t, protocol.PacketNumber(8), f.ReorderingThreshold)
	require.InDelta(t, 10*ms, f.RequestMaxAckDelay, float64(ms))
	now = now.Add(time.Second)
	require.Nil(t, c.NextRequest(now), "same RTT")

	// It asks again when the RTT has changed by half, at most once per RTT.
	for range 100 {
		rtt.UpdateRTT(32*ms, 0)
	}
	f = c.NextRequest(now)
	require.NotNil(t, f)
	require.Equal(t, uint64(1), f.SequenceNumber)
	for range 100 {
		rtt.UpdateRTT(12*ms, 0)
	}
	require.Nil(t, c.NextRequest(now.Add(ms)))
	require.NotNil(t, c.NextRequest(now.Add(40*ms)))
}

// On 32-bit processors, a long connection has more packets than an int counts.
func TestLongConnection(t *testing.T) {
	c := NewConn(Config{AckPackets: 10, AckAfter: 3, AskPeer: true}, rttStats(time.Millisecond, time.Millisecond))
	c.ack.received = math.MaxInt
	c.OnPacketReceived()
	_, ok := c.AckFrequency()
	require.True(t, ok)

	peer := time.Millisecond
	c.SetPeer(&peer, nil)
	c.ask.acked = math.MaxInt
	c.OnAckReceived(nil, 1)
	require.NotNil(t, c.NextRequest(monotime.Now()))
}

func TestAskingRespectsPeersMinimum(t *testing.T) {
	c := NewConn(Config{AckPackets: 10, AckRTTDivisor: 4, AckRTT: MinRTT, AskPeer: true}, rttStats(4*time.Millisecond, 5*time.Millisecond))
	peer := 20 * time.Millisecond
	c.SetPeer(nil, &peer)
	require.Equal(t, Draft00Dialect, c.PeerDialect())
	f := c.NextRequest(monotime.Now())
	require.Equal(t, peer, f.RequestMaxAckDelay)
	require.Equal(t, uint64(10), f.AckElicitingThreshold)
	require.Zero(t, f.ReorderingThreshold)
}

func TestDialects(t *testing.T) {
	for _, d := range []Dialect{CurrentDialect, Draft00Dialect} {
		for _, f := range []AckFrequency{
			{Packets: 1, Delay: time.Millisecond, Reordering: 1},
			{Packets: 10, Delay: 25 * time.Millisecond, Reordering: 0},
		} {
			require.Equal(t, f, d.Decode(d.Encode(3, f)))
		}
	}
	require.Equal(t, 8, CurrentDialect.Decode(CurrentDialect.Encode(0, AckFrequency{Packets: 4, Reordering: 8})).Reordering)
	require.Equal(t, maxRequestedPackets, CurrentDialect.Decode(CurrentDialect.Encode(0, AckFrequency{Packets: math.MaxInt})).Packets)
}

func FuzzDialects(f *testing.F) {
	f.Add(uint64(0), uint64(9), uint64(5000), uint64(1))
	f.Add(uint64(1<<62-1), uint64(1<<62-1), uint64(1<<62-1), uint64(1<<62-1))
	f.Fuzz(func(t *testing.T, seq, packets, delay, reordering uint64) {
		frame := &wire.AckFrequencyFrame{
			SequenceNumber:        seq,
			AckElicitingThreshold: packets,
			RequestMaxAckDelay:    time.Duration(delay & math.MaxInt64),
			ReorderingThreshold:   protocol.PacketNumber(reordering & (1<<62 - 1)),
		}
		for _, d := range []Dialect{CurrentDialect, Draft00Dialect} {
			got := d.Decode(frame)
			if got.Packets < 1 || got.Delay < 0 || got.Delay > protocol.MaxMaxAckDelay || got.Reordering < 0 {
				t.Fatalf("%+v", got)
			}
		}
	})
}

func TestBucket(t *testing.T) {
	const packet, size, rate = 1000, 64000, 10_000_000 // 10 packets per ms
	var b Bucket
	now := monotime.Now()
	n := 0
	for b.Ready(now, rate, size, packet) {
		b.Sent(now, rate, size, packet, packet)
		n++
	}
	require.Equal(t, 64, n)
	// An empty bucket waits for a quarter of the burst, 16 packets in 1.6 ms.
	until := b.Until(rate, size, packet)
	require.InDelta(t, 1600*time.Microsecond, until.Sub(now), float64(5*time.Microsecond))
	require.False(t, b.Ready(now.Add(time.Millisecond), rate, size, packet))
	require.True(t, b.Ready(until, rate, size, packet))
	now, n = until, 0
	for b.Ready(now, rate, size, packet) {
		b.Sent(now, rate, size, packet, packet)
		n++
	}
	require.Equal(t, 16, n)
	// Over any long time, the rate holds.
	start, sent := now, 0
	for now.Sub(start) < time.Second {
		if !b.Ready(now, rate, size, packet) {
			now = b.Until(rate, size, packet)
			continue
		}
		b.Sent(now, rate, size, packet, packet)
		sent++
	}
	require.InDelta(t, 10_000, sent, 50)
	// On slow paths, packets do not wait for a group.
	require.Equal(t, protocol.ByteCount(packet), refill(100_000, size, packet))
}

func TestSlowStart(t *testing.T) {
	ms := time.Millisecond
	cfg := Config{SlowStartDivisor: 4, SlowStartMin: 8 * ms, SlowStartMax: 32 * ms}
	t.Run("threshold", func(t *testing.T) {
		s := NewSlowStart(cfg)
		require.Equal(t, 8*ms, s.Threshold(5*ms))
		require.Equal(t, 15*ms, s.Threshold(60*ms))
		require.Equal(t, 32*ms, s.Threshold(400*ms))
		stock := NewSlowStart(Config{})
		require.Equal(t, 4*ms, stock.Threshold(5*ms))
		require.Equal(t, 16*ms, stock.Threshold(400*ms))
	})
	t.Run("one ACK per round", func(t *testing.T) {
		s := NewSlowStart(cfg)
		for pn := protocol.PacketNumber(10); pn < 100; pn += 10 {
			s.OnPacketSent(pn)
			s.OnRTT(13*ms, 10*ms)
			s.OnPacketAcked(pn, 10*ms)
			require.False(t, s.Ended(50, 1))
		}
		s.OnPacketSent(200)
		s.OnRTT(19*ms, 10*ms)
		require.False(t, s.Ended(50, 1))
		s.OnPacketAcked(200, 10*ms)
		require.True(t, s.Ended(50, 1))
		require.False(t, s.Ended(15, 1), "small windows never end it")
	})
	t.Run("jitter within a round", func(t *testing.T) {
		s := NewSlowStart(cfg)
		s.OnPacketSent(1000)
		for pn := protocol.PacketNumber(1); pn < 20; pn++ {
			rtt := 60 * ms
			if pn == 8 {
				rtt = 11 * ms // one undelayed packet in eight is enough
			}
			s.OnRTT(rtt, 10*ms)
			s.OnPacketAcked(pn, 10*ms)
		}
		require.False(t, s.Ended(50, 1))
	})
}

func TestRecorder(t *testing.T) {
	c := NewConn(Config{Stats: true}, rttStats(5*time.Millisecond, 9*time.Millisecond))
	now := monotime.Now()
	c.OnPacketSent(now, 1, false)
	for range 3 {
		now = now.Add(20 * time.Microsecond)
		c.OnPacketSent(now, 1, false)
	}
	now = now.Add(5 * time.Millisecond)
	c.OnPacketSent(now, 1, false)
	c.OnCongestionState(now, true, 40000)
	c.OnCongestionState(now.Add(time.Millisecond), false, 50000)
	c.OnCongestionState(now.Add(time.Second), false, 30000)
	c.OnAckReceived(nil, 4)
	c.OnPacketReceived()
	c.OnPacketReceived()
	c.OnAckSent()
	s := c.Stats()
	require.Equal(t, uint64(5), s.PacketsSent)
	require.Equal(t, uint64(3), s.Below100us)
	require.Equal(t, uint64(3), s.InterPacketTime[5], "16 to 32 us")
	require.Equal(t, uint64(1), s.InterPacketTime[13], "4.1 to 8.2 ms")
	require.Equal(t, uint64(1), s.BurstLength[2], "a burst of 4")
	require.Equal(t, uint64(1), s.BurstLength[0], "one alone")
	require.Equal(t, 0.75, s.ShareBelow100us())
	require.Equal(t, 4.0, s.DataPerAckReceived())
	require.Equal(t, 2.0, s.DataPerAckSent())
	require.Equal(t, uint64(50000), s.SlowStartWindow)
	require.Equal(t, uint64(30000), s.CongestionWindow)
	require.InDelta(t, 6060*time.Microsecond, s.SlowStartTime, float64(time.Microsecond))
	require.Equal(t, 5*time.Millisecond, s.MinRTT)
}
