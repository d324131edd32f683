// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
	"bquic/internal/special"
)

// A way leads to other networks.
type way struct {
	route.Route
	to netip.Addr // the gateway; invalid: it is a default route
}

// ways returns the default routes of the main table, and the routes to gateways.
func ways(conn *netlink.Conn, gateways []netip.Addr) (all []way) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		routes, _ := route.All(conn, family) // fails for IPv6 if the kernel does not have it
		for _, r := range routes {
			if r.Bits == 0 && r.Table == unix.RT_TABLE_MAIN && r.Kind == unix.RTN_UNICAST {
				all = append(all, way{Route: r})
			}
		}
	}
	for _, gateway := range gateways {
		if r, err := lookUp(conn, gateway); err == nil && r.Kind == unix.RTN_UNICAST {
			all = append(all, way{r, gateway})
		}
	}
	return all
}

// lookUp returns the route that the kernel would use for an address, with its table. more are further attributes of the packets.
func lookUp(conn *netlink.Conn, addr netip.Addr, more ...netlink.Attribute) (route.Route, error) {
	return route.LookUp(conn, addr, unix.RTM_F_LOOKUP_TABLE, more...)
}

// Devices returns the names of all devices except loopback.
func Devices() (names []string) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, dev := range all {
		if dev.Flags&net.FlagLoopback == 0 {
			names = append(names, dev.Name)
		}
	}
	return names
}

// NodeAddresses returns the addresses of devices to which packets can be translated. Those that will be there longest come first: a
// connection that is translated to an address hangs without it.
// It omits link-local addresses, which clients of another device cannot reach, and IPv6 addresses
// that are tentative or duplicates (RFC 4862, section 5.4): the kernel delivers nothing to them.
func NodeAddresses(devices []string) (addrs []netip.Addr) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil
	}
	defer conn.Close()
	usable := slices.DeleteFunc(addressesOf(conn, devices), func(a address) bool {
		if a.addr.Is4() {
			return false
		}
		r, err := lookUp(conn, a.addr)
		return err != nil || r.Kind != unix.RTN_LOCAL
	})
	for brief := range 8 {
		for _, a := range usable {
			if a.brief() == brief {
				addrs = append(addrs, a.addr)
			}
		}
	}
	return addrs
}

// Links returns the prefixes of the public networks that devices are connected to. Their hosts are neighbours, which the node reaches without a
// router.
func Links(devices []string) (prefixes []netip.Prefix) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil
	}
	defer conn.Close()
	for _, a := range addressesOf(conn, devices) {
		p := netip.PrefixFrom(a.addr, a.bits).Masked()
		if _, isSpecial := special.Of(a.addr); !isSpecial && a.bits > 0 && !slices.Contains(prefixes, p) {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes
}

// addressesOf returns the addresses of devices, except link-local ones, in their order.
func addressesOf(conn *netlink.Conn, devices []string) (addrs []address) {
	msgs, err := route.Ask(conn, unix.RTM_GETADDR, netlink.Dump, make([]byte, unix.SizeofIfAddrmsg))
	if err != nil {
		return nil
	}
	for _, name := range devices {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		for _, m := range msgs {
			if a := readAddress(m.Data); a.device == dev.Index && a.addr.IsGlobalUnicast() {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs
}

// An address is one of the node's (struct ifaddrmsg of include/uapi/linux/if_addr.h).
type address struct {
	device int
	addr   netip.Addr
	bits   int // of its network's prefix
	flags  uint32
}

func readAddress(b []byte) (a address) {
	if len(b) < unix.SizeofIfAddrmsg {
		return a
	}
	a.bits, a.flags, a.device = int(b[1]), uint32(b[2]), index(b[4:8])
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfAddrmsg:])
	if err != nil {
		return a
	}
	var local netip.Addr
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFA_ADDRESS: // of the peer, if there is IFA_LOCAL
			a.addr, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(attrs.Bytes())
		case unix.IFA_FLAGS:
			if len(attrs.Bytes()) == 4 {
				a.flags = attrs.Uint32()
			}
		}
	}
	if local.IsValid() {
		a.addr = local
	}
	return a
}

// brief is larger, at most 7, for addresses that are likely to go sooner: those that are going, those of a prefix that a provider may replace,
// and those of a day (RFC 8981; for IPv4, those that go with another one).
func (a address) brief() (n int) {
	if a.flags&unix.IFA_F_DEPRECATED != 0 {
		n += 4
	}
	if a.flags&unix.IFA_F_PERMANENT == 0 {
		n += 2
	}
	if a.flags&unix.IFA_F_TEMPORARY != 0 {
		n++
	}
	return n
}
