// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"math/bits"
	"sync"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// together is the longest time between two packets of one burst.
const together = 100 * time.Microsecond

// recorder gathers Stats.
type recorder struct {
	mu sync.Mutex
	s  Stats

	first, last monotime.Time // packets sent
	run         uint64        // packets of the current burst
	slowStarted bool
}

func (r *recorder) sent(now monotime.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s.PacketsSent++
	if r.first.IsZero() {
		r.first, r.last, r.run = now, now, 1
		return
	}
	d := now.Sub(r.last)
	r.last = now
	bucket := 0
	if d >= time.Microsecond { // most packets follow at once, and need no division
		bucket = log2Bucket(uint64(d/time.Microsecond), len(r.s.InterPacketTime))
	}
	r.s.InterPacketTime[bucket]++
	if d < together {
		r.s.Below100us++
		r.run++
		return
	}
	r.endRun(&r.s)
	r.run = 1
}

// endRun counts the current burst: bucket i holds bursts of at most 1 << i packets.
func (r *recorder) endRun(s *Stats) {
	if r.run > 0 {
		s.BurstLength[log2Bucket(r.run-1, len(s.BurstLength))]++
	}
}

// log2Bucket returns the i for which 1<<(i-1) <= v < 1<<i, at most n-1.
func log2Bucket(v uint64, n int) int { return min(bits.Len64(v), n-1) }

func (r *recorder) receivedPacket() {
	r.mu.Lock()
	r.s.PacketsReceived++
	r.mu.Unlock()
}

func (r *recorder) ackSent() {
	r.mu.Lock()
	r.s.AcksSent++
	r.mu.Unlock()
}

func (r *recorder) ackReceived(packets int) {
	r.mu.Lock()
	r.s.AcksReceived++
	r.s.PacketsAcked += uint64(packets)
	r.mu.Unlock()
}

func (r *recorder) lost() {
	r.mu.Lock()
	r.s.PacketsLost++
	r.mu.Unlock()
}

func (r *recorder) spurious(n int) {
	r.mu.Lock()
	r.s.PacketsLostSpurious += uint64(n)
	r.mu.Unlock()
}

func (r *recorder) congestion(now monotime.Time, inSlowStart bool, cwnd protocol.ByteCount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s.CongestionWindow = uint64(cwnd)
	if inSlowStart {
		r.slowStarted = true
		return
	}
	if r.slowStarted && r.s.SlowStartTime == 0 && !r.first.IsZero() {
		r.s.SlowStartTime = max(now.Sub(r.first), 1)
		r.s.SlowStartWindow = uint64(cwnd)
	}
}

func (r *recorder) snapshot() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.s
	r.endRun(&s)
	return s
}
