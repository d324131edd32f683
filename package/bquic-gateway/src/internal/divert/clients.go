// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
)

const (
	// maxRoutes is the limit on bridged clients that need a route.
	maxRoutes = 512
	// linger is how long a route stays after its last connection, and a connection's note after its end. Data that a
	// socket has sent may still be in flight when the socket is closed.
	linger = 2 * time.Minute
)

// Reasons why a bridged connection cannot be taken.
var (
	errTarget = errors.New("the node has no route to the target")
	errOnLink = errors.New("the target is on the bridge itself")
	errClient = errors.New("the node has another route to the client")
	errRoom   = errors.New("too many bridged clients")
)

// A bridge is the state of bridged clients.
type bridge struct {
	mu      sync.Mutex
	ports   []*BridgePort
	routing *routing // nil until needed
	routes  map[netip.Addr]*clientRoute
	users   map[connection]use // that Reach has let in
	ended   []ended            // without users, the first one first
	problem error              // why this kernel cannot do it
}

type connection struct{ client, target netip.AddrPort }

// A use is that of a connection's note.
type use struct {
	n    int
	port *BridgePort // has the hardware address in the note
}

type ended struct {
	connection
	at time.Time
}

// A clientRoute is a route to a bridged client in a prefix that the node does not have.
type clientRoute struct {
	device int
	name   string // of the device
	users  int
	last   time.Time
}

// set records the ports. It returns the hardware addresses that the notes of connections in use get because a bridge has another one, as when the port
// whose address it had has left.
func (b *bridge) set(ports []*BridgePort) map[connection][6]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports = ports
	moved := make(map[connection][6]byte)
	for c, u := range b.users {
		for _, p := range ports {
			if p.Device == u.port.Device && p.MAC != u.port.MAC {
				moved[c] = p.MAC
				b.users[c] = use{u.n, p}
			}
		}
	}
	return moved
}

// find sets the device of the node's IP layer for a bridged packet. It reports false if
// the packet's port is unknown.
func (b *bridge) find(p *Packet) bool {
	port := p.Out
	if p.port != 0 {
		port = p.port
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.ports {
		if q.Index == port && q.VLAN == p.vlan {
			p.leaves, p.Bridge, p.Out, p.Mark = q, q.DeviceIndex, 0, 0
			return true
		}
	}
	return false
}

// openBridge makes the table and routing for bridged connections, once. What the kernel cannot do, it will never do; a lack of
// memory, for example for the guard's shell or for the rules of the ports, may end.
func (d *Diverter) openBridge() error {
	d.bridge.mu.Lock()
	defer d.bridge.mu.Unlock()
	if d.bridge.problem != nil && !scarce(d.bridge.problem) {
		return d.bridge.problem
	}
	if d.bridge.problem = nil; d.bridge.routing != nil {
		return nil
	}
	if !d.table.bridge {
		if err := d.table.openBridge(); err != nil {
			d.bridge.problem = fmt.Errorf("nftables for bridges (kmod-nft-bridge): %w", err)
			return d.bridge.problem
		}
	}
	d.bridge.routes, d.bridge.users = make(map[netip.Addr]*clientRoute), make(map[connection]use)
	d.bridge.routing, d.bridge.problem = toClients().add()
	return d.bridge.problem
}

// scarce reports whether an error is a lack of memory, processes or files.
func scarce(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EMFILE, unix.ENFILE}, func(lack error) bool { return errors.Is(err, lack) })
}

func (b *bridge) fail(problem error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports, b.problem = nil, problem
}

// BridgeProblem returns why bridged connections cannot be taken although they should be, or nil.
func (d *Diverter) BridgeProblem() error {
	d.bridge.mu.Lock()
	defer d.bridge.mu.Unlock()
	return d.bridge.problem
}

func (b *bridge) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.routing != nil {
		b.routing.remove()
	}
}

// Reach checks by the node's own routes whether a bridged connection can be taken. The
// node must have a route to the target, unless anyTarget is set. It must also have a route
// to the client for the answers; Reach adds one if needed. That route stays until Release
// has been called once for each successful Reach.
func (d *Diverter) Reach(p *Packet, anyTarget bool) error {
	out, gateway, err := nextHop(p.Target.Addr(), 0)
	switch {
	case errors.Is(err, unix.ENETUNREACH) && anyTarget: // no route, as opposed to a prohibiting route
	case err != nil:
		return fmt.Errorf("%w: %w", errTarget, err)
	case out == p.Bridge && !gateway:
		return errOnLink
	}
	d.bridge.mu.Lock()
	defer d.bridge.mu.Unlock()
	if err = d.bridge.enter(p.Client.Addr(), p.Bridge); err == nil {
		c := connection{p.Client, p.Target}
		d.bridge.users[c] = use{d.bridge.users[c].n + 1, p.leaves}
	}
	return err
}

