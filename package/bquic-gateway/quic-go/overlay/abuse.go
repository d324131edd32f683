// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package quic

import (
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"
)

// maxRawFrames bounds the frames that wait: a flood goes at the speed of the path.
const maxRawFrames = 256

// rawFrame is bytes that stand where a frame does.
type rawFrame []byte

func (f rawFrame) Append(b []byte, _ protocol.Version) ([]byte, error) { return append(b, f...), nil }
func (f rawFrame) Length(protocol.Version) protocol.ByteCount          { return protocol.ByteCount(len(f)) }

var _ wire.Frame = rawFrame(nil)

// QueueRaw sends b in a 1-RTT packet, whatever frames it may be, for tests of
// what the peer does then. It is false while too much waits.
func (c *Conn) QueueRaw(b []byte) bool {
	c.framer.controlFrameMutex.Lock()
	full := len(c.framer.controlFrames) >= maxRawFrames
	c.framer.controlFrameMutex.Unlock()
	if !full {
		c.queueControlFrame(rawFrame(b))
	}
	return !full
}
