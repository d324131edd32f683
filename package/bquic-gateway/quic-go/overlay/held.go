// SPDX-License-Identifier: Apache-2.0

package quic

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
