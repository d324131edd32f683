// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
)

// A link holds the relevant properties of a network device (RTM_NEWLINK,
// include/uapi/linux/if_link.h).
type link struct {
	index    int
	name     string
	kind     string // "bridge", "vlan", "macvlan", "batadv", ...; "" for hardware
	master   int    // index of the bridge of which it is a port
	below    int    // index of the underlying device
	vlan     uint16 // VLAN ID, if kind is "vlan"
	mac      [6]byte
	loopback bool
	filter   bool         // a bridge that filters VLANs
	vlans    []bridgeVLAN // VLANs of such a bridge, or of a port of one
}

// A bridgeVLAN is a VLAN of a port (struct bridge_vlan_info).
type bridgeVLAN struct {
	id       uint16
	untagged bool // frames leave without the tag
	pvid     bool // frames without a tag belong to it
}

// links reads all devices.
func links(conn *netlink.Conn) (map[int]*link, error) {
	all := make(map[int]*link)
	msgs, err := route.Ask(conn, unix.RTM_GETLINK, netlink.Dump, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return nil, err
	}
	filter := false
	for _, m := range msgs {
		if l, ok := readLink(m.Data); ok {
			all[l.index] = &l
			filter = filter || l.filter
		}
	}
	if !filter {
		return all, nil
	}
	msgs, err = route.Ask(conn, unix.RTM_GETLINK, netlink.Dump, append([]byte{unix.AF_BRIDGE}, make([]byte, unix.SizeofIfInfomsg-1)...),
		attr(unix.IFLA_EXT_MASK, native(2))) // RTEXT_FILTER_BRVLAN
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		if l, ok := readLink(m.Data); ok && all[l.index] != nil {
			all[l.index].vlans = l.vlans
		}
	}
	return all, nil
}

func readLink(b []byte) (l link, ok bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return l, false
	}
	l.index = int(int32(binary.NativeEndian.Uint32(b[4:])))
	l.loopback = binary.NativeEndian.Uint32(b[8:])&unix.IFF_LOOPBACK != 0
	attrs, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return l, false
	}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFLA_IFNAME:
			l.name = attrs.String()
		case unix.IFLA_ADDRESS:
			copy(l.mac[:], attrs.Bytes())
		case unix.IFLA_MASTER:
			l.master = index(attrs.Bytes())
		case unix.IFLA_LINK:
			l.below = index(attrs.Bytes())
		case unix.IFLA_LINKINFO:
			attrs.Nested(l.readInfo)
		case unix.IFLA_AF_SPEC:
			if b[0] == unix.AF_BRIDGE {
				attrs.Nested(l.readVLANs)
			}
		}
	}
	return l, l.name != "" && attrs.Err() == nil
}

func index(b []byte) int {
	if len(b) != 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(b)))
}

func (l *link) readInfo(attrs *netlink.AttributeDecoder) error {
	for attrs.Next() {
		switch attrs.Type() {
		case unix.IFLA_INFO_KIND:
			l.kind = attrs.String()
		case unix.IFLA_INFO_DATA: // follows the kind
			attrs.Nested(func(data *netlink.AttributeDecoder) error {
				for data.Next() {
					switch {
					case l.kind == "vlan" && data.Type() == unix.IFLA_VLAN_ID && len(data.Bytes()) == 2:
						l.vlan = data.Uint16()
					case l.kind == "bridge" && data.Type() == unix.IFLA_BR_VLAN_FILTERING && len(data.Bytes()) == 1:
						l.filter = data.Uint8() != 0
					}
				}
				return data.Err()
			})
		}
	}
	return attrs.Err()
}

func (l *link) readVLANs(attrs *netlink.AttributeDecoder) error {
	for attrs.Next() {
		if b := attrs.Bytes(); attrs.Type() == 2 && len(b) == 4 { // IFLA_BRIDGE_VLAN_INFO: flags, ID
			flags := binary.NativeEndian.Uint16(b)
			l.vlans = append(l.vlans, bridgeVLAN{binary.NativeEndian.Uint16(b[2:]), flags&4 != 0, flags&2 != 0})
		}
	}
	return attrs.Err()
}

// A Network describes the clients' devices.
type Network struct {
	// Clients are the devices by which routed clients' packets arrive: the named devices, and
	// devices on top of them that are the clients' router (LibreMesh's anygw).
	Clients []string
	// Uplinks are the devices by which the node reaches other networks.
	Uplinks []string
	// Ports are the ports by which bridged clients' packets leave.
	Ports []*BridgePort
	// Members are all ports of the named bridges, by which clients may arrive.
	Members []string
	// Gateways are the hardware addresses of gateways on the node's own links, such as a server at a port for clients.
	Gateways [][6]byte
	Missing  []string // named devices that do not exist
	Bridges  int      // number of bridges among the named devices
}

