// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

// leastRTT is how exactly an RTT is known (kGranularity of RFC 9002, section 6.1.2).
const leastRTT = time.Millisecond

// A Path is what is known of the way to a gateway, by a session that is Up.
type Path struct {
	Streams int           // carried
	RTT     time.Duration // the latest: what waits in the path is in it
	Quiet   time.Duration // since the gateway was sent something without anything heard since; 0: it was heard since
}

// First returns the path that is expected to deliver first what a new connection
// carries; of equal ones, the first. A path moves a window per RTT, and its streams share
// that. Who has been quiet for longer than the RTT has an RTT of at least that.
func First(paths []Path) int {
	first := 0
	for i, p := range paths {
		if p.expected() < paths[first].expected() {
			first = i
		}
	}
	return first
}

func (p Path) expected() time.Duration {
	return max(p.RTT, p.Quiet, leastRTT) * time.Duration(p.Streams+1)
}
