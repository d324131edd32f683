// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Ask sends a request of rtnetlink, which consists of a header of its kind and of attributes, and returns the answers.
func Ask(conn *netlink.Conn, kind netlink.HeaderType, flags netlink.HeaderFlags, header []byte, attrs ...netlink.Attribute) ([]netlink.Message, error) {
	b, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return nil, err
	}
	return conn.Execute(netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: append(header, b...)})
}

// FamilyOf returns the address family of an address.
func FamilyOf(addr netip.Addr) byte {
	if addr.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// LookUp returns the route that the kernel would use for an address: it applies the routing rules and sends nothing. flags say what the
// answer tells (RTM_F_LOOKUP_TABLE, RTM_F_FIB_MATCH). more are further attributes of the packets.
func LookUp(conn *netlink.Conn, addr netip.Addr, flags uint32, more ...netlink.Attribute) (Route, error) {
	request := make([]byte, unix.SizeofRtMsg)
	request[0], request[1] = FamilyOf(addr), byte(addr.BitLen())
	binary.NativeEndian.PutUint32(request[8:], flags)
	msgs, err := Ask(conn, unix.RTM_GETROUTE, 0, request, append(more, netlink.Attribute{Type: unix.RTA_DST, Data: addr.AsSlice()})...)
	if err != nil {
		return Route{}, err
	}
	if len(msgs) == 0 || len(msgs[0].Data) < unix.SizeofRtMsg {
		return Route{}, unix.EBADMSG
	}
	return read(msgs[0].Data), nil
}

// All returns the routes of all tables.
func All(conn *netlink.Conn, family byte) (routes []Route, err error) {
	msgs, err := Ask(conn, unix.RTM_GETROUTE, netlink.Dump, append([]byte{family}, make([]byte, unix.SizeofRtMsg-1)...))
	for _, m := range msgs {
		routes = append(routes, read(m.Data))
	}
	return routes, err
}

// A Route holds the relevant parts of a route (struct rtmsg of
// include/uapi/linux/rtnetlink.h).
type Route struct {
	Table   uint32
	Kind    byte // RTN_UNICAST and so on
	Scope   byte
	Bits    int        // of the prefix
	Target  netip.Addr // first address of the prefix; invalid if it has no bits
	Out     []int      // devices
	Gateway netip.Addr // next hop; invalid if the target is on the link
}

// read reads a route from the kernel's answer.
func read(b []byte) (r Route) {
	if len(b) < unix.SizeofRtMsg {
		return r
	}
	r.Bits, r.Table, r.Scope, r.Kind = int(b[1]), uint32(b[4]), b[6], b[7]
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofRtMsg:])
	if err != nil {
		return r
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.RTA_TABLE:
			if len(attrs.Bytes()) == 4 {
				r.Table = attrs.Uint32()
			}
		case unix.RTA_OIF:
			if len(attrs.Bytes()) == 4 {
				r.Out = append(r.Out, int(attrs.Uint32()))
			}
		case unix.RTA_DST:
			r.Target, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.RTA_VIA: // struct rtvia: family, address
			if len(attrs.Bytes()) > 2 {
				r.Gateway, _ = netip.AddrFromSlice(attrs.Bytes()[2:])
			}
		case unix.RTA_MULTIPATH: // struct rtnexthop: length, flags, hops, index
			for hops := attrs.Bytes(); len(hops) >= unix.SizeofRtNexthop; {
				r.Out = append(r.Out, int(binary.NativeEndian.Uint32(hops[4:])))
				length := (int(binary.NativeEndian.Uint16(hops)) + 3) &^ 3
				if length < unix.SizeofRtNexthop || length > len(hops) {
					break
				}
				hops = hops[length:]
			}
		}
	}
	return r
}
