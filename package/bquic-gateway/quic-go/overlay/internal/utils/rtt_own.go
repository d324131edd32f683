// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"time"

	"github.com/quic-go/quic-go/internal/protocol"
)

// ownRTTStats is what the goroutine that updates an RTTStats asks for with every
// packet. On processors of 32 bits an atomic load of 64 takes a lock.
type ownRTTStats struct {
	smoothed             time.Duration
	pto, ptoWithAckDelay time.Duration
}

// remember follows each update.
func (r *RTTStats) remember() {
	smoothed := r.SmoothedRTT()
	pto := smoothed + max(4*r.MeanDeviation(), protocol.TimerGranularity)
	r.own = ownRTTStats{smoothed: smoothed, pto: pto, ptoWithAckDelay: pto + r.MaxAckDelay()}
}

// OwnSmoothedRTT is SmoothedRTT for the goroutine that updates the statistics.
func (r *RTTStats) OwnSmoothedRTT() time.Duration { return r.own.smoothed }
