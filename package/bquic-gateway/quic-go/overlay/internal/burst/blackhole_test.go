// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"
	"github.com/quic-go/quic-go/internal/wire"

	"github.com/stretchr/testify/require"
)

// travel sends packets one after the other: L and S are large and small packets that
// arrive, l and s are lost. As in quic-go, each packet that arrives is acknowledged, and
// packets sent at least 3 before it are declared lost. It returns after how many
// packets black holes were found.
func travel(packets string) (found []int) {
	c := NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
	size := func(pn int) protocol.ByteCount {
		if packets[pn]|0x20 == 'l' {
			return BasePacketSize + 1
		}
		return BasePacketSize
	}
	declared := 0
	for pn, p := range packets {
		c.OnPacketSent(1, protocol.PacketNumber(pn), false)
		if p >= 'a' {
			continue
		}
		c.OnPacketAcked(protocol.PacketNumber(pn), size(pn))
		for ; declared <= pn-3; declared++ {
			if packets[declared] >= 'a' {
				c.OnPacketLost(protocol.PacketNumber(declared), size(declared))
			}
		}
		c.OnAckReceived(&wire.AckFrame{AckRanges: []wire.AckRange{{Smallest: protocol.PacketNumber(pn), Largest: protocol.PacketNumber(pn)}}}, 1)
		if c.FoundBlackHole() {
			found = append(found, pn)
		}
	}
	return found
}

func TestBlackHolePatterns(t *testing.T) {
	for _, tc := range []struct {
		name, packets string
		want          []int
	}{
		{"a download", "LLLL" + "llllllllll" + "SSS" + "llll" + "SSS", []int{21}},
		{"small packets between", "LSLS" + "lSlSlSlS", []int{11}},
		{"an outage", "LLLL" + "llllllllllllsss" + "SSSLLLLSSSLLL", nil},
		{"an outage, and small packets after it", "LLLL" + "llllllllllllsss" + "SSSSSSSSSSSSSSSS", nil},
		{"two outages", "LLLL" + "llllllss" + "SSSL" + "llllllss" + "SSSL", nil},
		{"loss of every 2nd packet", strings.Repeat("Ll", 100), nil},
		{"one large packet that arrives in between", "LLLL" + "lllll" + "L" + "SSS" + "llll" + "SSS", nil},
		{"loss of small packets", "LLLL" + "ssssSSS" + "ssssSSS", nil},
		{"two lost only", "LLLL" + "lSSSSS" + "lSSSSS", nil},
		// Packets in flight when it was found do not count again.
		{"the rest of a window", "LLLL" + "lllllllll" + "SSS" + "lllll" + "SSS" + "SSSS" + "SSSS", []int{21}},
		{"a second one", "LLLL" + "llll" + "SSS" + "llll" + "SSS" + "SSLLLLL" + "llll" + "SSS" + "llll" + "SSS", []int{15, 36}},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, travel(tc.packets)) })
	}
}

// With random loss, black holes are practically never found while most packets are
// large, and rarely while half of them are. Each costs one RTT with smaller packets.
func TestBlackHoleRandomLoss(t *testing.T) {
	for _, tc := range []struct {
		name        string
		loss, large float64
		most        int // of a million
	}{
		{"3 %, a download", 0.03, 0.95, 0},
		{"10 %, a download", 0.1, 0.95, 1},
		{"3 %, one in two is large", 0.03, 0.5, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			b := make([]byte, 1_000_000)
			for i := range b {
				b[i] = 'S'
				if rng.Float64() < tc.large {
					b[i] = 'L'
				}
				if rng.Float64() < tc.loss {
					b[i] |= 0x20
				}
			}
			found := travel(string(b))
			t.Logf("%d of a million packets", len(found))
			require.LessOrEqual(t, len(found), tc.most)
		})
	}
}

