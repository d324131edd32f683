// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
)

// minFilter is the least RTT of the last one to two windows. The zero value is
// ready to use.
//
// The least RTT since the start of a connection would never grow: after a change to a
// longer route, the difference would look like a queue, for days.
type minFilter struct {
	before, current time.Duration // the least of the last and the current window, 0: no sample
	since           monotime.Time
}

// minRTTWindow is the length of a window: samples count for this time at least.
const minRTTWindow = time.Minute

// Add takes a sample. It ignores samples of 0 and below.
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

// Reset discards all samples but rtt.
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
