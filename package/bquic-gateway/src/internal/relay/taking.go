// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/processor"
	"bquic/internal/proof"
)

const (
	// maxExpected is the limit on taken connections that have not been accepted yet.
	maxExpected = 1024
	// expectTimeout is how long a connection may take until it is accepted. The kernel repeats a SYN-ACK that gets lost
	// after 1, 3, 7 and 15 s.
	expectTimeout = 20 * time.Second
	// When maxMissing connections of an origin that were taken since the last arrival have not been accepted within arriveTime, other rules
	// of the node keep them from this process. None is then taken for minPause, and twice as long each further time, until one arrives.
	arriveTime = 5 * time.Second
	maxMissing = 4
	minPause   = time.Minute
	maxPause   = time.Hour
	// maxOrigins is the limit on origins; their devices may have gone.
	maxOrigins = 64
	// forgetInterval is how often the ages of expected connections are checked.
	forgetInterval = time.Second
)

// expected holds connections between their SYN and their accept. It remembers how the kernel would have
// forwarded them, so that a direct connection uses the same route.
type expected struct {
	mu     sync.Mutex
	by     map[pair]expectation
	forgot time.Time
	lost   func(client, target netip.AddrPort) // called with a bridged connection that never arrived

	origins map[origin]*arrivals
}

// An origin is what rules that keep connections from this process may differ by: a captive portal has its own device, and
// may know only IPv4.
type origin struct {
	device int
	is4    bool
}

// arrivals says whether connections of an origin arrive.
type arrivals struct {
	last    time.Time // when the last one arrived
	missing int       // connections taken since then that have not arrived in time
	pause   time.Duration
	until   time.Time // when the pause ends
}

type pair struct{ client, target netip.AddrPort }

type expectation struct {
	pair        // of the SYN
	out  int    // index of the device that the kernel had chosen
	mark uint32 // of the SYN
	mss  uint16 // of the SYN; 0: unknown
	tos  byte   // of the SYN
	// bridged says that the kernel would have bridged the SYN. A direct connection then uses the node's own routes.
	bridged bool
	from    origin
	session *proof.Session
	at      time.Time
	waited  time.Duration // since at, while this process ran
}

// has reports whether a SYN is of a connection that is expected: its client repeats it.
func (e *expected) has(p *divert.Packet) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.by[pair{p.Client, p.Target}]
	return ok
}

// add records a connection, whose session draw returns. It reports false if there is no room, or if the kernel should forward the connection.
func (e *expected) add(p *divert.Packet, now time.Time, draw func() *proof.Session) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	from := origin{p.In, p.Client.Addr().Is4()}
	if len(e.by) >= maxExpected || now.Before(e.arrivals(from).until) {
		return false
	}
	session := draw()
	if session.Arm() == proof.Forwarded {
		return false
	}
	if e.by == nil {
		e.by = make(map[pair]expectation)
	}
	key := pair{p.Client, p.Target}
	e.by[key] = expectation{pair: key, out: p.Out, mark: p.Mark, mss: p.MSS, tos: p.TOS, bridged: p.Bridge != 0, from: from, session: session, at: now}
	return true
}

func (e *expected) arrivals(from origin) *arrivals {
	a := e.origins[from]
	if a == nil {
		if e.origins == nil || len(e.origins) >= maxOrigins {
			e.origins = make(map[origin]*arrivals)
		}
		a = new(arrivals)
		e.origins[from] = a
	}
	return a
}

// forget drops old entries from time to time, and counts those that are missing.
func (e *expected) forget(now time.Time) {
	if now.Sub(e.forgot) < forgetInterval {
		return
	}
	ran := min(now.Sub(e.forgot), 2*forgetInterval) // a process that did not run has accepted nothing
	e.forgot = now
	for key, x := range e.by {
		before := x.waited
		x.waited += ran
		e.by[key] = x
		if a := e.arrivals(x.from); before < arriveTime && x.waited >= arriveTime && x.at.After(a.last) {
			a.missing++
		}
		if now.Sub(x.at) >= expectTimeout {
			delete(e.by, key)
			if x.bridged {
				e.lost(x.client, x.target)
			}
		}
	}
	for _, a := range e.origins {
		a.pauses(now, maxMissing)
	}
}

// pauses begins a pause if most connections are missing.
func (a *arrivals) pauses(now time.Time, most int) bool {
	if a.missing < most {
		return false
	}
	a.missing = most - 1 // after the pause, one more shows that nothing has changed
	if now.Before(a.until) {
		return false
	}
	a.pause = min(max(2*a.pause, minPause), maxPause)
	a.until = now.Add(a.pause)
	return true
}

// paused reports whether nothing is taken because nothing arrives: from some origins, or from all.
func (e *expected) paused(now time.Time) (some, all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	all = true
	for _, a := range e.origins {
		is := now.Before(a.until)
		some, all = some || is, all && is
	}
	return some, some && all
}

// accepted returns what was recorded about a connection that has been accepted. A client may then use its port again.
func (e *expected) accepted(key pair, now time.Time) expectation {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.by[key]
	if !ok {
		// If the client uses the same port for two targets, the kernel translates the port of the second
		// redirected connection (nf_nat_core.c, get_unique_tuple).
		if key, x, ok = e.oldest(key.client.Addr(), key.target); !ok {
			return x
		}
	}
	delete(e.by, key)
	*e.arrivals(x.from) = arrivals{last: now}
	return x
}

