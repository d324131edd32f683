// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"bquic/internal/metrics"
)

// A handshake costs a router a signature: some milliseconds of its CPU. These
// keep room for those who are connected, and let a browser or relay reconnect at once.
const (
	// Handshakes a second, and at once, of all clients together.
	handshakeRate  = 100
	handshakeBurst = 500
	// The same of one source.
	sourceRate  = 32
	sourceBurst = 256
	// Beyond so many a second, and at once, a client must show by a Retry
	// (RFC 9000, section 8.1.2) that its address is its own.
	unverifiedRate  = 50
	unverifiedBurst = 100

	// sourceShare is the part of all connections that one source may have.
	sourceShare = 4
	// maxSources bounds the memory that floods of made-up addresses can take.
	maxSources = 4096

	minMemory   = 32 << 20
	memoryShare = 4 // of the machine's

	// requestMemory is what a request may take while its client is slow: its
	// goroutines, a buffer, a stream or its part of a connection.
	requestMemory = 64 << 10

	// writeTimeout is how long a client may read nothing at all while there is
	// something to read.
	writeTimeout = time.Minute
)

var (
	errFull   = errors.New("too many connections")
	errSource = errors.New("too many connections of this source")
	errRate   = errors.New("too many handshakes")
	errMemory = errors.New("memory is short")
)

// Refusals count connections that were not let in, by reason.
type Refusals struct {
	Full     uint64 `json:"full"`
	Source   uint64 `json:"source"`
	Rate     uint64 `json:"rate"`
	Memory   uint64 `json:"memory"`
	Requests uint64 `json:"requests"` // answered with 503
	Shed     uint64 `json:"shed"`     // connections that were ended for their memory
	Retry    uint64 `json:"retry"`    // asked to show its address first, which is no refusal
}

// admission decides who may connect. The zero value is not ready: init.
type admission struct {
	most      atomic.Int64  // connections
	ceiling   atomic.Uint64 // of memory, bytes
	used      atomic.Uint64 // memory at the last measure
	handshake *rate.Limiter
	unproven  *rate.Limiter

	mu       sync.Mutex
	open     int64
	requests int64
	sources  map[netip.Prefix]*source

	full, source, rate, memory, retry, request, shed atomic.Uint64
}

// A source is an address, or what an IPv6 subscriber has: a /56.
type source struct {
	open      int64
	requests  int64
	handshake *rate.Limiter
}

func (a *admission) init() {
	a.handshake = rate.NewLimiter(handshakeRate, handshakeBurst)
	a.unproven = rate.NewLimiter(unverifiedRate, unverifiedBurst)
	a.sources = make(map[netip.Prefix]*source)
}

// limit sets the number of connections and the memory, in bytes.
func (a *admission) limit(connections int, memory uint64) {
	a.most.Store(int64(connections))
	a.ceiling.Store(memory)
}

// memoryCeiling makes the runtime keep to the configured ceiling, and returns
// it. The environment's GOMEMLIMIT comes first.
func memoryCeiling(configured uint64) uint64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return uint64(debug.SetMemoryLimit(-1))
	}
	if configured == 0 {
		configured = minMemory
		var info unix.Sysinfo_t
		if unix.Sysinfo(&info) == nil {
			configured = max(configured, uint64(info.Totalram)*uint64(info.Unit)/memoryShare)
		}
	}
	debug.SetMemoryLimit(int64(min(configured, math.MaxInt64)))
	return configured
}

// measure looks at the memory.
func (a *admission) measure() { a.used.Store(metrics.Memory()) }

// short says that the ceiling is reached: no new connections. tight, that it is
// near: those there are get no more room for what the gateway has not read.
func (a *admission) short() bool { return a.used.Load() >= a.ceiling.Load() }
func (a *admission) tight() bool { return a.used.Load() >= a.ceiling.Load()/4*3 }

// windows are the flow control windows that a connection begins with: what all
// allowed connections may send unread before admission looks at the memory is
// half of the ceiling, or 32 KiB each where that is more.
func (a *admission) windows() (stream, connection uint64) {
	each := max(a.ceiling.Load()/2/uint64(a.most.Load()), 32<<10)
	return min(initialStreamWindow, each), min(initialConnectionWindow, each)
}

// suspicious says that an unverified address must be verified first.
func (a *admission) suspicious() bool {
	if a.unproven.Allow() {
		return false
	}
	a.retry.Add(1)
	return true
}

// enter lets a connection in that is about to shake hands. leave must be called
// when it has ended.
func (a *admission) enter(client netip.Addr) (leave func(), err error) {
	if a.short() {
		a.memory.Add(1)
		return nil, errMemory
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	most := a.most.Load()
	if a.open >= most {
		a.full.Add(1)
		return nil, errFull
	}
	src := a.from(client)
	if src.open >= max(most/sourceShare, 1) {
		a.source.Add(1)
		return nil, errSource
	}
	if !src.handshake.Allow() || !a.handshake.Allow() {
		a.rate.Add(1)
		return nil, errRate
	}
	a.open++
	src.open++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open--
		src.open--
	}), nil
}

// begin lets a request of client be served. end must be called when it was. All
// requests together may take the memory's ceiling, and those of one source a
// part of it.
func (a *admission) begin(client netip.Addr) (end func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := int64(a.ceiling.Load() / requestMemory)
	src := a.from(client)
	if a.requests >= most || src.requests >= max(most/sourceShare, 1) {
		a.request.Add(1)
		return nil, false
	}
	a.requests++
	src.requests++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.requests--
		src.requests--
	}), true
}

// from returns the source that client belongs to. The caller holds mu.
func (a *admission) from(client netip.Addr) *source {
	prefix := sourceOf(client)
	src := a.sources[prefix]
	if src == nil {
		if len(a.sources) >= maxSources {
			a.forget()
		}
		src = &source{handshake: rate.NewLimiter(sourceRate, sourceBurst)}
		a.sources[prefix] = src
	}
	return src
}

// largest is the source with the most connections.
func (a *admission) largest() (largest netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	most := int64(0)
	for prefix, src := range a.sources {
		if src.open > most {
			largest, most = prefix, src.open
		}
	}
	return largest
}

// forget drops the sources that have no connection.
func (a *admission) forget() {
	for prefix, src := range a.sources {
		if src.open == 0 && src.requests == 0 {
			delete(a.sources, prefix)
		}
	}
}

func sourceOf(client netip.Addr) netip.Prefix {
	bits := 32
	if client.Is6() {
		bits = 56
	}
	p, _ := client.Prefix(bits)
	return p
}

func (a *admission) refusals() Refusals {
	return Refusals{a.full.Load(), a.source.Load(), a.rate.Load(), a.memory.Load(), a.request.Load(), a.shed.Load(), a.retry.Load()}
}

// admittedListener closes the connections at once that are not let in.
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
		leave, err := l.admit.enter(address(conn.RemoteAddr()))
		if err != nil {
			conn.Close()
			continue
		}
		return &admittedConn{Conn: conn, leave: leave}, nil
	}
}

// An admittedConn ends when its client reads nothing for writeTimeout.
type admittedConn struct {
	net.Conn
	leave func()
}

func (c *admittedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *admittedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// patientWriter ends a response that its client reads nothing of for writeTimeout.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w patientWriter) Write(b []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // an error shows in Write
	n, err := w.ResponseWriter.Write(b)
	// A response may rest, as server-sent events do: HTTP/2 would end it then.
	_ = w.control.SetWriteDeadline(time.Time{})
	return n, err
}

func (w patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