func TestBlackHoleRepeatedPackets(t *testing.T) {
	ack := func(from, to protocol.PacketNumber) *wire.AckFrame {
		return &wire.AckFrame{AckRanges: []wire.AckRange{{Smallest: from, Largest: to}}}
	}
	// One large packet at a time; only a probe shows that it is lost.
	c := NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
	for pn := protocol.PacketNumber(0); pn < 6; pn += 2 {
		require.False(t, c.FoundBlackHole())
		c.OnPacketRepeated(pn, 1400)
		c.OnPacketAcked(pn+1, 1200)
		c.OnAckReceived(ack(pn+1, pn+1), 1)
	}
	require.True(t, c.FoundBlackHole())
	require.False(t, c.FoundBlackHole(), "once")

	// They were late, not lost.
	c = NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
	for pn := protocol.PacketNumber(0); pn < 100; pn += 2 {
		c.OnPacketRepeated(pn, 1400)
		c.OnPacketAcked(pn+1, 1200)
		c.OnAckReceived(ack(0, pn+1), 1)
		require.False(t, c.FoundBlackHole())
	}

	// One that is late is one that the path carries.
	c = NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
	for pn := protocol.PacketNumber(0); pn < 100; pn += 4 {
		c.OnPacketRepeated(pn, 1400)
		c.OnPacketRepeated(pn+1, 1400)
		c.OnPacketRepeated(pn+3, 1400)
		c.OnPacketAcked(pn+2, 1200)
		c.OnAckReceived(ack(pn+2, pn+2), 1)
		c.OnAckReceived(ack(pn+3, pn+3), 1)
		require.False(t, c.FoundBlackHole())
	}
	for pn := range protocol.PacketNumber(2 * maxRepeated) { // no ACK arrives
		c.OnPacketRepeated(pn, 1400)
	}
	require.Len(t, c.hole.repeated, maxRepeated)

	// Without the field, nothing is found.
	c = NewConn(Config{Stats: true}, utils.NewRTTStats())
	for pn := protocol.PacketNumber(0); pn < 100; pn += 2 {
		c.OnPacketRepeated(pn, 1400)
		c.OnPacketAcked(pn+1, 1200)
		c.OnAckReceived(ack(pn+1, pn+1), 1)
		require.False(t, c.FoundBlackHole())
	}
	require.Equal(t, protocol.ByteCount(1400), c.ProbeSize(1400))
}

// Packets are declared lost, and acknowledged late, in any order.
func TestBlackHoleOrder(t *testing.T) {
	for _, tc := range []struct {
		late  protocol.PacketNumber // a large packet that is acknowledged after the first loss
		found bool
	}{{5, true}, {11, false}, {18, false}} {
		c := NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
		c.OnPacketAcked(14, 1200)
		c.OnPacketLost(12, 1400)
		c.OnPacketLost(10, 1400)
		c.OnPacketLost(13, 1400)
		c.OnPacketAcked(tc.late, 1400)
		c.OnPacketAcked(20, 1200)
		c.OnPacketLost(16, 1400)
		require.Equal(t, tc.found, c.FoundBlackHole(), tc.late)
	}
	// A new path has not lost anything.
	c := NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
	for pn := protocol.PacketNumber(0); pn < 10; pn += 2 {
		c.OnPacketAcked(pn+1, 1200)
		c.OnPacketLost(pn, 1400)
	}
	c.OnPathChanged()
	require.False(t, c.FoundBlackHole())
	require.Equal(t, protocol.ByteCount(BasePacketSize), c.ProbeSize(1400))
	require.Equal(t, protocol.ByteCount(1000), c.ProbeSize(1000))
}

func TestBlackHolePTO(t *testing.T) {
	c := NewConn(Config{BlackHoles: true}, utils.NewRTTStats())
	start := monotime.Now()
	after := func(d time.Duration) monotime.Time { return start.Add(d * time.Millisecond) }
	require.Equal(t, after(100), c.PTO(after(100), 100*time.Millisecond), "nothing was sent")
	c.OnPacketSent(start, 1, false)
	c.OnPacketSent(after(90), 2, false)
	require.Equal(t, after(190), c.PTO(after(190), 100*time.Millisecond), "after the last packet")
	c.OnPacketSent(after(180), 3, false)
	require.Equal(t, after(200), c.PTO(after(280), 100*time.Millisecond), "but not put off for ever")
	require.Equal(t, after(300), c.PTO(after(300), 100*time.Millisecond), "a timeout that had passed before the last packet left")
	c.OnAckReceived(&wire.AckFrame{AckRanges: []wire.AckRange{{Smallest: 1, Largest: 1}}}, 1)
	c.OnPacketSent(after(250), 4, true)
	require.Equal(t, after(350), c.PTO(after(350), 100*time.Millisecond), "no ACK is waited for")
}
