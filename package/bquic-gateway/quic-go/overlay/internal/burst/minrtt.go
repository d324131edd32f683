// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
)

// minFilter is the least RTT of the last while: of one to two windows. The zero
// value has seen nothing.
//
// The least RTT of a connection's life never forgets: after a route has become
// longer it takes the difference for a queue, for days.
type minFilter struct {
	before, current time.Duration // the last window's and this one's least, 0: no sample
	since           monotime.Time
}

// minRTTWindow is half of what is remembered at least.
const minRTTWindow = time.Minute

// Add takes a sample. Samples of 0 and below are none.
func (m *minFilter) Add(now monotime.Time, rtt time.Duration) {
	if rtt <= 0 {
		return
	}
	if m.since.IsZero() {
		m.since = now
	} else if now.Sub(m.since) >= minRTTWindow {
		m.before, m.current, m.since = m.current, 0, now
	}
	if m.current == 0 || rtt < m.current {
		m.current = rtt
	}
}

// Reset forgets all but one sample.
func (m *minFilter) Reset(now monotime.Time, rtt time.Duration) {
	*m = minFilter{}
	m.Add(now, rtt)
}

// Get returns the least RTT, 0 without a sample.
func (m *minFilter) Get() time.Duration {
	if m.before == 0 || m.current != 0 && m.current < m.before {
		return m.current
	}
	return m.before
}
