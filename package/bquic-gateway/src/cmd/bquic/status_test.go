// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bquic/internal/status"
)

// answering starts a daemon that answers with this JSON text on a socket.
func answering(t *testing.T, text string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "sock")
	s, err := status.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, status.Answers{status.Status: func() any { return json.RawMessage(text) }})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return socket
}

func statusConf(t *testing.T, gateway, relay string) string {
	t.Helper()
	return write(t, t.TempDir(), "conf", fmt.Sprintf("config gateway\n\toption status_socket '%s'\nconfig relay\n\toption status_socket '%s'\n", gateway, relay))
}

// TestStatusDocument checks that the JSON document has the same form whichever
// daemons run.
func TestStatusDocument(t *testing.T) {
	gateway := answering(t, `{"role":"gateway","pin":"sha256/x","connections":[]}`)
	relay := answering(t, `{"role":"relay","state":"up"}`)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"both", []string{"--config", statusConf(t, gateway, relay)}, `{"gateway":{"role":"gateway","pin":"sha256/x","connections":[]},"relay":{"role":"relay","state":"up"}}`},
		{"one", []string{"--config", statusConf(t, gateway, "/nonexistent")}, `{"gateway":{"role":"gateway","pin":"sha256/x","connections":[]},"relay":null}`},
		{"socket", []string{"--socket", relay}, `{"gateway":null,"relay":{"role":"relay","state":"up"}}`},
	} {
		out, errs, code := bquic(t, append([]string{"status", "--json"}, test.args...)...)
		var got bytes.Buffer
		if err := json.Compact(&got, []byte(out)); err != nil || got.String() != test.want+"\n" && got.String() != test.want || code != 0 || errs != "" {
			t.Errorf("%s: %v, exit code %d\ngot  %s\nwant %s\n%s", test.name, err, code, got.String(), test.want, errs)
		}
	}
	fails(t, 1, "bquic status: no daemon answers on /nonexistent", "status", "--json", "--socket", "/nonexistent")
	fails(t, 1, "bquic status: no daemon answers on /nonexistent/1: it is off (option enabled)\nbquic status: no daemon answers on /nonexistent/2: it is off (option enabled)", "status", "--json", "--config", statusConf(t, "/nonexistent/1", "/nonexistent/2"))
	stranger := answering(t, `{"role":"cook"}`)
	fails(t, 1, "bquic status: "+stranger+": neither a gateway nor a relay answers", "status", "--socket", stranger)
}

func TestStatusTables(t *testing.T) {
	relay := answering(t, `{"role":"relay","version":"1.2.3","state":"up","taking":true,"gateway":"g.example:8443","uptime_s":61}`)
	out, errs, code := bquic(t, "status", "--config", statusConf(t, "/nonexistent", relay))
	for _, part := range []string{"relay 1.2.3, up for 1 min 1 s\n", "  gateway      g.example:8443\n", "\nno daemon answers on /nonexistent: it is off (option enabled)\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	if code != 0 || errs != "" || strings.Contains(out, "{") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	fails(t, 2, `bquic status: unexpected argument "5": an interval requires --watch`, "status", "5")
	for _, args := range [][]string{{"--watch", "x"}, {"--watch", "10ms"}, {"--watch=x"}, {"--watch=10ms"}, {"--watch=-3"}} {
		_, text, _ := strings.Cut(strings.Join(args, "="), "=")
		fails(t, 2, fmt.Sprintf("bquic status: --watch: %q is not an interval of at least 100ms", text), append([]string{"status"}, args...)...)
	}
}

// TestWatch checks that without a terminal, texts follow one another, even while
// a daemon is absent.
func TestWatch(t *testing.T) {
	for range 20 { // what the end competes with does not come first every time
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out bytes.Buffer
		n := 0
		err := (&screen{w: &out}).watch(ctx, time.Millisecond, func() (string, error) {
			switch n++; n {
			case 2:
				return "", errors.New("no daemon answers")
			case 3:
				cancel()
				time.Sleep(2 * time.Millisecond) // the next text would be due
			}
			return fmt.Sprintf("text %d\n", n), nil
		})
		if want := "text 1\n\nno daemon answers\n\ntext 3\n\n"; err != nil || out.String() != want {
			t.Fatalf("%v, got %q, want %q", err, out.String(), want)
		}
	}
}

// TestScreen checks that a terminal is updated in place, and never gets more than fits.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	s := &screen{w: &out, size: func() (int, int, error) { return 6, 4, nil }}
	for _, test := range []struct{ text, want string }{
		{"one\ntwo\n", "\x1b[2J\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[J"},
		{"äußerst lang\n", "\x1b[Häußers\x1b[K\r\n\x1b[J"},
		{"1\n2\n3\n4\n5\n", "\x1b[H1\x1b[K\r\n2\x1b[K\r\n...\x1b[K\r\n\x1b[J"},
	} {
		out.Reset()
		if err := s.show(test.text); err != nil || out.String() != test.want {
			t.Errorf("%v, got %q, want %q", err, out.String(), test.want)
		}
	}
}

func TestWatchFlag(t *testing.T) {
	for text, want := range map[string]time.Duration{"true": 2 * time.Second, "5": 5 * time.Second, "0.5": 500 * time.Millisecond, "500ms": 500 * time.Millisecond, "1m": time.Minute} {
		var w watchFlag
		if err := w.Set(text); err != nil || w != (watchFlag{interval: want}) {
			t.Errorf("%q: %+v, %v", text, w, err)
		}
	}
}
