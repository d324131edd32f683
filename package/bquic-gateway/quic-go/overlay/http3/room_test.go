// SPDX-License-Identifier: Apache-2.0

package http3

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quic-go/quic-go"
)

type noClearer struct{}

func (noClearer) clearStream(quic.StreamID) {}

// A stream may queue a burst of datagrams, and fewer while others have many queued. What it leaves behind when it has ended makes room.
func TestDatagramRoom(t *testing.T) {
	var room datagramRoom
	str, _ := newStreamPair(t)
	stream := func() *stateTrackingStream {
		return &stateTrackingStream{Stream: str, clearer: noClearer{}, hasData: make(chan struct{}, 1), room: &room}
	}
	fill := func(s *stateTrackingStream) int {
		for range maxDatagrams {
			s.enqueueDatagram([]byte("datagram"))
		}
		return len(s.queue)
	}
	first := stream()
	require.Equal(t, maxDatagrams/4, fill(first))
	_, err := first.ReceiveDatagram(context.Background())
	require.NoError(t, err)
	require.Equal(t, maxDatagrams/4, fill(first))

	sum := fill(first)
	others := make([]*stateTrackingStream, 50)
	for i := range others {
		others[i] = stream()
		n := fill(others[i])
		require.GreaterOrEqual(t, n, streamDatagramQueueLen)
		sum += n
	}
	require.Equal(t, streamDatagramQueueLen, len(others[49].queue))
	require.EqualValues(t, sum, room.Load())

	for i, s := range append(others, first) {
		if i%2 == 0 {
			s.sendStreamDone = true
			s.closeReceive(context.Canceled)
		} else {
			s.closeReceive(context.Canceled)
			s.closeSend()
		}
		s.enqueueDatagram([]byte("late"))
		_, err := s.ReceiveDatagram(context.Background())
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Zero(t, room.Load())
}
