// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// When refusals are logged again, for a peer and for a source without a valid token. The time doubles as long as they go on, up
	// to maxReport: who is refused all day must not displace everything else from a router's log.
	peerReport     = 10 * time.Second
	strangerReport = time.Minute
	maxReport      = 10 * time.Minute
	// maxReports is the limit on peers and sources that are logged separately.
	maxReports = 64
	// maxShown is how much of a peer's text is logged, in bytes.
	maxShown = 128
)

// reports limits how often refusals of a peer or source are logged: the first one at once,
// further ones as a count at the end of each interval, which becomes longer. The zero value is ready to use.
type reports struct {
	open map[string]*report
}

// A report counts the refusals of a peer or source since its last log line.
type report struct {
	who   string
	count int
	every time.Duration
	until time.Time
}

// add counts a refusal, and reports whether to log it now.
func (r *reports) add(now time.Time, who string, every time.Duration) bool {
	if r.open[who] == nil && len(r.open) >= maxReports {
		who = "others"
	}
	if open := r.open[who]; open != nil {
		open.count++
		return false
	}
	if r.open == nil {
		r.open = make(map[string]*report)
	}
	r.open[who] = &report{who: who, every: every, until: now.Add(every)}
	return true
}

// due returns the counts to log now.
func (r *reports) due(now time.Time) (due []*report) {
	for who, open := range r.open {
		if now.Before(open.until) {
			continue
		}
		if open.count == 0 {
			delete(r.open, who)
			continue
		}
		copied := *open
		due = append(due, &copied)
		open.every = min(2*open.every, maxReport)
		open.count, open.until = 0, now.Add(open.every)
	}
	slices.SortFunc(due, func(a, b *report) int { return strings.Compare(a.who, b.who) })
	return due
}

// shown returns a peer's text in a form that is safe to log: truncated, and quoted
// if it is not printable ASCII.
func shown(text string) string {
	cut := text[:min(len(text), maxShown)]
	if strings.ContainsFunc(cut, func(c rune) bool { return c < ' ' || c > '~' }) {
		cut = strconv.QuoteToASCII(cut)
	}
	if len(text) > maxShown {
		cut += fmt.Sprintf("... (%d bytes)", len(text))
	}
	return cut
}
