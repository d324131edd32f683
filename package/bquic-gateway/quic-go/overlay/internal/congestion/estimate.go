// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"time"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/protocol"
)

// Values derived from the congestion window and the RTT change with ACKs, but are
// needed several times per packet sent. Without hardware support, a 64-bit division
// costs hundreds of instructions.

// A bandwidthEstimate is the last result of BandwidthFromDelta.
type bandwidthEstimate struct {
	path   *burst.Path // nil: the smoothed RTT counts as it is
	window protocol.ByteCount
	rtt    time.Duration
	rate   Bandwidth
}

func (e *bandwidthEstimate) of(window protocol.ByteCount, rtt time.Duration) Bandwidth {
	if e.path != nil {
		rtt = e.path.Recent(rtt)
	}
	if e.window != window || e.rtt != rtt {
		e.window, e.rtt, e.rate = window, rtt, BandwidthFromDelta(window, rtt)
	}
	return e.rate
}

// A burstEstimate is the largest burst of a pacer at its last rate.
type burstEstimate struct {
	rate     Bandwidth
	datagram protocol.ByteCount // largest size
	size     protocol.ByteCount
}

func (e *burstEstimate) of(p *pacer, rate Bandwidth) protocol.ByteCount {
	if e.rate != rate || e.datagram != p.maxDatagramSize {
		size := max(
			p.timeScaledBandwidth(minPacingDelay+protocol.TimerGranularity, rate),
			maxBurstSizePackets*p.maxDatagramSize,
		)
		*e = burstEstimate{rate, p.maxDatagramSize, size}
	}
	return e.size
}

// A queueEstimate is how much of a window was in a queue at the last RTTs.
type queueEstimate struct {
	window    protocol.ByteCount
	rtt, path time.Duration
	size      protocol.ByteCount
}

// of returns how much of window is in a queue, given the current RTT, which is not 0,
// and the RTT of the path without a queue.
func (e *queueEstimate) of(window protocol.ByteCount, rtt, path time.Duration) protocol.ByteCount {
	if e.window != window || e.rtt != rtt || e.path != path {
		// In microseconds, the product fits into 63 bits for any window and RTT.
		waits := uint64(window) * uint64((rtt-path)/time.Microsecond)
		size := protocol.ByteCount(waits / uint64(max(rtt/time.Microsecond, 1)))
		*e = queueEstimate{window, rtt, path, size}
	}
	return e.size
}
