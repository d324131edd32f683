// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Diverter holds everything that was added to the kernel, until Close.
type Diverter struct {
	table   *table
	queue   *queue
	raw     map[bool]int // sockets that send SYNs again; key: IPv4
	routing *routing     // nil until needed
	bridge  bridge
	ruled   atomic.Bool // others have routing rules
	ipsec   atomic.Bool // the kernel has policies of IPsec

	mu             sync.Mutex
	applied        *Rules
	lookedForIPsec time.Time
}

// Open makes an empty table. It first removes what a killed process has left behind.
func Open() (*Diverter, error) {
	d := &Diverter{raw: make(map[bool]int)}
	_ = Clean()
	var err error
	if d.queue, err = openQueue(); err != nil {
		return nil, fmt.Errorf("NFQUEUE (kmod-nfnetlink-queue): %w", err)
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		fd, err := rawSocket(family)
		if err != nil {
			if family == unix.AF_INET6 && errors.Is(err, unix.EAFNOSUPPORT) {
				continue
			}
			d.Close()
			return nil, fmt.Errorf("raw socket: %w", err)
		}
		d.raw[family == unix.AF_INET] = fd
	}
	if d.table, err = openTable(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// rawSocket opens a socket that sends packets including their IP headers, and receives none.
func rawSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err == nil {
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, sentAgain); err != nil {
			unix.Close(fd)
		}
	}
	return fd, err
}

// Apply installs the rules in the kernel, unless they already are. All have the same mode.
func (d *Diverter) Apply(r Rules) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Bridged {
		if err := d.openBridge(); err != nil {
			r.Bridges, r.Bridged = nil, d.table.bridge
		}
	}
	if d.applied != nil && r.equal(d.applied) {
		return nil
	}
	for c, mac := range d.bridge.set(r.Bridges) {
		_ = d.table.renew(c, mac) // fails if the note has ended
	}
	if marks := r.marks(); len(marks) > 0 && d.routing == nil {
		routing, err := toSockets(marks...).add()
		if err != nil && r.transparent() {
			return err
		}
		d.routing = routing // nil: redirected connections last as long as the node's address
	}
	d.applied = nil
	err := d.table.apply(&r)
	if err != nil && len(r.Bridges) > 0 { // this kernel cannot queue bridged packets
		problem := err
		r.Bridges = nil
		if err = d.table.apply(&r); err == nil {
			d.bridge.fail(problem)
		}
	}
	if err != nil {
		return err
	}
	d.applied = &r
	return nil
}

// Run calls handle for each packet that begins a connection or a flow, until ctx ends. handle must not block. It calls Decide, or, for UDP,
// Decide is called later.
func (d *Diverter) Run(ctx context.Context, handle func(*Packet)) error {
	stop := context.AfterFunc(ctx, func() {
		d.queue.tell(msgVerdicts, math.MaxInt32, verdictAccept) // the kernel drops what waits when the queue is closed
		d.queue.conn.Close()
	})
	defer stop()
	for {
		packets, err := d.queue.read()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("NFQUEUE: %w", err)
		}
		for _, p := range packets {
			if p.bridged && !d.bridge.find(p) {
				d.queue.verdict(p, verdictAccept)
				continue
			}
			handle(p)
		}
	}
}

// A Verdict is the decision on a packet.
type Verdict int

const (
	Pass Verdict = iota // forward it as without a relay
	Take                // TCP: deliver the connection to the relay's listener. UDP: drop the datagram, whose payload the caller has.
	Hold                // undecided; UDP only
)

// Decide passes the decision on a packet to the kernel. Call it once for each packet, besides Hold. It reports false if a connection cannot be
// taken: the kernel then forwards it.
func (d *Diverter) Decide(p *Packet, v Verdict) bool {
	if v == Hold {
		return true
	}
	able := v == Pass || p.UDP || d.sendAgain(p) == nil
	if v == Take && able {
		d.queue.verdict(p, verdictDrop)
	} else {
		d.queue.verdict(p, verdictAccept)
	}
	return able
}

// sendAgain sends a SYN again, to the listener. The rules that take it there may have changed since it was queued, but not while it is sent:
// without them it would reach its target, whose answer would find neither the listener nor the client.
func (d *Diverter) sendAgain(p *Packet) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fd, ok := d.raw[p.Target.Addr().Is4()]
	if !ok || d.applied == nil || !d.applied.delivers(p.Target.Addr()) {
		return unix.EAFNOSUPPORT
	}
	return unix.Sendto(fd, p.data, unix.MSG_DONTWAIT, socketAddress(netip.AddrPortFrom(p.Target.Addr(), 0)))
}

// Close removes everything that was added to the kernel. Packets that wait for a verdict pass.
func (d *Diverter) Close() error {
	var errs []error
	if d.table != nil {
		errs = append(errs, d.table.close())
	}
	if d.queue != nil {
		d.queue.conn.Close()
	}
	for _, fd := range d.raw {
		unix.Close(fd)
	}
	d.bridge.close()
	if d.routing != nil {
		d.routing.remove()
	}
	return errors.Join(errs...)
}
