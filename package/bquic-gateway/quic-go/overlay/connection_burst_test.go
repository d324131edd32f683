// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/ackhandler"
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

// A packet with IMMEDIATE_ACK is acknowledged at once, even if no other packet waits for
// an ACK (draft-ietf-quic-ack-frequency, section 5).
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

			// Now no packet waits for an ACK.
			ack := receive(&wire.ImmediateAckFrame{})
			require.NotNil(t, ack)
			require.Equal(t, pn, ack.LargestAcked())
			require.Zero(t, conn.conn.receivedPacketHandler.GetAlarmTimeout())
			// It requests only one ACK.
			require.Nil(t, receive(&wire.PingFrame{}))
			require.NotNil(t, receive(&wire.ImmediateAckFrame{}, &wire.PingFrame{}))
		})
	}
}

// TestImmediateAckAtTheEnd: the last packet of a stream does not wait for a held-back ACK.
func TestImmediateAckAtTheEnd(t *testing.T) {
	const maxSize = 1000
	asked := Burst{AskPeer: true, AckPackets: BurstUnlimited}
	for _, tc := range []struct {
		name           string
		burst          Burst
		fin, left      bool
		datagram, full bool
		want           int
	}{
		{name: "the end", burst: asked, fin: true, want: 1},
		{name: "before a datagram", burst: asked, fin: true, datagram: true, want: 1},
		{name: "a pause", burst: asked},
		{name: "another stream has data", burst: asked, fin: true, left: true},
		{name: "no room", burst: asked, fin: true, full: true},
		{name: "no ACK is held back", burst: Burst{AskPeer: true}, fin: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rtt := utils.NewRTTStats()
			rtt.UpdateRTT(50*time.Millisecond, 0)
			conn := burst.NewConn(tc.burst, rtt)
			delay := time.Millisecond
			conn.SetPeer(&delay, nil)
			conn.NextRequest(monotime.Now())

			tp := newTestPacketPacker(t, gomock.NewController(t), protocol.PerspectiveServer)
			tp.packer.burst = conn
			f := &wire.StreamFrame{StreamID: 4, Data: make([]byte, 100), Fin: tc.fin}
			if tc.full {
				f.Data = make([]byte, maxSize-f.Length(protocol.Version1)+100)
			}
			if tc.datagram {
				require.NoError(t, tp.datagramQueue.Add(&wire.DatagramFrame{DataLenPresent: true, Data: []byte("call")}))
			}
			gomock.InOrder(
				tp.framer.EXPECT().HasData().Return(true),
				tp.framer.EXPECT().HasData().Return(tc.left).AnyTimes(),
			)
			tp.framer.EXPECT().AppendControlFrames(gomock.Any(), gomock.Any(), gomock.Any(), gomock.Any())
			tp.framer.EXPECT().AppendStreamFrames(gomock.Any(), gomock.Any(), gomock.Any(), gomock.Any()).DoAndReturn(
				func(frames []ackhandler.Frame, _ []ackhandler.StreamFrame, _ protocol.ByteCount, v protocol.Version) ([]ackhandler.Frame, []ackhandler.StreamFrame, protocol.ByteCount) {
					return frames, []ackhandler.StreamFrame{{Frame: f}}, f.Length(v)
				},
			)
			pl := tp.packer.composeNextPacket(maxSize, false, false, monotime.Now(), protocol.Version1)
			require.LessOrEqual(t, pl.length, protocol.ByteCount(maxSize))
			var found int
			size := f.Length(protocol.Version1)
			for _, frame := range pl.frames {
				size += frame.Frame.Length(protocol.Version1)
				if _, ok := frame.Frame.(*wire.ImmediateAckFrame); ok {
					found++
					require.Nil(t, frame.Handler, "it is not repeated")
				}
			}
			require.Equal(t, tc.want, found)
			require.Equal(t, size, pl.length)
			if tc.datagram {
				require.IsType(t, &wire.DatagramFrame{}, pl.frames[len(pl.frames)-1].Frame)
			}
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

	// On a path that carries less, the usual search follows.
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

// TestGSOAgain checks that GSO is used again some time after an error whose reason may have passed.
func TestGSOAgain(t *testing.T) {
	remote := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	raw := NewMockRawConn(gomock.NewController(t))
	raw.EXPECT().LocalAddr()
	raw.EXPECT().capabilities().Return(connCapabilities{GSO: true}).AnyTimes()
	raw.EXPECT().WritePacket(gomock.Any(), remote, gomock.Any(), uint16(4), protocol.ECNNon).Return(0, os.NewSyscallError("sendmsg", syscall.EINVAL))
	raw.EXPECT().WritePacket(gomock.Any(), remote, gomock.Any(), uint16(0), protocol.ECNNon).AnyTimes()
	c := newSendConn(raw, remote, packetInfo{}, utils.DefaultLogger)
	require.True(t, c.capabilities().GSO)
	require.NoError(t, c.Write([]byte("foobar"), 4, protocol.ECNNon))
	for range gsoPause {
		require.False(t, c.capabilities().GSO)
		require.NoError(t, c.Write([]byte("foobar"), 0, protocol.ECNNon))
	}
	require.True(t, c.capabilities().GSO)
}

func TestGSOErrors(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{syscall.EIO: true, syscall.EINVAL: true, syscall.EPERM: false} {
		require.Equal(t, want, isGSOError(os.NewSyscallError("sendmsg", errno)), errno)
	}
}
