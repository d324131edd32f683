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

// errNoRoute: the kernel has no usable route to the address.
var errNoRoute = errors.New("no route")

// A route is the kernel's route to an address.
type route struct {
	kind  uint8        // RTN_UNICAST and so on (linux/rtnetlink.h)
	link  bool         // the address is on a link of this machine
	match netip.Prefix // the destination in the table; for IPv4 only, from Linux 4.13 on
}

// routeTo asks the kernel for its current route to addr, as for a connecting socket: it
// applies the routing rules and sends nothing. If there is no route, the error is errNoRoute.
func routeTo(addr netip.Addr) (r route, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return r, fmt.Errorf("cannot look up a route: %w", err)
	}
	defer conn.Close()
	// struct rtmsg of include/uapi/linux/rtnetlink.h (binary.Append would add its reflection to a router's flash)
	request := make([]byte, unix.SizeofRtMsg)
	request[0], request[1] = unix.AF_INET6, byte(addr.BitLen())
	if addr.Is4() {
		request[0] = unix.AF_INET
		binary.NativeEndian.PutUint32(request[8:], unix.RTM_F_FIB_MATCH)
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
		Data:   append(request, encoded...),
	})
	switch {
	// The errors of unreachable, prohibit and blackhole routes count as no route, too.
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EOPNOTSUPP):
		return r, errNoRoute
	case err != nil:
		return r, fmt.Errorf("cannot look up a route: %w", err)
	case len(replies) == 0 || len(replies[0].Data) < unix.SizeofRtMsg:
		return r, errors.New("cannot look up a route: no answer")
	}
	answer := replies[0].Data
	r.kind, r.link = answer[7], answer[6] == unix.RT_SCOPE_LINK
	r.match, err = addr.WithZone("").Prefix(int(answer[1]))
	return r, err
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
	// 4.2BSD, and Linux before 5.14, also treat the first address of an IPv4 network as
	// a broadcast address. Neighbours may still do so.
	if addr.Is4() && r.link && r.match.Bits() <= 30 && r.match.Addr() == addr {
		return "broadcast", nil
	}
	return "", nil
}
