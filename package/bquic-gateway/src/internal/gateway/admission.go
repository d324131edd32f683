// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"bquic/internal/peer"
)

// A handshake costs a router a signature, which takes a few milliseconds of CPU time.
// These limits protect established connections, and let a browser or relay reconnect at
// once.
const (
	// Handshakes per second, and in a burst, by all clients together.
	handshakeRate  = 100
	handshakeBurst = 500
	// Handshakes by clients whose address is not validated. Above this rate, they must
	// validate it with a Retry (RFC 9000, section 8.1.2).
	unverifiedRate  = 50
	unverifiedBurst = 100

	// shareOfFree limits a source to this fraction of the free resources: one third. A
	// single source can hold a quarter of the total. n greedy sources hold n/(n+3) of the
	// total in equal parts, and the next source can hold as much as each of them.
	shareOfFree = 3
	// maxSources bounds the memory that a flood of addresses can consume.
	maxSources = 4096

	// connectionMemory is the memory of an idle connection, in bytes: two goroutines,
	// keys, buffers.
	connectionMemory = 64 << 10
	// requestMemory is the memory that a request or a tunnel can take while its client is
	// slow, in bytes: its goroutines, a buffer, a stream or its part of a connection.
	requestMemory = 64 << 10
	// unverifiedShare limits unverified connections to an eighth of the memory and to an
	// eighth of the number of other connections.
	unverifiedShare = 8
)

var (
	errFull     = errors.New("too many connections")
	errSource   = errors.New("too many connections from this source")
	errRate     = errors.New("too many handshakes")
	errMemory   = errors.New("memory is short")
	errRequests = errors.New("too many requests")
	errEarly    = errors.New("too many requests before the end of a handshake")
)

// Refusals counts refused connections by reason.
type Refusals struct {
	Full     uint64 `json:"full"`
	Source   uint64 `json:"source"`
	Rate     uint64 `json:"rate"`
	Memory   uint64 `json:"memory"`
	Requests uint64 `json:"requests"` // answered with 503 or 425
	Shed     uint64 `json:"shed"`     // connections closed because memory was short
	Retry    uint64 `json:"retry"`    // clients asked to validate their address, which is not a refusal
}

// admission decides which connections and requests are admitted, and which connections
// are closed when memory is short. It has no clock and no connection. The zero value is
// not usable; call init.
//
// All resources of a connection are charged to one source, that of the address with which
// it was admitted, even if it migrates. While the address can still be forged, the source
// is unverified, which all such connections share. It has its own limits and takes
// nothing from other sources.
type admission struct {
	ceiling atomic.Uint64 // memory limit, bytes
	used    atomic.Uint64 // memory at the last measurement, bytes
	most    atomic.Int64  // limit on connections, without the unverified ones

	mu         sync.Mutex
	open       int64 // connections
	requests   int64
	handshakes fairRate
	sources    map[netip.Prefix]*source
	unverified source
	places     int64 // limit on unverified connections
	slots      int64 // limit on requests, without the unverified ones
	unproven   *rate.Limiter
	refused    Refusals
}

// A source is an IPv4 address or an IPv6 /56, which is what one subscriber has.
type source struct {
	entries  map[*entry]struct{}
	requests int64
	debt     debt // of handshakes
}

func (s *source) open() int64 { return int64(len(s.entries)) }

// An entry is an admitted connection.
type entry struct {
	admission *admission
	client    netip.Addr
	source    *source // changes when the address is verified
	requests  int64

	// held returns the memory that the connection holds beyond connectionMemory, in bytes;
	// nil: requestMemory for each request. end closes the connection. attach sets both.
	held func() uint64
	end  func()
}

func (a *admission) init() {
	a.handshakes = fairRate{rate: handshakeRate, burst: handshakeBurst}
	a.unproven = rate.NewLimiter(unverifiedRate, unverifiedBurst)
	a.sources = make(map[netip.Prefix]*source)
	a.unverified.entries = make(map[*entry]struct{})
}

// limit sets the limits on connections and on memory, in bytes. A request may need a connection to an origin, so all of
// them may use a quarter of the file descriptors.
func (a *admission) limit(connections int, memory, files uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most.Store(int64(connections))
	a.ceiling.Store(memory)
	a.slots = int64(min(memory/requestMemory, files/4))
	a.places = max(min(int64(connections), int64(memory/connectionMemory))/unverifiedShare, 1)
}

// short reports whether memory has reached the ceiling; no connection is then admitted.
// tight reports whether it is near; flow control windows then stop growing.
func (a *admission) short() bool { return a.used.Load() >= a.ceiling.Load() }
func (a *admission) tight() bool { return a.used.Load() >= a.ceiling.Load()/4*3 }

// windows returns the initial flow control windows of a connection, in bytes. The unread
// data of all allowed connections may then take up to half of the ceiling, or 32 KiB each
// if that is more, before admission checks the memory.
func (a *admission) windows() (stream, connection uint64) {
	each := max(a.ceiling.Load()/2/uint64(a.most.Load()), 32<<10)
	return min(initialStreamWindow, each), min(initialConnectionWindow, each)
}

// share returns how much a source may hold when this much is free.
func share(free int64) int64 { return max(free/shareOfFree, 1) }

// retry reports whether a client must first validate its address, which may be forged. A
// Retry costs the gateway next to nothing.
func (a *admission) retry(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.tight() && a.unverified.open() < a.places && a.unproven.AllowN(now, 1) {
		return false
	}
	a.refused.Retry++
	return true
}

