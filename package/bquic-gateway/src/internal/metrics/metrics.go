// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// maxReaders is the limit on concurrent connections, each of which takes 20 KB of memory: whoever reaches the port can
// open any number, and admission does not count them.
const maxReaders = 32

// A Writer collects the metrics of one scrape.
type Writer struct {
	buf  bytes.Buffer
	name string
}

// Gauge begins a metric that goes up and down.
func (w *Writer) Gauge(name, help string) *Writer { return w.family(name, "gauge", help) }

// Counter begins a metric that only grows. Its name ends in _total.
func (w *Writer) Counter(name, help string) *Writer { return w.family(name, "counter", help) }

func (w *Writer) family(name, kind, help string) *Writer {
	w.name = name
	fmt.Fprintf(&w.buf, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	return w
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Value writes a value of the metric. labels are pairs of a label's name and value.
func (w *Writer) Value(v float64, labels ...string) *Writer {
	w.buf.WriteString(w.name)
	for i := 0; i+1 < len(labels); i += 2 {
		before := byte(',')
		if i == 0 {
			before = '{'
		}
		w.buf.WriteByte(before)
		fmt.Fprintf(&w.buf, `%s="%s"`, labels[i], escape.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		w.buf.WriteByte('}')
	}
	w.buf.WriteByte(' ')
	w.buf.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	w.buf.WriteByte('\n')
	return w
}

// Flag returns the value that stands for a condition: 1 or 0.
func Flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// Text returns everything written so far.
func (w *Writer) Text() []byte { return w.buf.Bytes() }

// Process writes the metrics that every daemon has. reloaded says that its last reload was not refused.
func (w *Writer) Process(prefix, version string, started time.Time, reloaded bool) {
	w.Gauge(prefix+"_build_info", "Always 1; the label is the version.").Value(1, "version", version)
	w.Gauge(prefix+"_uptime_seconds", "Time since the start.").Value(time.Since(started).Seconds())
	w.Gauge(prefix+"_reload_successful", "0: the last reload was refused because of a mistake in the file.").Value(Flag(reloaded))
	w.Gauge(prefix+"_goroutines", "Goroutines.").Value(float64(runtime.NumGoroutine()))
	w.Gauge(prefix+"_memory_bytes", "Memory that the Go runtime uses.").Value(float64(Memory()))
	w.Gauge(prefix+"_heap_bytes", "Memory that objects on the heap use.").Value(float64(memory("heap/objects")[0]))
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		w.Gauge(prefix+"_open_fds", "Open file descriptors.").Value(float64(len(open)))
	}
}

// Memory returns the memory that GOMEMLIMIT limits, in bytes: all that the
// runtime has obtained from the system and not returned.
func Memory() uint64 {
	m := memory("total", "heap/released")
	return m[0] - m[1]
}

// LimitMemory makes the runtime collect garbage more often when Memory comes near a limit, in bytes, and returns the limit. GOMEMLIMIT in
// the environment takes precedence.
func LimitMemory(limit uint64) uint64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return uint64(debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(int64(min(limit, math.MaxInt64)))
	return limit
}

// memory returns classes of the runtime's memory, in bytes.
func memory(classes ...string) (bytes []uint64) {
	samples := make([]metrics.Sample, len(classes))
	for i, class := range classes {
		samples[i].Name = "/memory/classes/" + class + ":bytes"
	}
	metrics.Read(samples)
	for _, s := range samples {
		bytes = append(bytes, s.Value.Uint64())
	}
	return bytes
}

// Listen opens a listener on address for Serve. If address is empty, it returns nil.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics: %w", err)
	}
	return ln, nil
}

// limited is a listener with places for connections. (netutil.LimitListener would take 4 KB of a router's flash.)
type limited struct {
	net.Listener
	taken chan struct{}
}

func (l limited) Accept() (net.Conn, error) {
	l.taken <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.taken
	}
	return conn, err
}

// state is http.Server.ConnState.
func (l limited) state(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		<-l.taken
	}
}

// Serve answers GET /metrics on ln until ctx ends, then closes ln. If ln is nil,
// it only waits for ctx to end.
func Serve(ctx context.Context, ln net.Listener, log *slog.Logger, collect func(*Writer)) error {
	if ln == nil {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(rw http.ResponseWriter, _ *http.Request) {
		w := new(Writer)
		collect(w)
		rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = rw.Write(w.Text())
	})
	l := limited{ln, make(chan struct{}, maxReaders)}
	srv := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ConnState: l.state,
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	log.Info("metrics served", "address", ln.Addr())
	err := srv.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving metrics failed: %w", err)
}
