// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bquic/internal/news"
)

// TestComesAndGoes has a gateway whose link changes every few seconds, all day. The log says so at first, then now and then, and has room for
// everything else. When it is over, the log says how it is.
func TestComesAndGoes(t *testing.T) {
	var log bytes.Buffer
	now := new(atomic.Pointer[settings])
	now.Store(&settings{Config: Config{Gateways: InOrder("a:1")}})
	g := newGateways(now, new(clients), slog.New(slog.NewTextHandler(&log, nil)), func() {})
	at, reason := time.Now(), ""
	second := func() {
		at = at.Add(time.Second)
		g.of("a:1").problem = reason
		g.report(at)
	}
	const day = 24 * 60 * 60
	for i := range day {
		reason = fmt.Sprintf("reason %d", i/5%2)
		second()
		if i >= 5*news.Burst {
			continue
		}
		if lines := strings.Count(log.String(), "\n"); lines != i/5+1 {
			t.Fatalf("of %d changes, %d are logged", i/5+1, lines)
		}
	}
	if lines, most := strings.Count(log.String(), "\n"), news.Burst+int(24*time.Hour/news.Interval); lines > most || lines < most-2 {
		t.Errorf("%d lines", lines)
	}
	var st Status
	if g.status(&st); st.LastError != reason {
		t.Errorf("the status says %q, not %q", st.LastError, reason)
	}
	reason = "the last one"
	for range int(news.Interval.Seconds()) + 1 {
		second()
	}
	if !strings.Contains(log.String(), reason) {
		t.Error("the log does not say how it is in the end")
	}
	untold := 0
	for line := range strings.Lines(log.String()) {
		if _, more, found := strings.Cut(line, "changes_not_logged="); found {
			var n int
			fmt.Sscan(more, &n)
			untold += n
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines+untold != day/5+1 {
		t.Errorf("%d lines, and %d changes that are not logged, of %d", lines, untold, day/5+1)
	}
}
