// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/qerr"
	"github.com/quic-go/quic-go/internal/utils"
	"github.com/quic-go/quic-go/internal/wire"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"
)

func TestAckFrequencyFrameBelowMinAckDelay(t *testing.T) {
	c := &Conn{burst: burst.NewConn(Burst{AskPeer: true}, utils.NewRTTStats())}
	require.NoError(t, c.handleAckFrequencyFrame(&wire.AckFrequencyFrame{RequestMaxAckDelay: time.Millisecond}))
	err := c.handleAckFrequencyFrame(&wire.AckFrequencyFrame{SequenceNumber: 1, RequestMaxAckDelay: time.Millisecond - 1})
	var transportErr *qerr.TransportError
	require.True(t, errors.As(err, &transportErr))
	require.Equal(t, qerr.ProtocolViolation, transportErr.ErrorCode)
}

// A packet with IMMEDIATE_ACK is acknowledged at once, also where no other packet
// waits for an ACK (draft-ietf-quic-ack-frequency, section 5).
func TestImmediateAck(t *testing.T) {
	for _, tc := range []struct {
		name  string
		burst Burst
	}{
		{"stock policy", Burst{AskPeer: true}},
		{"policy", Burst{AskPeer: true, AckPackets: BurstUnlimited}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mockCtrl := gomock.NewController(t)
			unpacker := NewMockUnpacker(mockCtrl)
			conn := newServerTestConnection(t, mockCtrl, &Config{Burst: tc.burst}, false, connectionOptUnpacker(unpacker))
			now := monotime.Now()
			pn := protocol.PacketNumber(0)
			receive := func(frames ...wire.Frame) *wire.AckFrame {
				var data []byte
				for _, f := range frames {
					var err error
					data, err = f.Append(data, protocol.Version1)
					require.NoError(t, err)
				}
				pn++
				unpacker.EXPECT().UnpackShortHeader(gomock.Any(), gomock.Any()).Return(pn, protocol.PacketNumberLen2, protocol.KeyPhaseZero, data, nil)
				packet := getShortHeaderPacket(t, conn.remoteAddr, conn.srcConnID, pn, nil)
				packet.rcvTime = now
				processed, err := conn.conn.handleOnePacket(packet, 0, activePathID)
				require.NoError(t, err)
				require.True(t, processed)
				return conn.conn.receivedPacketHandler.GetAckFrame(protocol.Encryption1RTT, now, true)
			}
			for conn.conn.receivedPacketHandler.GetAlarmTimeout().IsZero() { // the first packets are acknowledged at once
				require.Less(t, int(pn), 10)
				receive(&wire.PingFrame{})
			}
			receive(&wire.PingFrame{}, &wire.ImmediateAckFrame{})

			// Now there is no packet that waits.
			ack := receive(&wire.ImmediateAckFrame{})
			require.NotNil(t, ack)
			require.Equal(t, pn, ack.LargestAcked())
			require.Zero(t, conn.conn.receivedPacketHandler.GetAlarmTimeout())
			// It asks for one ACK.
			require.Nil(t, receive(&wire.PingFrame{}))
			require.NotNil(t, receive(&wire.ImmediateAckFrame{}, &wire.PingFrame{}))
		})
	}
}

func TestMTUDiscoveryMaxFirst(t *testing.T) {
	rtt := utils.NewRTTStats()
	rtt.UpdateRTT(10*time.Millisecond, 0)
	now := monotime.Now()
	probe := func(f *mtuFinder) protocol.ByteCount {
		now = now.Add(11 * time.Millisecond)
		require.True(t, f.ShouldSendProbe(now))
		_, size := f.GetPing(now)
		return size
	}
	answer := func(f *mtuFinder, mtu protocol.ByteCount) {
		if h := (&mtuFinderAckHandler{mtuFinder: f, generation: f.generation}); f.inFlight <= mtu {
			h.OnAcked(nil)
		} else {
			h.OnLost(nil)
		}
	}

	f := newMTUDiscoverer(rtt, 1280, 1452, nil)
	f.setBurst(Burst{FastPMTU: true})
	f.Start(now)
	require.Equal(t, protocol.ByteCount(1452), probe(f))
	answer(f, 1500)
	require.Equal(t, protocol.ByteCount(1452), f.CurrentSize())
	require.True(t, f.done())

	// A path that carries less is searched, as usual.
	f.Reset(1280, 1452)
	f.Start(now)
	for range 30 {
		if f.done() {
			break
		}
		probe(f)
		answer(f, 1400)
	}
	require.True(t, f.done())
	require.InDelta(t, 1400, int(f.CurrentSize()), float64(maxMTUDiff+1))
}

func TestGSOErrors(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.EIO: true, syscall.EINVAL: true, syscall.EPERM: false} {
		require.Equal(t, want, isGSOError(os.NewSyscallError("sendmsg", errno)), errno)
	}
}
