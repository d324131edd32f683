// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package quic

import (
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"
)

// maxRawFrames bounds the queued frames, so that a flood proceeds at the speed of the path.
const maxRawFrames = 256

// rawFrame is bytes in the place of a frame.
type rawFrame []byte

func (f rawFrame) Append(b []byte, _ protocol.Version) ([]byte, error) { return append(b, f...), nil }
func (f rawFrame) Length(protocol.Version) protocol.ByteCount          { return protocol.ByteCount(len(f)) }

var _ wire.Frame = rawFrame(nil)

// QueueRaw sends b, which need not be valid frames, in a 1-RTT packet. It is for tests
// of the peer's reaction. It returns false while too much is queued.
func (c *Conn) QueueRaw(b []byte) bool {
	c.framer.controlFrameMutex.Lock()
	full := len(c.framer.controlFrames) >= maxRawFrames
	c.framer.controlFrameMutex.Unlock()
	if !full {
		c.queueControlFrame(rawFrame(b))
	}
	return !full
}
