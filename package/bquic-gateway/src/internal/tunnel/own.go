// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// errNoRoute is what the kernel says of an address that it has no usable route to.
var errNoRoute = errors.New("no route")

// A route is what the kernel says of the way to an address.
type route struct {
	kind  uint8        // RTN_UNICAST and so on (linux/rtnetlink.h)
	link  bool         // the address is on a link of this machine
	match netip.Prefix // the destination in the table; for IPv4 only, from Linux 4.13 on
}

// routeTo asks the kernel how it would send to addr now, as for a socket that
// connects: rules are followed, and nothing is sent. Without a route the error is
// errNoRoute.
func routeTo(addr netip.Addr) (r route, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return r, fmt.Errorf("cannot ask for a route: %w", err)
	}
	defer conn.Close()
	m := unix.RtMsg{Family: unix.AF_INET6, Dst_len: uint8(addr.BitLen())}
	if addr.Is4() {
		m.Family, m.Flags = unix.AF_INET, unix.RTM_F_FIB_MATCH
	}
	data, err := binary.Append(nil, binary.NativeEndian, m)
	if err != nil {
		return r, err
	}
	attributes := netlink.NewAttributeEncoder()
	attributes.Bytes(unix.RTA_DST, addr.WithZone("").AsSlice())
	if zone := addr.Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return r, err
		}
		attributes.Uint32(unix.RTA_OIF, uint32(link.Index))
	}
	encoded, err := attributes.Encode()
	if err != nil {
		return r, err
	}
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request},
		Data:   append(data, encoded...),
	})
	switch {
	// What a route of type unreachable, prohibit or blackhole gives is no route either.
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EOPNOTSUPP):
		return r, errNoRoute
	case err != nil:
		return r, fmt.Errorf("cannot ask for a route: %w", err)
	case len(replies) == 0:
		return r, errors.New("cannot ask for a route: no answer")
	}
	if _, err := binary.Decode(replies[0].Data, binary.NativeEndian, &m); err != nil {
		return r, fmt.Errorf("cannot ask for a route: %w", err)
	}
	r.kind, r.link = m.Type, m.Scope == unix.RT_SCOPE_LINK
	r.match, err = addr.WithZone("").Prefix(int(m.Dst_len))
	return r, err
}

// own says what addr is to this machine, "" when it is elsewhere. The kernel is
// the one that knows: beside the addresses of interfaces it takes for its own
// their networks' broadcast addresses, the subnet-router anycast address of each
// IPv6 prefix that it forwards for (RFC 4291, section 2.6.1, but not of a /127,
// RFC 6164), anycast addresses that somebody has joined, and all that a route of
// type local covers.
func own(addr netip.Addr) (string, error) {
	r, err := routeTo(addr)
	if errors.Is(err, errNoRoute) {
		return "", nil // connecting will tell why
	}
	if err != nil {
		return "", err
	}
	switch r.kind {
	case unix.RTN_LOCAL:
		return "local", nil
	case unix.RTN_BROADCAST:
		return "broadcast", nil
	case unix.RTN_ANYCAST:
		return "anycast", nil
	case unix.RTN_MULTICAST:
		return "multicast", nil
	}
	// The first address of an IPv4 network is a broadcast address, too, to 4.2BSD and
	// to Linux before 5.14: to neighbours, if not to this machine.
	if addr.Is4() && r.link && r.match.Bits() <= 30 && r.match.Addr() == addr {
		return "broadcast", nil
	}
	return "", nil
}
