// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
)

// Alike reports whether a connection that the node makes itself, with the packet's mark and if need be by its device, leaves as the
// kernel is about to forward the packet. It does not if a routing rule matches clients only, by their device or address, perhaps for a
// port. The node's table may then have no next hop on that device: the kernel would look for the target on the link itself.
func (d *Diverter) Alike(p *Packet) bool {
	if !d.ruled.Load() {
		return true
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return false
	}
	defer conn.Close()
	out := 0 // as the relay binds its connections
	if Leaves(p.Target.Addr(), p.Mark) != p.Out {
		out = p.Out
	}
	from, err := source(p.Target, p.Mark, out)
	if err != nil {
		return false
	}
	protocol := byte(unix.IPPROTO_TCP)
	if p.UDP {
		protocol = unix.IPPROTO_UDP
	}
	about := []netlink.Attribute{attr(unix.RTA_IP_PROTO, []byte{protocol}), attr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, p.Target.Port()))}
	is, err := lookUp(conn, p.Target.Addr(), append(about, attr(unix.RTA_MARK, native(p.Mark)), attr(unix.RTA_SRC, from.AsSlice()), attr(unix.RTA_OIF, native(uint32(out))))...)
	if err != nil {
		return false
	}
	was, err := forwards(conn, p.Client.Addr(), p.Target.Addr(), p.In, p.Mark, about...)
	if err != nil || len(was.Out) != 1 || was.Out[0] != p.Out { // the mark has changed since, or one of several next hops was chosen
		return is.Table != unix.RT_TABLE_UNSPEC
	}
	return is.Gateway == was.Gateway || is.Table == was.Table && is.Table != unix.RT_TABLE_UNSPEC
}

// Forwards returns the index of the device by which the kernel forwards a client's packets with a mark, which arrive by the device in, or 0.
func Forwards(client, target netip.Addr, in int, mark uint32) int {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0
	}
	defer conn.Close()
	r, err := forwards(conn, client, target, in, mark)
	if err != nil || len(r.Out) != 1 {
		return 0
	}
	return r.Out[0]
}

func forwards(conn *netlink.Conn, client, target netip.Addr, in int, mark uint32, more ...netlink.Attribute) (route.Route, error) {
	return lookUp(conn, target, append(more, attr(unix.RTA_MARK, native(mark)), attr(unix.RTA_SRC, client.AsSlice()), attr(unix.RTA_IIF, native(uint32(in))))...)
}

// source returns the address that the kernel gives the node's own connections to a target, with a mark and, unless it is 0, by a device.
func source(target netip.AddrPort, mark uint32, device int) (addr netip.Addr, err error) {
	fd, err := unix.Socket(int(route.FamilyOf(target.Addr())), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return addr, err
	}
	defer unix.Close(fd)
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return addr, err
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, device); err != nil {
		return addr, err
	}
	if err = unix.Connect(fd, socketAddress(target)); err != nil { // sends nothing
		return addr, err
	}
	name, err := unix.Getsockname(fd)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		addr = netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		addr = netip.AddrFrom16(a.Addr)
	}
	return addr, err
}

func socketAddress(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}
