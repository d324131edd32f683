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

// TestSaidOnce checks that a processor that is too slow, and at times also busy, is logged once, and not at each
// change of the reason: as a warning after the path has shown its rate, because until then every relay waits.
func TestSaidOnce(t *testing.T) {
	var log bytes.Buffer
	now := time.Now()
	l := &load{
		logger:    slog.New(slog.NewTextHandler(&log, nil)),
		processor: processor.New(now, 0.5, time.Second, 1<<20),
	}
	reasons := make(map[string]bool)
	var s processor.Sample
	run := func(bytes uint64) {
		for i := range 600 {
			now = now.Add(processor.Interval)
			if i%20 == 0 {
				now = now.Add(time.Second) // the process waited for the processor
			}
			s.Path.In.Bytes += bytes
			s.Path.In.Packets += bytes / 1500
			var pace float64
			l.tell(func() {}, func(time.Time) { pace = l.processor.Tick(now, s) })
			if pace > 0 {
				l.tell(func() {}, func(time.Time) { l.processor.Rehearsed(now, pace, pace) })
			}
			reasons[l.status().Why] = true
		}
	}
	run(0)
	if !reasons[processor.WhyBusy] || !reasons[processor.WhySlow] {
		t.Fatalf("the reasons were %v", reasons)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=INFO") {
		t.Errorf("before the path has shown its rate:\n%s", text)
	}
	log.Reset()
	run(150000)
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") {
		t.Errorf("after the path has shown its rate, %.0f bit/s:\n%s", l.status().Path, text)
	}
}

// TestSaidCarried checks that the line of a processor that is fast enough has the figures as the status shows
// them, and that a relay without a limit says nothing of the processor.
func TestSaidCarried(t *testing.T) {
	for share, want := range map[float64]string{
		0.5: `msg="the processor is as fast as the path: connections are carried" uses=0% may_use=50%`,
		0:   `msg="connections are carried whatever they cost" cpu_share=0`,
	} {
		var log bytes.Buffer
		now := time.Now()
		l := &load{
			logger:    slog.New(slog.NewTextHandler(&log, nil)),
			processor: processor.New(now, share, time.Millisecond, 1<<20),
		}
		var s processor.Sample
		for range 100 {
			now = now.Add(processor.Interval)
			s.Path.In.Bytes += 150000
			s.Path.In.Packets += 100
			var pace float64
			l.tell(func() {}, func(time.Time) { pace = l.processor.Tick(now, s) })
			if pace > 0 {
				l.tell(func() {}, func(time.Time) { l.processor.Rehearsed(now, pace, pace) })
			}
		}
		if text := log.String(); !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
}
