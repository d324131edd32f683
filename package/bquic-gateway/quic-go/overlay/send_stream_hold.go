// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/protocol"

// HoldBack announces that more data will be written soon. Data that does not fill a packet then waits for it,
// until HoldBack(false), Close or CancelWrite. Without this, whoever writes in pieces sends a short packet
// after each of them, as soon as packets are made faster than pieces are written.
func (s *Stream) HoldBack(on bool) { s.sendStr.holdBack(on) }

func (s *SendStream) holdBack(on bool) {
	s.mutex.Lock()
	was := s.holds
	s.holds = on
	s.mutex.Unlock()
	if was && !on {
		s.sender.onHasStreamData(s.streamID, s)
	}
}

// waits says if all data waits for more, because it leaves much of a packet's room.
func (s *SendStream) waits(room protocol.ByteCount) bool {
	if !s.holds || s.finishedWriting || s.resetErr != nil || s.nextFrame != nil && s.dataForWriting != nil {
		return false
	}
	data := protocol.ByteCount(len(s.dataForWriting))
	if s.nextFrame != nil {
		data = s.nextFrame.DataLen()
	}
	return data+protocol.MinStreamFrameSize < room
}
