// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"bquic/internal/processor"
)

// TestSaidOnce checks that a processor that is too slow, and at times also busy, is logged
// once, and not at each change of the reason.
func TestSaidOnce(t *testing.T) {
	var log bytes.Buffer
	now := time.Now()
	l := &load{
		logger:    slog.New(slog.NewTextHandler(&log, nil)),
		processor: processor.New(now, 0.5, time.Second, 1<<20),
	}
	reasons := make(map[string]bool)
	var s processor.Sample
	for i := range 600 {
		now = now.Add(processor.Interval)
		if i%20 == 0 {
			now = now.Add(time.Second) // the process waited for the processor
		}
		var pace float64
		l.tell(func() {}, func(time.Time) { pace = l.processor.Tick(now, s) })
		if pace > 0 {
			l.tell(func() {}, func(time.Time) { l.processor.Rehearsed(now, pace, pace) })
		}
		reasons[l.status().Why] = true
	}
	if !reasons[processor.WhyBusy] || !reasons[processor.WhySlow] {
		t.Fatalf("the reasons were %v", reasons)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, log.String())
	}
}
