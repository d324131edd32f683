// SPDX-License-Identifier: Apache-2.0

// Package news decides when to log a state that may change at any time.
package news

import (
	"time"

	"golang.org/x/time/rate"
)

// Burst changes of a state are logged at once, and then one every Interval: a link that comes and goes all day must not displace
// everything else from a router's log.
const (
	Burst    = 10
	Interval = 10 * time.Minute
)

// A State is logged when it changes, within these limits. The zero value is the state "", which is not logged.
type State struct {
	seen, told string
	changes    int // since told
	limit      *rate.Limiter
}

// Is records a state, and reports whether to log it now, with more attributes if changes before it were not logged. It must be called at each
// change, and now and then.
func (n *State) Is(state string, now time.Time) (more []any, tell bool) {
	if n.limit == nil {
		n.limit = rate.NewLimiter(rate.Every(Interval), Burst)
	}
	if state != n.seen {
		n.seen = state
		n.changes++
	}
	if state == n.told || !n.limit.AllowN(now, 1) {
		return nil, false
	}
	if n.changes > 1 {
		more = []any{"changes_not_logged", n.changes - 1}
	}
	n.told, n.changes = state, 0
	return more, true
}
