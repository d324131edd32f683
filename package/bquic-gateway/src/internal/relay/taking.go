// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/processor"
	"bquic/internal/proof"
)

const (
	// maxExpected bounds the connections that are on their way to the listener.
	maxExpected = 1024
	// maxRemembered bounds these, and those that have just come.
	maxRemembered = 4 * maxExpected
	// expectTimeout is how long one may be: the kernel delivers it at once, or never.
	expectTimeout = 5 * time.Second
)

// expected are connections between their SYN and their accept. What the kernel was
// about to do with them is remembered, to make them directly in the same way.
type expected struct {
	mu      sync.Mutex
	by      map[pair]expectation
	waiting int // of by, that have not come
	forgot  time.Time
	lost    func(netip.Addr) // a bridged client whose connection never came
}

type pair struct{ client, target netip.AddrPort }

type expectation struct {
	out  int    // index of the device that the kernel had chosen
	mark uint32 // of the packet then
	// bridged says that the kernel was about to bridge it: a direct connection is the node's own.
	bridged bool
	session *proof.Session
	at      time.Time
	came    bool
}

// add notes a connection, whose session draw returns. Without room, or if it is left to the kernel, it
// returns false. A SYN that its client has sent twice, because this process was slow, is one connection: known.
func (e *expected) add(p *divert.Packet, now time.Time, draw func() *proof.Session) (ok, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	key := pair{p.Client, p.Target}
	if _, again := e.by[key]; again {
		return true, true
	}
	if e.waiting >= maxExpected {
		return false, false
	}
	session := draw()
	if session.Arm() == proof.Forwarded {
		return false, false
	}
	if e.by == nil {
		e.by = make(map[pair]expectation)
	}
	e.by[key] = expectation{out: p.Out, mark: p.Mark, bridged: p.Bridge != 0, session: session, at: now}
	e.waiting++
	return true, false
}

// forget drops what is over, now and then.
func (e *expected) forget(now time.Time) {
	if now.Sub(e.forgot) < expectTimeout && len(e.by) < maxRemembered {
		return
	}
	e.forgot = now
	for key, x := range e.by {
		if now.Sub(x.at) >= expectTimeout || x.came && len(e.by) >= maxRemembered {
			delete(e.by, key)
			if !x.came {
				e.waiting--
				if x.bridged {
					e.lost(key.client.Addr())
				}
			}
		}
	}
}

// come returns what was noted of a connection, which has been accepted.
func (e *expected) come(key pair) expectation {
	e.mu.Lock()
	defer e.mu.Unlock()
	x, ok := e.by[key]
	if !ok || x.came {
		// Where the client has the same port for two targets, the kernel gives the second redirected connection
		// another one (nf_nat_core.c, get_unique_tuple).
		if key, x, ok = e.oldest(key.client.Addr(), key.target); !ok {
			return expectation{}
		}
	}
	e.waiting--
	x.came = true
	e.by[key] = x
	return x
}

// oldest returns what a client's address waits for longest, of what has not come to a target.
func (e *expected) oldest(client netip.Addr, target netip.AddrPort) (key pair, x expectation, ok bool) {
	for k, y := range e.by {
		if !y.came && k.target == target && k.client.Addr() == client && (!ok || y.at.Before(x.at)) {
			key, x, ok = k, y, true
		}
	}
	return key, x, ok
}

func (e *expected) len(now time.Time) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	return e.waiting
}

// control has a socket's packets leave as the kernel was about to forward the client's
// (net.Dialer.Control).
func (x expectation) control(_, _ string, raw syscall.RawConn) error {
	if x.out == 0 {
		return nil
	}
	var err error
	cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(x.mark))
		// SO_BINDTODEVICE by index; a device that has gone leads nowhere
		err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, x.out))
	})
	return errors.Join(cerr, err)
}

// decide says whether a connection or a flow is taken that the kernel is about to
// forward. What is not taken is forwarded, as it would be without a relay.
func (r *Relay) decide(ctx context.Context, p *divert.Packet, wg *sync.WaitGroup) divert.Verdict {
	if r.ending.Load() {
		return divert.Pass
	}
	if p.UDP {
		return r.flows.decide(ctx, p, wg)
	}
	r.seen.Add(1)
	if r.load.takes() != processor.All || !r.room() || r.gateways.pick() == nil {
		return divert.Pass
	}
	if p.Bridge != 0 {
		if !r.reaches(p) {
			return divert.Pass
		}
	}
	now := time.Now()
	ok, known := r.expected.add(p, now, func() *proof.Session { return r.draw(p, now) })
	if p.Bridge != 0 && (!ok || known) {
		r.diverter.Release(p.Client.Addr())
	}
	if !ok {
		return divert.Pass
	}
	return divert.Take
}

// room says that another TCP connection may be held.
func (r *Relay) room() bool {
	return r.held.Load()+int64(r.expected.len(time.Now())) < int64(r.now.Load().Limit)
}
