// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"runtime/metrics"
	"time"
)

// waits measures how long goroutines of this process have waited for the processor.
type waits struct {
	sample []metrics.Sample
	counts []uint64 // of each bucket, at the last call
}

func newWaits() *waits {
	w := &waits{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
	w.longest()
	return w
}

// longest returns a lower bound of the longest wait that has ended since the last call.
// The runtime samples every eighth wait.
func (w *waits) longest() time.Duration {
	metrics.Read(w.sample)
	h := w.sample[0].Value.Float64Histogram()
	longest := time.Duration(0)
	for i, n := range h.Counts {
		if w.counts != nil && n != w.counts[i] {
			longest = max(longest, time.Duration(max(h.Buckets[i], 0)*1e9)) // the first bucket begins at -Inf
		}
	}
	w.counts = append(w.counts[:0], h.Counts...)
	return longest
}
