// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/metrics"
	"bquic/internal/tunnel"
)

const (
	minMemory   = 32 << 20
	memoryShare = 4 // a quarter of the machine's

	// writeTimeout is how long a client may read nothing while there is data for
	// it.
	writeTimeout = time.Minute
	// leastRead is how much a client must read of a response in writeTimeout, in bytes: as much as a record of TLS, by which
	// TCP is watched. Many responses may share a slow path.
	leastRead = 16 << 10
)

// memoryCeiling sets the runtime's memory limit to the configured ceiling, in
// bytes, and returns it. 0 means a quarter of the machine's memory, at least minMemory.
func memoryCeiling(configured uint64) uint64 {
	if configured == 0 {
		configured = max(minMemory, metrics.Machine()/memoryShare)
	}
	return metrics.LimitMemory(configured)
}

// measure measures the memory. Garbage does not count: memory that seems short may
// be plenty after a collection. Until the collection has ended, the last
// measurement holds.
func (a *admission) measure() {
	used := metrics.Memory()
	if used >= a.ceiling.Load() {
		debug.FreeOSMemory()
		used = metrics.Memory()
	}
	a.used.Store(used)
}

// entryKey is the key of a connection's *entry in its context and in the contexts
// of its requests.
type entryKey struct{}

func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(entryKey{}).(*entry)
	return e
}

// enterQUIC is quic.Transport.ConnContext.
func (a *admission) enterQUIC(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	e, err := a.enter(time.Now(), address(info.RemoteAddr), info.AddrVerified)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, e.leave)
	return context.WithValue(ctx, entryKey{}, e), nil
}

// followQUIC manages the entry of a connection that the listener has accepted. It
// returns when the client's address is verified, at the latest at the end of the
// handshake (RFC 9000, section 8.1).
func followQUIC(conn *quic.Conn) {
	e := entryOf(conn.Context())
	end := func(reason string) {
		_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), reason)
	}
	// Requests and tunnels are streams. All other state that a client can create
	// has a bound per connection.
	e.attach(func() uint64 {
		streams, unread := conn.Held()
		return uint64(streams)*requestMemory + unread
	}, func() { end("memory is short") })
	select {
	case <-conn.HandshakeComplete():
		if err := e.verify(time.Now()); err != nil {
			end(err.Error())
		}
	case <-conn.Context().Done():
	}
}

// admittedListener closes refused connections at once.
type admittedListener struct {
	net.Listener
	admit *admission
}

func (l *admittedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// TCP's handshake has verified the address.
		e, err := l.admit.enter(time.Now(), address(conn.RemoteAddr()), true)
		if err != nil {
			conn.Close()
			continue
		}
		tunnel.LimitUnsent(conn.(*net.TCPConn))
		e.attach(nil, func() { conn.Close() })
		return &admittedConn{conn, e}, nil
	}
}

// An admittedConn times out when its client reads nothing for writeTimeout.
type admittedConn struct {
	net.Conn
	entry *entry
}

func (c *admittedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *admittedConn) Close() error {
	c.entry.leave()
	return c.Conn.Close()
}

// tcpContext is http.Server.ConnContext.
func tcpContext(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, entryKey{}, conn.(*admittedConn).entry)
}

// patientWriter ends a response if the client reads less of it than leastRead in writeTimeout.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	piece   int   // the most to write by one deadline, which ends a response over HTTP/2 for good
	failed  error // of a flush, which httputil.ReverseProxy does not look at
}

func newPatientWriter(w http.ResponseWriter, r *http.Request) *patientWriter {
	piece := math.MaxInt
	if r.ProtoMajor == 2 {
		piece = leastRead
	}
	return &patientWriter{ResponseWriter: w, control: http.NewResponseController(w), piece: piece}
}

func (w *patientWriter) Write(b []byte) (int, error) {
	if w.failed != nil {
		return 0, w.failed
	}
	for written := 0; ; {
		_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // Write returns the error
		n, err := w.ResponseWriter.Write(b[written:][:min(len(b)-written, w.piece)])
		written += n
		late := n >= leastRead && errors.Is(err, os.ErrDeadlineExceeded)
		if written == len(b) || err != nil && !late {
			// A response may pause, as server-sent events do. With a deadline, HTTP/2
			// would end it.
			_ = w.control.SetWriteDeadline(time.Time{})
			return written, err
		}
	}
}

// FlushError is for http.ResponseController. A flush may have to write what Write has kept.
func (w *patientWriter) FlushError() error {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	w.failed = w.control.Flush()
	_ = w.control.SetWriteDeadline(time.Time{})
	return w.failed
}

func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
