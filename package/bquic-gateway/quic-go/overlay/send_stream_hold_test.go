// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"context"
	"testing"

	"github.com/quic-go/quic-go/internal/protocol"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"
)

// Data that does not fill a packet waits while more is announced, but no longer.
func TestHoldBack(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	s, other := b.stream(1<<20), b.stream(1<<20)
	b.setClient(s, 1)
	b.setClient(other, 2)
	sent := func() protocol.ByteCount {
		streams, _ := b.packet(packetSize)
		return streams[s.streamID]
	}
	s.holdBack(true)
	b.write(s, 1000)
	require.Zero(t, sent())
	b.write(other, 100)
	require.Zero(t, sent())
	b.write(s, 1000)
	first := sent()
	require.Greater(t, first, protocol.ByteCount(packetSize-20))
	require.Zero(t, sent())
	s.holdBack(false)
	require.Equal(t, 2000-first, sent())

	s.holdBack(true)
	queued, written := make(chan struct{}), make(chan struct{})
	b.queued = func() { close(queued) }
	go func() {
		s.Write(make([]byte, 5*packetSize))
		close(written)
	}()
	<-queued
	var all protocol.ByteCount
	for range 10 {
		n := sent()
		require.True(t, n == 0 || n > packetSize-20, "%d bytes", n)
		all += n
	}
	require.Greater(t, all, protocol.ByteCount(4*packetSize))
	<-written
	require.NoError(t, s.Close())
	require.Equal(t, 5*packetSize-all, sent())
	require.True(t, s.finSent)
}

// Data that is to arrive before a reset does not wait either: nobody would write more.
func TestHoldBackReset(t *testing.T) {
	sender := NewMockStreamSender(gomock.NewController(t))
	ready := 0
	sender.EXPECT().onHasStreamData(gomock.Any(), gomock.Any()).Do(func(protocol.StreamID, *SendStream) { ready++ }).AnyTimes()
	sender.EXPECT().onHasStreamControlFrame(gomock.Any(), gomock.Any())
	s := newSendStream(context.Background(), 4, sender, newTestStreamFlowController(4), true)
	s.flowController.UpdateSendWindow(1000)
	s.flowController.connection.UpdateSendWindow(1000)
	s.holdBack(true)
	s.Write(make([]byte, 100))
	f, _, more := s.popStreamFrame(packetSize, protocol.Version1)
	require.Nil(t, f.Frame)
	require.False(t, more)
	before := ready
	s.SetReliableBoundary()
	s.CancelWrite(1)
	require.Equal(t, before+1, ready)
	f, _, _ = s.popStreamFrame(packetSize, protocol.Version1)
	require.Equal(t, protocol.ByteCount(100), f.Frame.DataLen())
}
