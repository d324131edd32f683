// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"context"
	"testing"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"
)

// newResetStream returns a stream that has sent some data and is reset while 100 bytes still wait, and its RESET_STREAM_AT.
func newResetStream(t *testing.T, sent, streamWindow, connectionWindow protocol.ByteCount) (*SendStream, *wire.ResetStreamFrame) {
	sender := NewMockStreamSender(gomock.NewController(t))
	sender.EXPECT().onHasStreamData(gomock.Any(), gomock.Any()).AnyTimes()
	sender.EXPECT().onHasStreamControlFrame(gomock.Any(), gomock.Any()).AnyTimes()
	connection := newConnectionFlowController(0, 0, nil, nil, nil)
	connection.UpdateSendWindow(connectionWindow)
	s := newSendStream(context.Background(), 4, sender, newStreamFlowController(4, connection, 0, 0, streamWindow, nil, nil), true)
	s.Write(make([]byte, sent))
	s.popStreamFrame(protocol.MaxByteCount, protocol.Version1)
	s.Write(make([]byte, 100))
	s.SetReliableBoundary()
	s.CancelWrite(1)
	return s, resetFrame(t, s)
}

func resetFrame(t *testing.T, s *SendStream) *wire.ResetStreamFrame {
	f, ok, _ := s.getControlFrame(monotime.Now())
	require.True(t, ok)
	return f.Frame.(*wire.ResetStreamFrame)
}

// A stream is reset while flow control holds back its last data. The final size counts towards the limits (RFC 9000, section
// 4.5), and a peer would end the connection for one beyond them.
func TestResetStreamAtFlowControl(t *testing.T) {
	for name, tc := range map[string]struct{ stream, connection, sent, final protocol.ByteCount }{
		"no limit":                        {10000, 10000, 1000, 1100},
		"limit of the stream":             {1000, 10000, 1000, 1000},
		"limit of the connection":         {10000, 1000, 1000, 1000},
		"limit leaves room for a part":    {1050, 10000, 1000, 1000},
		"limit leaves room for all of it": {1100, 10000, 1000, 1100},
		"nothing was sent":                {0, 10000, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := newResetStream(t, tc.sent, tc.stream, tc.connection)
			require.Equal(t, &wire.ResetStreamFrame{StreamID: 4, ErrorCode: 1, FinalSize: tc.final, ReliableSize: tc.final}, f)
			last, _, _ := s.popStreamFrame(protocol.MaxByteCount, protocol.Version1)
			if tc.final == tc.sent {
				require.Nil(t, last.Frame)
			} else {
				require.Equal(t, tc.final-tc.sent, last.Frame.DataLen())
			}
		})
	}
}

// The receiver of a stream that is being reset asks its sender to stop. The final size stays (RFC 9000, section 4.5).
func TestResetStreamAtStopSending(t *testing.T) {
	s, f := newResetStream(t, 1000, 10000, 10000)
	s.handleStopSendingFrame(&wire.StopSendingFrame{StreamID: 4, ErrorCode: 1})
	require.Equal(t, f.FinalSize, resetFrame(t, s).FinalSize)
}

// A stream is reset, with data that is to arrive first, just when its receiver no longer wants to read. The data counts as
// read, or it would take room from the connection's other streams for as long as the connection lasts.
func TestResetStreamAtCancelled(t *testing.T) {
	sender := NewMockStreamSender(gomock.NewController(t))
	sender.EXPECT().onHasStreamControlFrame(gomock.Any(), gomock.Any())
	sender.EXPECT().onStreamCompleted(gomock.Any())
	fc := newTestStreamFlowController(4)
	s := newReceiveStream(4, sender, fc)
	now := monotime.Now()
	require.NoError(t, s.handleStreamFrame(&wire.StreamFrame{StreamID: 4, Data: make([]byte, 1000)}, now))
	s.CancelRead(1)
	require.NoError(t, s.handleResetStreamFrame(&wire.ResetStreamFrame{StreamID: 4, FinalSize: 1100, ReliableSize: 1100}, now))
	require.Equal(t, protocol.ByteCount(1100), fc.connection.highestReceived)
	require.Equal(t, protocol.ByteCount(1100), fc.connection.bytesRead)
}