// withdraw removes a connection that will not arrive: the kernel forwards its SYN after all.
func (e *expected) withdraw(p *divert.Packet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := pair{p.Client, p.Target}
	if x, ok := e.by[key]; ok && x.bridged {
		e.lost(x.client, x.target)
	}
	delete(e.by, key)
}

// oldest returns the oldest connection of a client to a target that has not been accepted.
func (e *expected) oldest(client netip.Addr, target netip.AddrPort) (key pair, x expectation, ok bool) {
	for k, y := range e.by {
		if k.target == target && k.client.Addr() == client && (!ok || y.at.Before(x.at)) {
			key, x, ok = k, y, true
		}
	}
	return key, x, ok
}

func (e *expected) len(now time.Time) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	return len(e.by)
}

// control makes a socket's packets leave as the kernel would have forwarded the client's (net.Dialer.Control).
func (x expectation) control(network, address string, raw syscall.RawConn) error {
	// The node's own rules may have made it smaller, for a path that carries no larger packets. They do not see the relay's SYN in the
	// forward chain. A value that the kernel does not take is larger than the device's.
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, int(x.mss)) })
	tos := []option{{unix.SOL_IP, unix.IP_TOS, int(x.tos)}, {unix.SOL_IPV6, unix.IPV6_TCLASS, int(x.tos)}}
	if err := control(tos...)(network, address, raw); err != nil || x.out == 0 {
		return err
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	// Where the node's own packets take the same way, they follow changes of the route, as forwarded ones do. The route may have changed
	// since the SYN, for example because the path to the gateway, which did not answer, has broken.
	out, own := x.out, divert.Leaves(target.Addr(), x.mark)
	if own != out {
		out = cmp.Or(divert.Forwards(x.client.Addr(), target.Addr(), x.from.device, x.mark), out)
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(x.mark))
		if own != out {
			// SO_BINDTODEVICE by index; if the device is gone, the packets are lost
			err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, out))
		}
	})
	return errors.Join(cerr, err)
}

// begin takes a connection or flow that the kernel is about to forward, or lets the kernel do so.
func (r *Relay) begin(ctx context.Context, p *divert.Packet, wg *sync.WaitGroup) {
	if !r.diverter.Decide(p, r.decide(ctx, p, wg)) {
		r.expected.withdraw(p)
	}
}

// decide decides whether to take a connection or flow that the kernel is about to forward. Otherwise the kernel
// forwards it, as without a relay.
func (r *Relay) decide(ctx context.Context, p *divert.Packet, wg *sync.WaitGroup) divert.Verdict {
	if !p.UDP && r.expected.has(p) { // whatever has changed since; the listener may have answered
		return divert.Take
	}
	if r.ending.Load() || r.fromGateway(p) {
		return divert.Pass
	}
	if p.UDP {
		return r.flows.decide(ctx, p, wg)
	}
	able := r.load.takes() == processor.All && r.room() && r.gateways.room()
	if able && p.Bridge == 0 && !r.diverter.Alike(p) {
		r.apart.Add(1)
		return divert.Pass
	}
	r.seen.Add(1)
	if !able || p.Bridge == 0 && r.diverter.Protected(p) {
		return divert.Pass
	}
	now := time.Now()
	avoid, again := r.avoided.avoids(p.Target, now)
	if again {
		wg.Go(func() { r.askAgain(ctx, p.Target) })
	}
	if avoid || p.Bridge != 0 && !r.routeBridged(p) {
		return divert.Pass
	}
	if !r.expected.add(p, now, func() *proof.Session { return r.draw(p, now) }) {
		if p.Bridge != 0 {
			r.diverter.Release(p.Client, p.Target)
		}
		return divert.Pass
	}
	return divert.Take
}

// fromGateway reports whether a packet is a gateway's own, which is among the clients: for the target of what it carries. Carried, that would come
// back to the gateway again and again. A gateway that is known by one address may send from another one.
func (r *Relay) fromGateway(p *divert.Packet) bool {
	r.mu.Lock()
	macs := r.world.Gateways
	r.mu.Unlock()
	return slices.Contains(macs, p.MAC) ||
		slices.ContainsFunc(r.gateways.addresses(r.now.Load()), func(a netip.Prefix) bool { return a.Contains(p.Client.Addr()) })
}

// routeBridged reports whether a bridged connection can be taken, and adds the route to its client that this needs. If so,
// the caller must call diverter.Release later.
func (r *Relay) routeBridged(p *divert.Packet) bool {
	set := r.now.Load()
	// In mode redirect, packets are first routed towards their target, so a route is needed.
	if err := r.diverter.Reach(p, set.Bridge == BridgeAll && set.Mode == divert.TProxy); err != nil {
		r.logger.Debug("bridged connection not taken", "client", p.Client, "target", p.Target, "error", err)
		return false
	}
	return true
}

// stranded reports whether this node may have no route to the target of a connection.
func (r *Relay) stranded(bridged bool) bool { return bridged && r.now.Load().Bridge == BridgeAll }

// room reports whether another TCP connection may be taken.
func (r *Relay) room() bool {
	return r.held.Load()+int64(r.expected.len(time.Now())) < int64(r.now.Load().Limit)
}

// crowded reports whether more than half of the places for TCP connections are taken.
func (r *Relay) crowded() bool { return 2*r.held.Load() > int64(r.now.Load().Limit) }
