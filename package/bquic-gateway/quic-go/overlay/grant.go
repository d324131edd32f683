// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"
)

// GrantStreams lets the peer have up to n bidirectional streams open at a time, if it may have fewer. It returns how many it may have now.
func (c *Conn) GrantStreams(n uint64) uint64 {
	m := c.streamsMap.incomingBidiStreams
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if n > m.maxNumStreams {
		m.maxStream += 4 * protocol.StreamID(n-m.maxNumStreams)
		m.maxNumStreams = n
		m.queueMaxStreamID(&wire.MaxStreamsFrame{Type: protocol.StreamTypeBidi, MaxStreamNum: m.maxStream.StreamNum()})
	}
	return m.maxNumStreams
}
