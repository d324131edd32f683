// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/protocol"

// Held returns how many bidirectional streams the peer has open, and how many bytes
// of stream data from the peer have not been read yet, including gaps. It is safe
// to call at any time, even after the connection was closed.
func (c *Conn) Held() (streams int, unread uint64) {
	m := c.streamsMap.incomingBidiStreams
	m.mutex.RLock()
	streams = len(m.streams)
	m.mutex.RUnlock()

	f := c.connFlowController
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return streams, uint64(f.highestReceived - f.bytesRead)
}

// unread returns how many bytes from the peer wait to be read, including gaps.
func (s *ReceiveStream) unread() protocol.ByteCount {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.cancelledLocally {
		return 0
	}
	f := s.flowController
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.highestReceived - f.bytesRead
}

// Hoards says if unread data fills three quarters of the connection's receive window, and s holds no less of it than the
// mean of the streams that hold any. Once such data fills all of the window, every stream stands still.
func (s *Stream) Hoards() bool {
	c := s.sender.(*Conn)
	f := c.connFlowController
	f.mutex.Lock()
	most, unread := f.receiveWindowSize/4*3, f.highestReceived-f.bytesRead
	f.mutex.Unlock()
	if unread <= most {
		return false
	}
	var sum, holders protocol.ByteCount
	for _, other := range c.streamsMap.bidi() {
		if n := other.receiveStr.unread(); n > 0 {
			sum, holders = sum+n, holders+1
		}
	}
	return sum > most && s.receiveStr.unread()*holders >= sum
}

// bidi returns all bidirectional streams.
func (m *streamsMap) bidi() (all []*Stream) {
	in, out := m.incomingBidiStreams, m.outgoingBidiStreams
	in.mutex.RLock()
	defer in.mutex.RUnlock()
	for _, s := range in.streams {
		all = append(all, s.stream)
	}
	out.mutex.RLock()
	defer out.mutex.RUnlock()
	for _, s := range out.streams {
		all = append(all, s)
	}
	return all
}