// Look examines the devices with clients, and those by which the node reaches other networks. Without names, Uplinks are
// the devices of the main table's default routes, and of the routes to gateways. Ports are the ports in names. For a bridge without a
// port in names, they are its batman-adv ports, and the ports by which the node itself reaches gateways and its default routers.
func Look(clients, names []string, gateways []netip.Addr) (n Network, err error) {
	n.Clients, n.Uplinks = clients, names
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return n, err
	}
	defer conn.Close()
	all, err := links(conn)
	if err != nil {
		return n, err
	}
	outward := sync.OnceValue(func() []way { return ways(conn, gateways) }) // a mesh may have thousands of routes
	if len(names) == 0 {
		n.Uplinks = uplinks(all, outward())
	}
	n.Gateways = neighbours(conn, gateways)
	named := func(l *link) bool { return slices.Contains(clients, l.name) }
	n.Missing = slices.Clone(clients)
	bridges := make(map[int]bool)
	for _, l := range all {
		if below := all[l.below]; l.kind == "macvlan" && below != nil && named(below) && !named(l) {
			n.Clients = append(slices.Clip(n.Clients), l.name)
		}
		if !named(l) {
			continue
		}
		n.Missing = slices.DeleteFunc(n.Missing, func(name string) bool { return name == l.name })
		bridge, vlan := l, uint16(0)
		if l.kind == "vlan" && all[l.below] != nil {
			bridge, vlan = all[l.below], l.vlan
		}
		if bridge.kind != "bridge" {
			continue
		}
		n.Bridges++
		bridges[bridge.index] = true
		for _, port := range towards(conn, all, bridge, l, names, outward) {
			if tag, ok := leaves(bridge, port, vlan); ok {
				n.Ports = append(n.Ports, &BridgePort{port.name, port.index, l.name, l.index, l.mac, tag})
			}
		}
	}
	for _, l := range all {
		if bridges[l.master] {
			n.Members = append(n.Members, l.name)
		}
	}
	slices.Sort(n.Clients[len(clients):])
	slices.Sort(n.Members)
	slices.SortFunc(n.Ports, func(a, b *BridgePort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.VLAN, b.VLAN))
	})
	return n, nil
}

// towards returns the ports of a bridge that lead to routers. device is the bridge's device in
// the node's IP layer.
func towards(conn *netlink.Conn, all map[int]*link, bridge, device *link, names []string, outward func() []way) (ports []*link) {
	chosen := false
	for _, l := range all {
		if l.master == bridge.index && slices.Contains(names, l.name) {
			ports, chosen = append(ports, l), true
		}
	}
	if chosen {
		return ports
	}
	for _, l := range all {
		if l.master == bridge.index && l.kind == "batadv" {
			ports = append(ports, l)
		}
	}
	for _, hop := range firstHops(device.index, outward()) {
		mac := neighbour(conn, device.index, hop)
		if mac == nil {
			continue
		}
		if port := all[behind(conn, bridge.index, mac)]; port != nil && port.master == bridge.index && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// uplinks returns the devices of ways.
func uplinks(all map[int]*link, ways []way) (names []string) {
	for _, w := range ways {
		for _, index := range w.Out {
			if l := all[index]; l != nil && !l.loopback && !slices.Contains(names, l.name) {
				names = append(names, l.name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// firstHops returns the next hops of ways on a device.
func firstHops(device int, ways []way) (hops []netip.Addr) {
	for _, w := range ways {
		last := w.to
		if w.Gateway.IsValid() {
			last = w.Gateway
		}
		if slices.Contains(w.Out, device) && last.IsValid() && !slices.Contains(hops, last) {
			hops = append(hops, last)
		}
	}
	return hops
}

// neighbour returns the hardware address of a neighbour, or nil if the kernel does not know it.
func neighbour(conn *netlink.Conn, device int, addr netip.Addr) []byte {
	return getNeighbour(conn, route.FamilyOf(addr), device, attr(unix.NDA_DST, addr.AsSlice())).mac
}

// neighbours returns the hardware addresses of those hosts that the node reaches without a router.
func neighbours(conn *netlink.Conn, hosts []netip.Addr) (macs [][6]byte) {
	for _, addr := range hosts {
		r, err := lookUp(conn, addr)
		if err != nil || r.Gateway.IsValid() || len(r.Out) != 1 {
			continue
		}
		if mac := neighbour(conn, r.Out[0], addr); mac != nil {
			macs = append(macs, [6]byte(mac))
		}
	}
	return macs
}

// behind returns the index of the bridge port behind which a hardware address is, or 0.
func behind(conn *netlink.Conn, bridge int, mac []byte) int {
	return getNeighbour(conn, unix.AF_BRIDGE, 0, attr(unix.NDA_LLADDR, mac), attr(unix.NDA_MASTER, native(uint32(bridge)))).device
}

// A neighbourEntry holds the relevant parts of a struct ndmsg (include/uapi/linux/neighbour.h).
type neighbourEntry struct {
	device int
	mac    []byte
}

func getNeighbour(conn *netlink.Conn, family byte, device int, attrs ...netlink.Attribute) neighbourEntry {
	header := make([]byte, 12)
	header[0] = family
	binary.NativeEndian.PutUint32(header[4:], uint32(device))
	msgs, err := route.Ask(conn, unix.RTM_GETNEIGH, 0, header, attrs...)
	if err != nil || len(msgs) == 0 {
		return neighbourEntry{} // unknown
	}
	return readNeighbour(msgs[0].Data)
}

func readNeighbour(b []byte) (n neighbourEntry) {
	if len(b) < 12 {
		return n
	}
	n.device = index(b[4:8])
	attrs, err := netlink.NewAttributeDecoder(b[12:])
	if err != nil {
		return neighbourEntry{}
	}
	for attrs.Next() {
		if attrs.Type() == unix.NDA_LLADDR && len(attrs.Bytes()) == 6 {
			n.mac = attrs.Bytes()
		}
	}
	return n
}

// leaves returns the tag with which frames of a VLAN leave a bridge by a port; 0: untagged. vlan
// 0 is the VLAN of the bridge's own untagged frames.
func leaves(bridge, port *link, vlan uint16) (tag uint16, ok bool) {
	if !bridge.filter {
		return vlan, true
	}
	if vlan == 0 {
		for _, v := range bridge.vlans {
			if v.pvid {
				vlan = v.id
			}
		}
	}
	for _, v := range port.vlans {
		if v.id == vlan {
			if v.untagged {
				return 0, true
			}
			return vlan, true
		}
	}
	return 0, false
}
