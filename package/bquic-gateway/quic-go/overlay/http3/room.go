// SPDX-License-Identifier: Apache-2.0

package http3

import "sync/atomic"

// maxDatagrams is how many received datagrams of a connection's streams are queued, apart from streamDatagramQueueLen of each.
const maxDatagrams = 1024

// A datagramRoom is how many datagrams are queued in all streams of a connection. Nil is stock behaviour.
type datagramRoom struct{ atomic.Int32 }

// limit returns how many datagrams a stream may queue: a third of what is free, as its peer may have sent them at once
// (package quic, maxDatagrams).
func (r *datagramRoom) limit() int {
	if r == nil {
		return streamDatagramQueueLen
	}
	return max(streamDatagramQueueLen, (maxDatagrams-int(r.Load()))/3)
}

func (r *datagramRoom) take(n int) {
	if r != nil {
		r.Add(int32(n))
	}
}

// dropDatagrams drops the queue of a stream that both ends have left. The caller holds mx.
func (s *stateTrackingStream) dropDatagrams() {
	s.room.take(-len(s.queue))
	s.queue = nil
}
