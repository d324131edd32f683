// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/qlogwriter/jsontext"
	"golang.org/x/sys/unix"
)

// A Tracer is the type of quic.Config.Tracer.
type Tracer = func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace

// ToFile records one connection to w, which is closed when the connection is.
func ToFile(w io.WriteCloser) Tracer {
	return func(_ context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
		return record(w, sideOf(isClient), id)
	}
}

func sideOf(isClient bool) string {
	if isClient {
		return "client"
	}
	return "server"
}

// ToDir is a Tracer that records each connection to a separate file, ID_client.sqlog or
// ID_server.sqlog, in the directory named by the environment variable QLOGDIR. Without
// the variable, it records nothing. A file ends when the free space falls below a quarter of
// the file system or 1 GiB, whichever is less: on a router, the file system is memory.
func ToDir(_ context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
	dir := os.Getenv("QLOGDIR")
	if dir == "" {
		return nil
	}
	side := sideOf(isClient)
	f, err := create(dir, fmt.Sprintf("%s_%s.sqlog", id, side))
	if err != nil {
		slog.Warn("cannot record a connection", "error", err)
		return nil
	}
	return record(f, side, id)
}

// create also creates a missing directory. Files reveal addresses and connection IDs, so
// only their owner can read them.
func create(dir, name string) (*bounded, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := hasRoom(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &bounded{f, dir}, nil
}

func hasRoom(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return err
	}
	if need := min(uint64(s.Blocks)/4, 1<<30/uint64(s.Bsize)); uint64(s.Bavail) < need {
		return fmt.Errorf("%s: the file system is too full", dir)
	}
	return nil
}

// bounded stops writing when the file system fills up.
type bounded struct {
	*os.File
	dir string
}

func (b *bounded) Write(p []byte) (int, error) {
	if err := hasRoom(b.dir); err != nil {
		return 0, err
	}
	return b.File.Write(p)
}

// recorder writes JSON-SEQ as qlogwriter.FileSeq does, but only transport events. HTTP/3 events
// would reveal headers with passwords and tokens, and a router has no room for code that
// writes unused events.
type recorder struct {
	w     io.WriteCloser
	start time.Time
	asked atomic.Bool

	mu  sync.Mutex
	buf *bufio.Writer
	enc *jsontext.Encoder
	err error // error of the first failed write, after which there are no more
}

func record(w io.WriteCloser, side string, id quic.ConnectionID) *recorder {
	buf := bufio.NewWriterSize(w, 32<<10)
	r := &recorder{w: w, start: time.Now(), buf: buf, enc: jsontext.NewEncoder(buf)}
	// Older readers need qlog_version and qlog_format.
	_, r.err = fmt.Fprintf(buf, "\x1e"+`{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"application/qlog+json-seq",`+
		`"qlog_version":"0.3","qlog_format":"JSON-SEQ","title":"bquic","trace":{"event_schemas":[%q],"vantage_point":{"type":%q},`+
		`"common_fields":{"group_id":%q,"reference_time":{"clock_type":"monotonic","epoch":"unknown","wall_clock_time":%q}}}}`+"\n",
		qlog.EventSchema, side, id, r.start.Format(time.RFC3339Nano))
	return r
}

// AddProducer returns a recorder to the connection, which calls it first, but not to HTTP/3.
func (r *recorder) AddProducer() qlogwriter.Recorder {
	if r.asked.Swap(true) {
		return nil
	}
	return r
}

func (r *recorder) RecordEvent(ev qlogwriter.Event) {
	// Called on concrete types: a call through the interface would link the methods of all types.
	var encode func(*jsontext.Encoder, time.Time) error
	switch e := ev.(type) {
	case qlog.PacketSent:
		encode = e.Encode
	case qlog.PacketReceived:
		encode = e.Encode
	case qlog.PacketLost:
		encode = e.Encode
	case qlog.PacketDropped:
		encode = e.Encode
	case qlog.SpuriousLoss:
		encode = e.Encode
	case qlog.PTOCountUpdated:
		encode = e.Encode
	case qlog.MTUUpdated:
		encode = e.Encode
	case qlog.MetricsUpdated:
		encode = e.Encode
	case qlog.CongestionStateUpdated:
		encode = e.Encode
	case qlog.ConnectionClosed:
		encode = e.Encode
	case qlog.DebugEvent:
		encode = e.Encode
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	now := time.Now()
	fmt.Fprintf(r.buf, "\x1e"+`{"time":%.6f,"name":%q,"data":`, float64(now.Sub(r.start))/1e6, ev.Name())
	r.err = encode(r.enc, now)
	if _, err := r.buf.WriteString("}\n"); err != nil {
		r.err = err
	}
	if r.err != nil {
		slog.Warn("a record of a connection ends early", "error", r.err)
	}
}

func (r *recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.buf.Flush(), r.w.Close())
}
