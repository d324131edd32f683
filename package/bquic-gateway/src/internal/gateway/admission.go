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
)

// A handshake costs a router a signature: some milliseconds of its CPU. These
// keep room for those who are connected, and let a browser or relay reconnect at once.
const (
	// Handshakes a second, and at once, of all clients together.
	handshakeRate  = 100
	handshakeBurst = 500
	// Of clients that have not shown that their address is their own. Beyond, they
	// must do so by a Retry (RFC 9000, section 8.1.2).
	unverifiedRate  = 50
	unverifiedBurst = 100

	// shareOfFree: a source may hold as much as this part of what is free. Alone,
	// it gets a quarter of all; n sources that want all they can get have equal
	// parts of n/(n+3), and the next one finds as much as each of them has.
	shareOfFree = 3
	// maxSources bounds the memory that floods of addresses can take.
	maxSources = 4096

	// connectionMemory is what a connection takes that does nothing: two
	// goroutines, keys, buffers.
	connectionMemory = 64 << 10
	// requestMemory is what a request or a tunnel may take while its client is
	// slow: its goroutines, a buffer, a stream or its part of a connection.
	requestMemory = 64 << 10
	// Unverified connections may take an eighth of the memory, and be an eighth of
	// all others.
	unverifiedShare = 8
)

var (
	errFull     = errors.New("too many connections")
	errSource   = errors.New("too many connections of this source")
	errRate     = errors.New("too many handshakes")
	errMemory   = errors.New("memory is short")
	errRequests = errors.New("too many requests")
	errEarly    = errors.New("too many requests before the end of a handshake")
)

// Refusals count connections that were not let in, by reason.
type Refusals struct {
	Full     uint64 `json:"full"`
	Source   uint64 `json:"source"`
	Rate     uint64 `json:"rate"`
	Memory   uint64 `json:"memory"`
	Requests uint64 `json:"requests"` // answered with 503 or 425
	Shed     uint64 `json:"shed"`     // connections that were ended for their memory
	Retry    uint64 `json:"retry"`    // asked to show its address first, which is no refusal
}

// admission decides who may connect, who may ask for something, and who has to go
// when memory is short. It knows no clock and no connection. The zero value is
// not ready: init.
//
// Whatever a connection holds is charged to one source: that of the address which
// it was let in with, wherever it migrates to. As long as the address can be
// forged, that is the source of all such connections, which has room of its own
// and takes none from others.
type admission struct {
	ceiling atomic.Uint64 // of memory, bytes
	used    atomic.Uint64 // memory at the last measure
	most    atomic.Int64  // connections, without the unverified ones

	mu         sync.Mutex
	open       int64 // connections
	requests   int64
	handshakes fairRate
	sources    map[netip.Prefix]*source
	unverified source
	places     int64 // of the unverified
	unproven   *rate.Limiter
	refused    Refusals
}

// A source is an address, or what an IPv6 subscriber has: a /56.
type source struct {
	entries  map[*entry]struct{}
	requests int64
	debt     debt // of handshakes
}

func (s *source) open() int64 { return int64(len(s.entries)) }

// An entry is a connection that was let in.
type entry struct {
	admission *admission
	client    netip.Addr
	source    *source // it changes when the address is verified
	requests  int64

	// What it holds in bytes, if that is more than its requests, and how it is
	// ended. They are set by know.
	held func() uint64
	end  func()
}

func (a *admission) init() {
	a.handshakes = fairRate{rate: handshakeRate, burst: handshakeBurst}
	a.unproven = rate.NewLimiter(unverifiedRate, unverifiedBurst)
	a.sources = make(map[netip.Prefix]*source)
	a.unverified.entries = make(map[*entry]struct{})
}

// limit sets the number of connections and the memory, in bytes.
func (a *admission) limit(connections int, memory uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most.Store(int64(connections))
	a.ceiling.Store(memory)
	a.places = max(min(int64(connections), int64(memory/connectionMemory))/unverifiedShare, 1)
}

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

