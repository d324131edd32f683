// SPDX-License-Identifier: Apache-2.0

package ackhandler

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"

	"github.com/stretchr/testify/require"
)

// A burstTracker receives packets 1 ms apart, and sends each ACK as soon as it is due.
type burstTracker struct {
	*appDataReceivedPacketTracker
	t   *testing.T
	now monotime.Time
}

func newBurstTracker(t *testing.T, cfg burst.Config) *burstTracker {
	rtt := utils.NewRTTStats()
	rtt.UpdateRTT(40*time.Millisecond, 0)
	tr := newAppDataReceivedPacketTracker(utils.DefaultLogger)
	tr.burst = burst.NewConn(cfg, rtt)
	return &burstTracker{appDataReceivedPacketTracker: tr, t: t, now: monotime.Now()}
}

// receive returns the packets after which an ACK was due.
func (b *burstTracker) receive(pns ...protocol.PacketNumber) (acked []protocol.PacketNumber) {
	for _, pn := range pns {
		b.now = b.now.Add(time.Millisecond)
		require.NoError(b.t, b.ReceivedPacket(pn, protocol.ECNNon, b.now, true))
		if b.GetAckFrame(b.now, true) != nil {
			acked = append(acked, pn)
		}
	}
	return acked
}

func numbers(from, to protocol.PacketNumber, without ...protocol.PacketNumber) (pns []protocol.PacketNumber) {
next:
	for pn := from; pn <= to; pn++ {
		for _, w := range without {
			if pn == w {
				continue next
			}
		}
		pns = append(pns, pn)
	}
	return pns
}

func TestBurstDecimation(t *testing.T) {
	tr := newBurstTracker(t, burst.Config{AckPackets: 10, AckAfter: 4})
	require.Equal(t, numbers(2, 4, 3), tr.receive(numbers(1, 4)...), "the first packets in the stock way")
	require.Equal(t, []protocol.PacketNumber{14, 24}, tr.receive(numbers(5, 30)...))
}

func TestBurstDelay(t *testing.T) {
	// 40 ms / 8: the first packet arms the alarm, and the others do not move it.
	tr := newBurstTracker(t, burst.Config{AckPackets: burst.Unlimited, AckRTTDivisor: 8})
	require.Empty(t, tr.receive(1))
	alarm := tr.GetAlarmTimeout()
	require.Equal(t, tr.now.Add(5*time.Millisecond), alarm)
	require.Empty(t, tr.receive(2, 3, 4, 5))
	require.Equal(t, alarm, tr.GetAlarmTimeout())
	require.Equal(t, []protocol.PacketNumber{6, 12}, tr.receive(numbers(6, 14)...))
}

// An odd packet, which the stock policy may hold for 25 ms, does not delay the next ones as long.
func TestBurstShorterDelay(t *testing.T) {
	tr := newBurstTracker(t, burst.Config{AskPeer: true})
	tr.burst.Request(0, burst.AckFrequency{Packets: 2, Delay: 25 * time.Millisecond})
	require.Empty(t, tr.receive(1))
	tr.burst.Request(1, burst.AckFrequency{Packets: 100, Delay: 5 * time.Millisecond})
	require.Empty(t, tr.receive(2))
	require.Equal(t, tr.now.Add(5*time.Millisecond), tr.GetAlarmTimeout())
}

func TestBurstGap(t *testing.T) {
	t.Run("at once", func(t *testing.T) {
		tr := newBurstTracker(t, burst.Config{AckPackets: 10})
		tr.receive(numbers(1, 10)...)
		require.Equal(t, []protocol.PacketNumber{12}, tr.receive(numbers(11, 14, 11)...))
		require.Equal(t, []protocol.PacketNumber{11}, tr.receive(11), "the gap's filler")
	})
	t.Run("reordering threshold", func(t *testing.T) {
		tr := newBurstTracker(t, burst.Config{AckPackets: 100, AckDelay: time.Second, AckReordering: 4})
		tr.receive(numbers(1, 100)...)
		require.Empty(t, tr.receive(102, 103, 104, 101), "reordered by less than the threshold")
		require.Empty(t, tr.receive(numbers(105, 110)...))
		require.Equal(t, []protocol.PacketNumber{115}, tr.receive(numbers(112, 118)...), "111 is missing")
		require.Empty(t, tr.receive(numbers(119, 125)...), "and is reported once")
	})
}

func TestBurstECNCE(t *testing.T) {
	tr := newBurstTracker(t, burst.Config{AckPackets: 100, AckReordering: 4})
	require.NoError(t, tr.ReceivedPacket(1, protocol.ECNCE, tr.now, true))
	require.NotNil(t, tr.GetAckFrame(tr.now, true))
}

func TestBurstPeerRequest(t *testing.T) {
	tr := newBurstTracker(t, burst.Config{AskPeer: true})
	require.Equal(t, []protocol.PacketNumber{2, 4}, tr.receive(numbers(1, 4)...))
	tr.burst.Request(0, burst.AckFrequency{Packets: 5, Delay: time.Second})
	require.Equal(t, []protocol.PacketNumber{9, 14}, tr.receive(numbers(5, 15)...))
	require.Empty(t, tr.receive(17, 18), "a threshold of 0 ignores gaps")

	h := ReceivedPacketHandler{appDataPackets: *tr.appDataReceivedPacketTracker}
	require.Nil(t, h.GetAckFrame(protocol.Encryption1RTT, tr.now, true))
	h.QueueAck()
	require.NoError(t, h.ReceivedPacket(19, protocol.ECNNon, protocol.Encryption1RTT, tr.now, true))
	require.NotNil(t, h.GetAckFrame(protocol.Encryption1RTT, tr.now, true))
}
