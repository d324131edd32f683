// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// share is called if the connection carries streams of many clients. A client that
// reads nothing holds a full window for each of its streams. Without room for these
// besides the other clients' data in flight, all streams would stall. So the
// window starts at its maximum, and is updated as long as any of it is free.
func (c *connectionFlowController) share() {
	c.mutex.Lock()
	c.shared = true
	c.mutex.Unlock()
	c.EnsureMinimumWindowSize(c.maxReceiveWindowSize, monotime.Now())
}

// scarce says if the peer may send little more than four times the data read since
// the last update.
func (c *receiveFlowController) scarce(bytesRemaining protocol.ByteCount) bool {
	return c.shared && c.receiveWindowSize-bytesRemaining > (c.receiveWindow-c.highestReceived)/4
}
