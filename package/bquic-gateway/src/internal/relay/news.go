// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"golang.org/x/time/rate"
)

// newsBurst changes of a state are logged at once, and then one every newsInterval: a link that comes and goes all day must not displace
// everything else from a router's log.
const (
	newsBurst    = 10
	newsInterval = 10 * time.Minute
)

// news says when to log a state that may change at any time. The zero value is that of the state "", which is not logged.
type news struct {
	seen, told string
	changes    int // since told
	limit      *rate.Limiter
}

// is records a state, and reports whether to log it now, with more attributes if changes before it were not logged. It must be called at each
// change, and now and then.
func (n *news) is(state string, now time.Time) (more []any, tell bool) {
	if n.limit == nil {
		n.limit = rate.NewLimiter(rate.Every(newsInterval), newsBurst)
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
