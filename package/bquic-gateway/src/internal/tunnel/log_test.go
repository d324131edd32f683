// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"bquic/internal/news"
)

// A logBuffer is a buffer that handlers write and a test reads.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ask passes a client's request to h as http3 does, and returns the response.
func ask(h *Handler, target, authorization string) *http.Response {
	w := streamer{httptest.NewRecorder()}
	h.ServeHTTP(w, &http.Request{Method: http.MethodConnect, Host: target, Proto: "HTTP/3.0", ProtoMajor: 3, RemoteAddr: "192.0.2.9:5000",
		Header: http.Header{"Proxy-Authorization": {authorization}}})
	return w.Result()
}

// TestLogFlood checks that neither strangers nor peers can fill the log with refusals.
func TestLogFlood(t *testing.T) {
	long := strings.Repeat("\x1b[2J\"x\n", 1000) + ":80"
	for _, tc := range []struct{ name, authorization, target string }{
		{"stranger", "", long},
		{"stranger with a wrong token", "Bearer " + long, "192.0.2.1:80"},
		{"peer", "Bearer " + token, "127.0.0.1:80"},
		{"peer with a long name", "Bearer " + token, strings.Repeat("x", 5000) + ":80"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHandler(nil)
			var log logBuffer
			h.Logger = slog.New(slog.NewTextHandler(&log, nil))
			for range 500 {
				if res := ask(h, tc.target, tc.authorization); res.StatusCode/100 == 2 || len(res.Header.Get("Proxy-Status")) > 512 {
					t.Fatalf("%d, %d bytes of Proxy-Status", res.StatusCode, len(res.Header.Get("Proxy-Status")))
				}
			}
			// On a busy machine, a second line may become due.
			if n := strings.Count(log.String(), "\n"); n < 1 || n > 5 || len(log.String()) > n*800 {
				t.Errorf("%d lines, %d bytes: %.2000s", n, len(log.String()), log.String())
			}
			if strings.Contains(log.String(), "\x1b") || strings.Contains(log.String(), "\nx") {
				t.Error("what is sent to the gateway reaches the terminal as it is")
			}
			h.tick(time.Now().Add(time.Hour))
			if !strings.Contains(log.String(), "count=") {
				t.Errorf("the others are not counted: %s", log.String())
			}
		})
	}
}

func TestReports(t *testing.T) {
	now := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	var r reports
	if !r.add(at(0), "a", time.Minute) || !r.add(at(0), "b", time.Minute) {
		t.Error("the first of each is not reported")
	}
	for range 5 {
		if r.add(at(1), "a", time.Minute) {
			t.Error("one of many is reported")
		}
	}
	if due := r.due(at(59)); len(due) != 0 {
		t.Errorf("due after 59 s: %v", due)
	}
	if due := r.due(at(60)); len(due) != 1 || due[0].who != "a" || due[0].count != 5 {
		t.Errorf("due after a minute: %+v", due)
	}
	// a was reported a moment ago, b was not.
	if r.add(at(61), "a", time.Minute) || !r.add(at(61), "b", time.Minute) {
		t.Error("a is reported, or b is not")
	}
	if due := r.due(at(1000)); len(due) != 1 || due[0].count != 1 {
		t.Errorf("due at last: %+v", due)
	}
	if r.due(at(2000)); len(r.open) != 0 {
		t.Errorf("%d are remembered", len(r.open))
	}

	// Beyond maxReports, strangers count as one.
	reported := 0
	for i := range 10 * maxReports {
		if r.add(at(3000), strings.Repeat("x", i), time.Minute) {
			reported++
		}
	}
	if reported != maxReports+1 || len(r.open) != maxReports+1 {
		t.Errorf("%d are reported, %d remembered", reported, len(r.open))
	}
}

// TestReportsForHours has a peer that is refused all day.
func TestReportsForHours(t *testing.T) {
	now := time.Unix(1000, 0)
	var r reports
	lines, counted := 0, 0
	ask := func(from, to int) {
		for s := from; s < to; s++ {
			at := now.Add(time.Duration(s) * time.Second)
			if r.add(at, "a", peerReport) {
				lines, counted = lines+1, counted+1
			}
			for _, due := range r.due(at) {
				lines, counted = lines+1, counted+due.count
			}
		}
	}
	const hour = 3600
	ask(0, hour)
	if lines < 5 || lines > 15 {
		t.Errorf("%d lines in the first hour", lines)
	}
	lines = 0
	ask(hour, 10*hour)
	if lines < 9 || lines > 9*7 {
		t.Errorf("%d lines in nine more hours", lines)
	}
	if counted < 10*hour-int(maxReport.Seconds()) {
		t.Errorf("%d of %d are counted", counted, 10*hour)
	}
	// After a quiet hour, the next one is news.
	r.due(now.Add(11 * hour * time.Second))
	r.due(now.Add(12 * hour * time.Second))
	if !r.add(now.Add(12*hour*time.Second), "a", peerReport) || r.open["a"].every != peerReport {
		t.Error("the first of another day is not reported")
	}
}

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:80":             "192.0.2.1:80",
		"":                         "",
		"a\nb":                     `"a\nb"`,
		"\x1b[2J":                  `"\x1b[2J"`,
		"é":                        `"\u00e9"`,
		strings.Repeat("x", 10000): strings.Repeat("x", maxShown) + "... (10000 bytes)",
	} {
		if got := shown(text); got != want {
			t.Errorf("%.40q is shown as %.200s", text, got)
		}
	}
}

// TestUplinkFlood has a default route that comes and goes all day. The log has room for everything else, and says how it is in the end.
func TestUplinkFlood(t *testing.T) {
	h := newHandler(nil)
	var log logBuffer
	h.Logger = slog.New(slog.NewTextHandler(&log, nil))
	target, now := netip.MustParseAddrPort("198.51.100.1:443"), time.Now()
	for range 24 * 60 {
		h.note(now, func(u *uplink) { u.answer(now, target) })
		now = now.Add(30 * time.Second)
		h.tick(now)
		h.note(now, func(u *uplink) { u.lost(now) })
		now = now.Add(30 * time.Second)
		h.tick(now)
	}
	if lines, most := strings.Count(log.String(), "\n"), news.Burst+int(24*time.Hour/news.Interval); lines > most || lines < most-2 {
		t.Errorf("%d lines", lines)
	}
	for _, end := range []struct {
		what func(*uplink)
		want string
	}{
		{func(u *uplink) { u.lost(now) }, "the Internet is unreachable"},
		{func(u *uplink) { u.answer(now, target) }, "the Internet is reachable again"},
	} {
		h.note(now, end.what)
		now = now.Add(news.Interval)
		h.tick(now)
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); !strings.Contains(lines[len(lines)-1], end.want) {
			t.Errorf("%q is not in the last line, %s", end.want, lines[len(lines)-1])
		}
	}
}
