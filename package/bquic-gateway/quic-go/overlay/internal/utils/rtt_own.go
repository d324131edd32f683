// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"time"

	"github.com/quic-go/quic-go/internal/protocol"
)

// ownRTTStats holds the values that the goroutine that updates an RTTStats needs for
// every packet. On 32-bit processors, a 64-bit atomic load takes a lock.
type ownRTTStats struct {
	smoothed             time.Duration
	pto, ptoWithAckDelay time.Duration
}

// remember is called after each update.
func (r *RTTStats) remember() {
	smoothed := r.SmoothedRTT()
	pto := smoothed + max(4*r.MeanDeviation(), protocol.TimerGranularity)
	r.own = ownRTTStats{smoothed: smoothed, pto: pto, ptoWithAckDelay: pto + r.MaxAckDelay()}
}

// OwnSmoothedRTT is SmoothedRTT for the goroutine that updates the statistics.
func (r *RTTStats) OwnSmoothedRTT() time.Duration { return r.own.smoothed }
