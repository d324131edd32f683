// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/monotime"

// setTimer makes the run loop wake up by deadline. It leaves a timer alone that is
// set for an earlier time: deadlines move with every packet, and setting a timer
// takes a thousand instructions. When the timer fires early, the run loop finds
// nothing due and sets it once for all packets since.
func (c *Conn) setTimer(deadline monotime.Time) {
	if !c.timerSet.IsZero() && !c.timerSet.After(deadline) {
		return
	}
	c.timerSet = deadline
	c.timer.Reset(monotime.Until(deadline))
}