// enter admits a connection before its handshake. If verified is false, the client's
// address may be forged. The caller must call leave when the connection has ended.
func (a *admission) enter(now time.Time, client netip.Addr, verified bool) (*entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.short() {
		a.refused.Memory++
		return nil, errMemory
	}
	// This applies to a forged address, too: it costs the address's owner nothing.
	if err := a.room(a.sources[peer.SourceOf(client)]); err != nil {
		return nil, err
	}
	e := &entry{admission: a, client: client}
	if !verified {
		if a.unverified.open() >= a.places {
			a.refused.Full++
			return nil, errFull
		}
		a.unverified.add(e)
		return e, nil
	}
	src := a.from(client)
	if !a.handshakes.allow(now, &src.debt) {
		a.refused.Rate++
		return nil, errRate
	}
	a.open++
	src.add(e)
	return e, nil
}

// room returns why src may not open another connection, or nil if it may. src is nil if
// it holds nothing yet.
func (a *admission) room(src *source) error {
	free := a.most.Load() - a.open
	if free <= 0 {
		a.refused.Full++
		return errFull
	}
	if src != nil && src.open() >= share(free) {
		a.refused.Source++
		return errSource
	}
	return nil
}

// verify charges an entry to its own source once its address is verified. It returns an
// error if that source may not open another connection.
func (e *entry) verify(now time.Time) error {
	a := e.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.source != &a.unverified {
		return nil
	}
	src := a.from(e.client)
	if err := a.room(src); err != nil {
		return err
	}
	a.unverified.remove(e)
	a.open++
	src.add(e)
	a.requests += e.requests
	// The handshake cannot be refused any more, but it counts: a source with many of them
	// is refused first when it has to validate its address.
	a.handshakes.charge(now, &src.debt)
	return nil
}

// attach sets how to close an entry's connection and, unless held is nil, how much memory
// its requests and all else hold, in bytes.
func (e *entry) attach(held func() uint64, end func()) {
	e.admission.mu.Lock()
	defer e.admission.mu.Unlock()
	e.held, e.end = held, end
}

// leave releases an entry. It may be called more than once.
func (e *entry) leave() {
	a := e.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.source == nil {
		return
	}
	if e.source != &a.unverified {
		a.open--
		a.requests -= e.requests
	}
	e.source.remove(e)
}

// begin admits a request. The caller must call end when the request is done. All requests
// together may take memory up to the ceiling, and the requests of one source a share of
// their limit.
func (e *entry) begin() (end func(), err error) {
	a := e.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.source {
	case nil: // the connection has ended meanwhile
		return func() {}, nil
	case &a.unverified:
		if a.unverified.requests >= a.places {
			a.refused.Requests++
			return nil, errEarly
		}
	default:
		free := a.slots - a.requests
		if free <= 0 || e.source.requests >= share(free) {
			a.refused.Requests++
			return nil, errRequests
		}
		a.requests++
	}
	e.requests++
	e.source.requests++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		e.requests--
		if e.source == nil {
			return
		}
		e.source.requests--
		if e.source != &a.unverified {
			a.requests--
		}
	}), nil
}

// add and remove move an entry together with its requests. The caller holds mu.
func (s *source) add(e *entry) {
	e.source = s
	s.entries[e] = struct{}{}
	s.requests += e.requests
}

func (s *source) remove(e *entry) {
	e.source = nil
	delete(s.entries, e)
	s.requests -= e.requests
}

// from returns the client's source. The caller holds mu.
func (a *admission) from(client netip.Addr) *source {
	prefix := peer.SourceOf(client)
	src := a.sources[prefix]
	if src == nil {
		if len(a.sources) >= maxSources {
			a.forget()
		}
		src = &source{entries: make(map[*entry]struct{})}
		a.sources[prefix] = src
	}
	return src
}

// forget drops the sources without connections and without debt.
func (a *admission) forget() {
	for prefix, src := range a.sources {
		if len(src.entries) == 0 && src.debt.index == 0 {
			delete(a.sources, prefix)
		}
	}
}

// shed chooses the connections to close when memory is short. It takes the source that
// holds most memory, and its largest connections, until they hold the bytes that are over
// the ceiling. The estimate can be too low and closing cannot be undone. So shed chooses
// no more than half of a source's connections at a time, and never the only connection of
// an idle source. It returns the source's name and a function to close each connection.
func (a *admission) shed(over uint64) (name string, end []func()) {
	type holding struct {
		held  func() uint64
		end   func()
		bytes uint64
	}
	// held is called without the lock, because it waits for the connection's own locks.
	holdings := make(map[string][]*holding)
	note := func(s *source, name string) {
		for e := range s.entries {
			if e.end != nil { // nil: its handshake has just begun
				holdings[name] = append(holdings[name], &holding{e.held, e.end, connectionMemory + uint64(e.requests)*requestMemory})
			}
		}
	}
	a.mu.Lock()
	for prefix, s := range a.sources {
		note(s, prefix.String())
	}
	note(&a.unverified, "unverified")
	a.mu.Unlock()

	most := uint64(0)
	for of, hs := range holdings {
		sum := uint64(0)
		for _, h := range hs {
			if h.held != nil {
				h.bytes = connectionMemory + h.held()
			}
			sum += h.bytes
		}
		if sum > most && (len(hs) > 1 || sum > connectionMemory) {
			name, most = of, sum
		}
	}
	largest := holdings[name]
	slices.SortFunc(largest, func(x, y *holding) int { return cmp.Compare(y.bytes, x.bytes) })
	for _, h := range largest[:(len(largest)+1)/2] {
		end = append(end, h.end)
		if h.bytes >= over {
			break
		}
		over -= h.bytes
	}
	a.mu.Lock()
	a.refused.Shed += uint64(len(end))
	a.mu.Unlock()
	return name, end
}

func (a *admission) refusals() Refusals {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}
