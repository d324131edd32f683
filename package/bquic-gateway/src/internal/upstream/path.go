// SPDX-License-Identifier: Apache-2.0

package upstream

import "time"

// leastRTT is the resolution of an RTT (kGranularity of RFC 9002, section 6.1.2).
const leastRTT = time.Millisecond

// A Path describes the path to a gateway over a session that is Up.
type Path struct {
	Streams int           // connections carried
	RTT     time.Duration // the latest sample, which includes queueing delay
	Quiet   time.Duration // time since a connection was opened without any packet received since; 0: a packet was received
}

// First returns the index of the path that should deliver a new connection's data first. Among
// equal paths it returns the first. A path delivers one window per RTT, which its streams share.
// A gateway that has been quiet for longer than the RTT has an RTT of at least this time.
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
