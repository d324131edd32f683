// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// share is called where the connection carries streams of many clients. A client
// that reads nothing holds a window of each of its streams, and without room for
// those beside what the others have in flight, all stand still. So the window is as
// large as it may become, and there are updates as long as any of it is free.
func (c *connectionFlowController) share() {
	c.mutex.Lock()
	c.shared = true
	c.mutex.Unlock()
	c.EnsureMinimumWindowSize(c.maxReceiveWindowSize, monotime.Now())
}

// scarce says that the peer may send little more than four times what was read
// since the last update.
func (c *receiveFlowController) scarce(bytesRemaining protocol.ByteCount) bool {
	return c.shared && c.receiveWindowSize-bytesRemaining > (c.receiveWindow-c.highestReceived)/4
}
