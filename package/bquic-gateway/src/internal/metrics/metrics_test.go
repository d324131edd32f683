// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestText(t *testing.T) {
	w := new(Writer)
	w.Gauge("a", "A gauge.").Value(0.25)
	w.Counter("b_total", "A counter.").
		Value(1, "x", "1", "y", `"\`+"\n").
		Value(1<<53, "x", "é", "y", "")
	want := `# HELP a A gauge.
# TYPE a gauge
a 0.25
# HELP b_total A counter.
# TYPE b_total counter
b_total{x="1",y="\"\\\n"} 1
b_total{x="é",y=""} 9.007199254740992e+15
`
	if got := string(w.Text()); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestProcess(t *testing.T) {
	runtime.GC() // before the first collection, the runtime has no heap statistics
	w := new(Writer)
	w.Process("p", "1.2", time.Now().Add(-time.Minute), true)
	text := string(w.Text())
	if n := strings.Count(text, "# TYPE p_"); n != 7 {
		t.Errorf("%d metrics", n)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "p_") && strings.HasSuffix(line, " 0\n") {
			t.Errorf("nothing measured: %s", line)
		}
	}
}

// TestMemory: memory counts while it is in use, until the system has it back.
func TestMemory(t *testing.T) {
	const size = 64 << 20
	before := Memory()
	block := make([]byte, size)
	during := Memory()
	runtime.KeepAlive(block)
	debug.FreeOSMemory()
	if after := Memory(); during < before+size/2 || after > during-size/2 {
		t.Errorf("%d, then %d, then %d bytes", before, during, after)
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	logged, sink := io.Pipe()
	done := make(chan error, 1)
	ln, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		done <- Serve(ctx, ln, slog.New(slog.NewTextHandler(sink, nil)), func(w *Writer) { w.Gauge("a", "A.").Value(1) })
		sink.Close()
	}()
	line, err := bufio.NewReader(logged).ReadString('\n')
	if err != nil {
		t.Fatal(<-done)
	}
	go func() { _, _ = io.Copy(io.Discard, logged) }()
	_, address, ok := strings.Cut(strings.TrimSpace(line), "address=")
	if !ok {
		t.Fatal(line)
	}
	url := "http://" + address
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || string(body) != "# HELP a A.\n# TYPE a gauge\na 1\n" || res.Header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("%q, %v, %v", body, res.Header, err)
	}
	for _, bad := range []struct {
		method, path string
		code         int
	}{{"GET", "/", 404}, {"POST", "/metrics", 405}} {
		r, _ := http.NewRequest(bad.method, url+bad.path, nil)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != bad.code {
			t.Errorf("%s %s: %s", bad.method, bad.path, res.Status)
		}
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := Listen(ctx, address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("an address in use: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if ln, err = Listen(ctx, ""); ln != nil || err != nil { // no metrics
		t.Errorf("%v, %v", ln, err)
	}
	if err := Serve(ctx, ln, log, nil); err != nil {
		t.Error(err)
	}
}

// A flood is a listener on which connections arrive without end, none of which says anything.
type flood struct {
	accepted int
	clients  []net.Conn
	closed   chan struct{}
}

func (f *flood) Accept() (net.Conn, error) {
	if f.accepted == 1000 {
		<-f.closed
		return nil, net.ErrClosed
	}
	f.accepted++
	client, server := net.Pipe()
	f.clients = append(f.clients, client)
	return server, nil
}

func (f *flood) Close() error   { close(f.closed); return nil }
func (f *flood) Addr() net.Addr { return &net.TCPAddr{} }

func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &flood{closed: make(chan struct{})}
		done := make(chan error)
		go func() { done <- Serve(ctx, f, slog.New(slog.DiscardHandler), func(*Writer) {}) }()
		synctest.Wait()
		if f.accepted != maxReaders {
			t.Errorf("%d connections at a time", f.accepted)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
