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
	// How often refusals are logged again, of a peer and of one source of strangers.
	peerReport     = 10 * time.Second
	strangerReport = time.Minute
	// maxReports bounds whose refusals are told apart at a time.
	maxReports = 64
	// maxShown is how much of what others send is logged, in bytes.
	maxShown = 128
)

// reports bound how often something is logged of somebody: at first at once, then
// as a count at the end of each interval. The zero value is ready.
type reports struct {
	open map[string]*report
}

// A report is what happened since the last line about somebody.
type report struct {
	who   string
	count int
	every time.Duration
	until time.Time
}

// add notes that something happened, and says whether to log it now.
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
func (r *reports) due(now time.Time) (due []report) {
	for who, open := range r.open {
		if now.Before(open.until) {
			continue
		}
		if open.count == 0 {
			delete(r.open, who)
			continue
		}
		due = append(due, *open)
		open.count, open.until = 0, now.Add(open.every)
	}
	slices.SortFunc(due, func(a, b report) int { return strings.Compare(a.who, b.who) })
	return due
}

// shown returns what others sent as a log may have it: not too long, and quoted
// where it is not printable ASCII.
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