// enter makes sure that the node has a route to the client. The caller holds mu.
func (b *bridge) enter(client netip.Addr, device int) error {
	if r := b.routes[client]; r != nil && r.device == device {
		r.users++
		return nil
	}
	out, gateway, err := nextHop(client, 0)
	switch {
	case err == nil && out == device && !gateway:
		return nil // needs no route, so Release does nothing
	case err == nil && !gateway, err != nil && !errors.Is(err, unix.ENETUNREACH):
		return errClient
	}
	now := time.Now()
	if b.sweep(now); len(b.routes) >= maxRoutes {
		return errRoom
	}
	if r := b.routes[client]; r != nil && r.users > 0 { // a client of another bridge
		return errClient
	}
	dev, err := net.InterfaceByIndex(device)
	if err == nil {
		err = changeRoute(client, device, true)
	}
	if err != nil {
		return fmt.Errorf("route to %s: %w", client, err)
	}
	b.routes[client] = &clientRoute{device: device, name: dev.Name, users: 1, last: now}
	return nil
}

// restore adds a family's routes again that the kernel has removed because their device was down, or is a new one of the same name. It looks
// for one route of a device only. The caller holds mu.
func (b *bridge) restore(conn *netlink.Conn, family byte) {
	gone := make(map[int]bool) // by device
	for client, r := range b.routes {
		if route.FamilyOf(client) != family {
			continue
		}
		if _, known := gone[r.device]; !known {
			is, err := lookUp(conn, client, attr(unix.RTA_MARK, native(ClientMark)))
			gone[r.device] = err != nil || is.Table != clientTable
		}
		if !gone[r.device] {
			continue
		}
		if dev, err := net.InterfaceByName(r.name); err == nil {
			r.device = dev.Index
			_ = changeRoute(client, r.device, true) // fails while the device is down
		}
	}
}

// Release undoes a successful Reach. After a while, the connection's note goes, too.
func (d *Diverter) Release(client, target netip.AddrPort) {
	past := d.bridge.release(time.Now(), connection{client, target})
	if len(past) == 0 { // does not wait for Apply
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range past {
		_ = d.table.forget(c) // otherwise it ends later, by itself
	}
}

// release returns the connections whose notes to remove.
func (b *bridge) release(now time.Time, c connection) (past []connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.routes[c.client.Addr()]; r != nil && r.users > 0 {
		r.users--
		r.last = now
	}
	if u := b.users[c]; u.n > 1 {
		b.users[c] = use{u.n - 1, u.port}
	} else {
		delete(b.users, c)
		b.ended = append(b.ended, ended{c, now})
	}
	for len(b.ended) > 0 && now.Sub(b.ended[0].at) > linger {
		if c := b.ended[0].connection; b.users[c].n == 0 { // otherwise the client uses its port again
			past = append(past, c)
		}
		b.ended = b.ended[1:]
	}
	b.sweep(now)
	return past
}

// sweep removes routes that have not been used for a while.
func (b *bridge) sweep(now time.Time) {
	for client, r := range b.routes {
		if r.users == 0 && now.Sub(r.last) > linger {
			delete(b.routes, client)
			_ = changeRoute(client, r.device, false)
		}
	}
}

// changeRoute adds or removes the route to a client through a device.
func changeRoute(client netip.Addr, device int, add bool) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	kind, flags := netlink.HeaderType(unix.RTM_DELROUTE), netlink.Acknowledge
	if add {
		kind, flags = unix.RTM_NEWROUTE, flags|netlink.Create|netlink.Replace
	}
	header := []byte{route.FamilyOf(client), byte(client.BitLen()), 0, 0, clientTable, unix.RTPROT_STATIC, unix.RT_SCOPE_LINK, unix.RTN_UNICAST, 0, 0, 0, 0}
	_, err = route.Ask(conn, kind, flags, header, attr(unix.RTA_DST, client.AsSlice()), attr(unix.RTA_OIF, native(uint32(device))))
	return err
}

// Leaves returns the index of the device by which the node's own packets with a mark leave for an address, or 0.
func Leaves(addr netip.Addr, mark uint32) int {
	out, _, _ := nextHop(addr, mark)
	return out
}

// nextHop asks the kernel for its route to an address, for packets with a mark. It returns the device,
// and whether the route has a gateway. ENETUNREACH means no route. Other errors mean a prohibiting
// route, or an address of the node itself.
func nextHop(addr netip.Addr, mark uint32) (out int, gateway bool, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	marked := attr(unix.RTA_MARK, native(mark))
	r, err := lookUp(conn, addr, marked)
	if errors.Is(err, unix.ENETUNREACH) && addr.Is6() { // unless for some sources only, as netifd makes default routes
		if from, serr := source(netip.AddrPortFrom(addr, 1), mark, 0); serr == nil {
			r, err = lookUp(conn, addr, marked, attr(unix.RTA_SRC, from.AsSlice()))
		}
	}
	if err != nil {
		return 0, false, err
	}
	if r.Kind != unix.RTN_UNICAST || len(r.Out) == 0 {
		return 0, false, unix.EINVAL
	}
	return r.Out[0], r.Gateway.IsValid(), nil
}
