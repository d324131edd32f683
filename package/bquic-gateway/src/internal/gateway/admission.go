// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"math"
	"net"
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

	// writeTimeout is how long a client of the TCP side may read nothing at all
	// while there is something to read.
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
	Full   uint64 `json:"full"`
	Source uint64 `json:"source"`
	Rate   uint64 `json:"rate"`
	Memory uint64 `json:"memory"`
	Retry  uint64 `json:"retry"` // asked to show its address first, which is no refusal
}

// admission decides who may connect. The zero value is not ready: init.
type admission struct {
	most      atomic.Int64  // connections
	ceiling   atomic.Uint64 // of memory, bytes
	used      atomic.Uint64 // memory at the last measure
	handshake *rate.Limiter
	unproven  *rate.Limiter

	mu      sync.Mutex
	open    int64
	sources map[netip.Prefix]*source

	full, source, rate, memory, retry atomic.Uint64
}

// A source is an address, or what an IPv6 subscriber has: a /56.
type source struct {
	open      int64
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
	prefix := sourceOf(client)
	src := a.sources[prefix]
	if src == nil {
		if len(a.sources) >= maxSources {
			a.forget()
		}
		src = &source{handshake: rate.NewLimiter(sourceRate, sourceBurst)}
		a.sources[prefix] = src
	}
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

// forget drops the sources that have no connection.
func (a *admission) forget() {
	for prefix, src := range a.sources {
		if src.open == 0 {
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
	return Refusals{a.full.Load(), a.source.Load(), a.rate.Load(), a.memory.Load(), a.retry.Load()}
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
