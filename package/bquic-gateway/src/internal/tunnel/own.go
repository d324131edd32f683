// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
)

// errNoRoute: the kernel has no usable route to the address.
var errNoRoute = errors.New("no route")

// routeTo asks the kernel for its current route to addr, as for a connecting socket. If there is no route, the error is errNoRoute. For
// IPv4 only, from Linux 4.13 on, the route has its own prefix.
func routeTo(addr netip.Addr) (r route.Route, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return r, fmt.Errorf("cannot look up a route: %w", err)
	}
	defer conn.Close()
	flags := uint32(0)
	if addr.Is4() {
		flags = unix.RTM_F_FIB_MATCH
	}
	var by []netlink.Attribute
	if zone := addr.Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return r, err
		}
		by = append(by, netlink.Attribute{Type: unix.RTA_OIF, Data: binary.NativeEndian.AppendUint32(nil, uint32(link.Index))})
	}
	r, err = route.LookUp(conn, addr, flags, by...)
	switch {
	// The errors of unreachable, prohibit and blackhole routes count as no route, too.
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EOPNOTSUPP):
		return r, errNoRoute
	case err != nil:
		return r, fmt.Errorf("cannot look up a route: %w", err)
	}
	return r, nil
}

// own returns the type of addr if it belongs to this machine, or "" if it does not. Only
// the kernel knows: besides the addresses of its interfaces, it accepts the broadcast
// addresses of their networks, the subnet-router anycast address of each IPv6 prefix that
// it forwards for (RFC 4291, section 2.6.1, but not of a /127, RFC 6164), anycast addresses
// that a program has joined, and all addresses that a route of type local covers.
func own(addr netip.Addr) (string, error) {
	r, err := routeTo(addr)
	if errors.Is(err, errNoRoute) {
		return "", nil // connecting will return the reason
	}
	if err != nil {
		return "", err
	}
	switch r.Kind {
	case unix.RTN_LOCAL:
		return "local", nil
	case unix.RTN_BROADCAST:
		return "broadcast", nil
	case unix.RTN_ANYCAST:
		return "anycast", nil
	case unix.RTN_MULTICAST:
		return "multicast", nil
	}
	// 4.2BSD, and Linux before 5.14, also treat the first address of an IPv4 network as
	// a broadcast address. Neighbours may still do so.
	if addr.Is4() && r.Scope == unix.RT_SCOPE_LINK && r.Bits <= 30 {
		if network, err := addr.Prefix(r.Bits); err != nil || network.Addr() == addr {
			return "broadcast", err
		}
	}
	return "", nil
}

// networkBits is the shortest prefix of a network. Some routes stand in for a default route: those of OpenVPN have one bit, others are for 2000::/3.
const networkBits = 9

// behind returns the prefix of the network that addr is in, if this machine is its router to the Internet: it is on a link of this machine, which
// has its default route by another one. IPv6 gives public addresses to the hosts of a home, which only its router's forward chain
// protects, and that does not see what a gateway connects to.
func behind(addr netip.Addr) netip.Prefix {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return netip.Prefix{}
	}
	defer conn.Close()
	r, err := route.LookUp(conn, addr, unix.RTM_F_FIB_MATCH)
	if err != nil || r.Kind != unix.RTN_UNICAST || r.Gateway.IsValid() || len(r.Out) != 1 || r.Bits < networkBits {
		return netip.Prefix{}
	}
	routes, _ := route.All(conn, route.FamilyOf(addr))
	away := false
	for _, other := range routes {
		if other.Bits == 0 && other.Kind == unix.RTN_UNICAST {
			away = true
			if slices.Contains(other.Out, r.Out[0]) {
				return netip.Prefix{}
			}
		}
	}
	if !away {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, r.Bits).Masked()
}
