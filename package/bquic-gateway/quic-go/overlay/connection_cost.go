// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/monotime"

// setTimer has the run loop wake up by deadline. A timer that is set for an
// earlier time is left alone: deadlines move on with every packet, and to set a
// timer takes a thousand instructions. When it fires the run loop finds nothing
// due, and sets it once for all the packets since.
func (c *Conn) setTimer(deadline monotime.Time) {
	if !c.timerSet.IsZero() && !c.timerSet.After(deadline) {
		return
	}
	c.timerSet = deadline
	c.timer.Reset(monotime.Until(deadline))
}
