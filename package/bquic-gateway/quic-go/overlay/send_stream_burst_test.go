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
			sender := NewMockStreamSender(gomock.NewController(t))
			sender.EXPECT().onHasStreamData(gomock.Any(), gomock.Any()).AnyTimes()
			sender.EXPECT().onHasStreamControlFrame(gomock.Any(), gomock.Any())
			connection := newConnectionFlowController(0, 0, nil, nil, nil)
			connection.UpdateSendWindow(tc.connection)
			s := newSendStream(context.Background(), 4, sender, newStreamFlowController(4, connection, 0, 0, tc.stream, nil, nil), true)
			s.Write(make([]byte, tc.sent))
			s.popStreamFrame(protocol.MaxByteCount, protocol.Version1)
			s.Write(make([]byte, 100))
			s.SetReliableBoundary()
			s.CancelWrite(1)
			f, ok, _ := s.getControlFrame(monotime.Now())
			require.True(t, ok)
			require.Equal(t, &wire.ResetStreamFrame{StreamID: 4, ErrorCode: 1, FinalSize: tc.final, ReliableSize: tc.final}, f.Frame)
			last, _, _ := s.popStreamFrame(protocol.MaxByteCount, protocol.Version1)
			if tc.final == tc.sent {
				require.Nil(t, last.Frame)
			} else {
				require.Equal(t, tc.final-tc.sent, last.Frame.DataLen())
			}
		})
	}
}