// share is what a source may hold when so much is free.
func share(free int64) int64 { return max(free/shareOfFree, 1) }

// retry says that a client whose address can be forged must show first that it is
// its own, which costs the gateway next to nothing.
func (a *admission) retry(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.tight() && a.unverified.open() < a.places && a.unproven.AllowN(now, 1) {
		return false
	}
	a.refused.Retry++
	return true
}

// enter lets a connection in that is about to shake hands, of a client whose
// address is verified or may be forged. leave must be called when it has ended.
func (a *admission) enter(now time.Time, client netip.Addr, verified bool) (*entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.short() {
		a.refused.Memory++
		return nil, errMemory
	}
	// Also of a forged address, as this costs its owner nothing.
	if err := a.room(a.sources[sourceOf(client)]); err != nil {
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

// room says why src, nil if it has nothing, may have no further connection.
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

// verify is for an entry whose address has turned out to be its own: from now on
// it is charged to its source. An error says that there is no place for it.
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
	// It is paid for: who makes many is refused first when it has to show its address.
	a.handshakes.charge(now, &src.debt)
	return nil
}

// know tells how to end an entry, and, unless held is nil, what its requests and
// all else hold, in bytes.
func (e *entry) know(held func() uint64, end func()) {
	e.admission.mu.Lock()
	defer e.admission.mu.Unlock()
	e.held, e.end = held, end
}

// leave may be called more than once.
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

// begin lets a request be served. end must be called when it was. All requests
// together may take the memory's ceiling, and those of one source a part of it.
func (e *entry) begin() (end func(), err error) {
	a := e.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.source {
	case nil: // it has ended meanwhile
		return func() {}, nil
	case &a.unverified:
		if a.unverified.requests >= a.places {
			a.refused.Requests++
			return nil, errEarly
		}
	default:
		free := int64(a.ceiling.Load()/requestMemory) - a.requests
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

// add and remove take what an entry holds with it. The caller holds mu.
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

// from returns the source that client belongs to. The caller holds mu.
func (a *admission) from(client netip.Addr) *source {
	prefix := sourceOf(client)
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

// forget drops the sources of which nothing has to be known.
func (a *admission) forget() {
	for prefix, src := range a.sources {
		if len(src.entries) == 0 && src.debt.index == 0 {
			delete(a.sources, prefix)
		}
	}
}

// shed chooses the connections that are ended because memory is short: of the
// source that holds most, its largest ones, until they hold the bytes that are
// over the ceiling. An estimate can be too low, and who is ended is gone: so no more than
// half of a source's connections at a time, and never the only one of a source
// that does nothing. It returns the source's name, and how to end each.
func (a *admission) shed(over uint64) (name string, end []func()) {
	type holding struct {
		held  func() uint64
		end   func()
		bytes uint64
	}
	// What a connection holds is asked without the lock: the answer waits for locks
	// of the connection's.
	holdings := make(map[string][]holding)
	note := func(s *source, name string) {
		for e := range s.entries {
			if e.end != nil { // else its handshake has just begun
				holdings[name] = append(holdings[name], holding{e.held, e.end, connectionMemory + uint64(e.requests)*requestMemory})
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
		for i, h := range hs {
			if h.held != nil {
				hs[i].bytes = connectionMemory + h.held()
			}
			sum += hs[i].bytes
		}
		if sum > most && (len(hs) > 1 || sum > connectionMemory) {
			name, most = of, sum
		}
	}
	largest := holdings[name]
	slices.SortFunc(largest, func(x, y holding) int { return cmp.Compare(y.bytes, x.bytes) })
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

func sourceOf(client netip.Addr) netip.Prefix {
	bits := 32
	if client.Is6() {
		bits = 56
	}
	p, _ := client.Prefix(bits)
	return p
}

func (a *admission) refusals() Refusals {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}
