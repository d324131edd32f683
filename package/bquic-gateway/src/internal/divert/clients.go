// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// maxRoutes bounds the bridged clients that need a route.
	maxRoutes = 512
	// routeLinger is how long a route stays that no connection needs: what a socket has
	// sent may still be on its way when it is closed.
	routeLinger = 2 * time.Minute
)

// What keeps a bridged connection from being taken.
var (
	ErrTarget = errors.New("the node has no way to the target")
	ErrOnLink = errors.New("the target is on the bridge itself")
	ErrClient = errors.New("the node has another way to the client")
	errRoom   = errors.New("too many bridged clients")
)

// A bridge is what is known of bridged clients.
type bridge struct {
	mu      sync.Mutex
	ports   []BridgePort
	routing *routing // nil until it is needed
	routes  map[netip.Addr]*clientRoute
	problem error // of this kernel
}

// A clientRoute leads to a client of a bridge whose prefix the node does not have.
type clientRoute struct {
	device int
	users  int
	last   time.Time
}

func (b *bridge) set(ports []BridgePort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports = ports
}

// find says what the node's IP has of the bridge that a packet is on.
func (b *bridge) find(p *Packet) bool {
	port := p.Out
	if p.port != 0 {
		port = p.port
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.ports {
		if q.Index == port && q.VLAN == p.vlan {
			p.Bridge, p.Out, p.Mark = q.DeviceIndex, 0, 0
			return true
		}
	}
	return false
}

// openBridge makes what bridged connections need, once. The error stays.
func (d *Diverter) openBridge() error {
	d.bridge.mu.Lock()
	defer d.bridge.mu.Unlock()
	if d.bridge.problem != nil || d.table.bridge {
		return d.bridge.problem
	}
	if err := d.table.openBridge(); err != nil {
		d.bridge.problem = fmt.Errorf("nftables of bridges (kmod-nft-bridge): %w", err)
		return d.bridge.problem
	}
	d.bridge.routes = make(map[netip.Addr]*clientRoute)
	if d.bridge.routing, d.bridge.problem = toClients().add(); d.bridge.problem != nil {
		return d.bridge.problem
	}
	return nil
}

func (b *bridge) fail(problem error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports, b.problem = nil, problem
}

// BridgeProblem is why bridged connections cannot be taken, where they should.
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

// Reach says by the node's own routes whether a bridged connection can be taken: the node
// must have a way to the target, unless without says that it may have none, and the
// answers must have a way to the client. Where they need a route for that, it is added,
// and stays until Release was called for each Reach without an error.
func (d *Diverter) Reach(p *Packet, without bool) error {
	out, gateway, err := way(p.Target.Addr())
	switch {
	case errors.Is(err, unix.ENETUNREACH) && without: // no route, as opposed to one that forbids
	case err != nil:
		return fmt.Errorf("%w: %w", ErrTarget, err)
	case out == p.Bridge && !gateway:
		return ErrOnLink
	}
	return d.bridge.enter(p.Client.Addr(), p.Bridge)
}

func (b *bridge) enter(client netip.Addr, device int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.routes[client]; r != nil && r.device == device {
		r.users++
		return nil
	}
	out, gateway, err := way(client)
	switch {
	case err == nil && out == device && !gateway:
		return nil // Release finds nothing
	case err == nil && !gateway, err != nil && !errors.Is(err, unix.ENETUNREACH):
		return ErrClient
	}
	now := time.Now()
	if b.sweep(now); len(b.routes) >= maxRoutes {
		return errRoom
	}
	if r := b.routes[client]; r != nil { // of another bridge
		if r.users > 0 {
			return ErrClient
		}
		_ = changeRoute(client, r.device, false)
	}
	if err := changeRoute(client, device, true); err != nil {
		return fmt.Errorf("route to %s: %w", client, err)
	}
	b.routes[client] = &clientRoute{device: device, users: 1, last: now}
	return nil
}

// Release ends what Reach began.
func (d *Diverter) Release(client netip.Addr) {
	d.bridge.mu.Lock()
	defer d.bridge.mu.Unlock()
	if r := d.bridge.routes[client]; r != nil && r.users > 0 {
		r.users--
		r.last = time.Now()
	}
	d.bridge.sweep(time.Now())
}

// sweep removes the routes that nobody has needed for long.
func (b *bridge) sweep(now time.Time) {
	for client, r := range b.routes {
		if r.users == 0 && now.Sub(r.last) > routeLinger {
			delete(b.routes, client)
			_ = changeRoute(client, r.device, false)
		}
	}
}

// changeRoute adds or removes the route to a client of a device.
func changeRoute(client netip.Addr, device int, add bool) error {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	kind, flags, family := netlink.HeaderType(unix.RTM_DELROUTE), netlink.Request|netlink.Acknowledge, byte(unix.AF_INET)
	if add {
		kind, flags = unix.RTM_NEWROUTE, flags|netlink.Create|netlink.Replace
	}
	if client.Is6() {
		family = unix.AF_INET6
	}
	attrs := netlink.NewAttributeEncoder()
	attrs.Bytes(unix.RTA_DST, client.AsSlice())
	attrs.Uint32(unix.RTA_OIF, uint32(device))
	b, err := attrs.Encode()
	if err != nil {
		return err
	}
	header := []byte{family, byte(client.BitLen()), 0, 0, clientTable, unix.RTPROT_STATIC, unix.RT_SCOPE_LINK, unix.RTN_UNICAST, 0, 0, 0, 0}
	_, err = conn.Execute(netlink.Message{Header: netlink.Header{Type: kind, Flags: flags}, Data: append(header, b...)})
	return err
}

// way asks the kernel for its route to an address: the device, and whether there is a
// router on the way. ENETUNREACH is no route; other errors are those of routes that
// forbid, and of addresses that are the node's own.
func way(addr netip.Addr) (out int, gateway bool, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	r, err := lookUp(conn, addr)
	if err != nil {
		return 0, false, err
	}
	if r.kind != unix.RTN_UNICAST || len(r.out) == 0 {
		return 0, false, unix.EINVAL
	}
	return r.out[0], r.gateway.IsValid(), nil
}
