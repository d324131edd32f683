// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// On a bridge, a client's packets bypass the node's IP layer, because they have the hardware
// address of another router. SYNs are queued when they are about to leave by a port, after the
// bridge's own rules. A map notes the connections that are taken. Their further frames are given
// the bridge's own hardware address. So the node's IP layer receives them, with the bridge as
// their device, like packets of a routed client.
//
// (With meta broute, the packets' device would be the port, for which neither the node's firewall
// nor this package has rules. It also needs more of the kernel.)

// A BridgePort is a port by which packets leave a bridge towards a router.
type BridgePort struct {
	Name        string  // of the port
	Index       int     // of the port
	Device      string  // the device of the node's IP layer: the bridge itself, or a VLAN on it
	DeviceIndex int     // of Device
	MAC         [6]byte // of Device
	VLAN        uint16  // the tag of frames that leave; 0: none
}

const (
	// synTimeout is how long a note lasts after its SYN, flowTimeout after each further frame of the client: keep-alive
	// takes a silent client for dead sooner (tunnel.Sparing). Release removes notes of connections that have ended.
	synTimeout  = 10 * time.Minute
	flowTimeout = 150 * time.Minute
	// maxNoted is the limit on noted connections of each IP version. When the map is full, SYNs
	// are not queued.
	maxNoted = 8192
)

// A noted is the map of the connections taken of an IP version: from protocol, addresses and ports
// to the hardware address for the frames.
type noted struct {
	name        string
	ethertype   uint16
	word        string
	offset      uint32 // of the source address in the IP header; the destination address follows
	size        uint32 // of an address, bytes
	addressType uint32 // nft's data type of an address
	unspecified netip.Addr
}

var notes = []noted{
	{"taken4", unix.ETH_P_IP, "ip", 12, 4, 7, netip.IPv4Unspecified()},
	{"taken6", unix.ETH_P_IPV6, "ip6", 8, 16, 8, netip.IPv6Unspecified()},
}

// keySize returns the size of a map's key in bytes. Each part is padded to whole registers.
func (n *noted) keySize() uint32 { return 4 + 2*n.size + 4 + 4 }

// keyType returns nft's data type of the key, without which nft cannot list the rules. 12 is a
// protocol, 13 a port (enum datatypes in nft's datatype.h).
func (n *noted) keyType() (id uint32) {
	for _, part := range []uint32{12, n.addressType, n.addressType, 13, 13} {
		id = id<<6 | part
	}
	return id
}

// key loads a packet's key into registers.
func (n *noted) key() []expression {
	registers := n.size / 4
	return []expression{
		{"meta", []netlink.Attribute{num(unix.NFTA_META_DREG, keyReg), num(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO)}},
		loadInto(keyReg+1, unix.NFT_PAYLOAD_NETWORK_HEADER, n.offset, n.size),
		loadInto(keyReg+1+registers, unix.NFT_PAYLOAD_NETWORK_HEADER, n.offset+n.size, n.size),
		loadInto(keyReg+1+2*registers, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2),
		loadInto(keyReg+2+2*registers, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
	}
}

func (n *noted) words() string {
	return fmt.Sprintf("meta l4proto . %s saddr . %[1]s daddr . th sport . th dport", n.word)
}

// version matches the IP version.
func (n *noted) version() term {
	return meta(unix.NFT_META_PROTOCOL, "meta protocol "+n.word, []byte{byte(n.ethertype >> 8), byte(n.ethertype)})
}

// key returns a connection's key in its map.
func (c connection) key() []byte {
	key := []byte{unix.IPPROTO_TCP, 0, 0, 0}
	key = append(append(key, c.client.Addr().AsSlice()...), c.target.Addr().AsSlice()...)
	for _, port := range []uint16{c.client.Port(), c.target.Port()} {
		key = append(key, byte(port>>8), byte(port), 0, 0)
	}
	return key
}

// find ends the rule if the packet's connection is not noted. Otherwise it runs exprs and changes the note, which then has the
// timeout, in whole minutes.
func (n *noted) find(words string, op uint32, timeout time.Duration, exprs ...expression) term {
	all := append(append(n.key(), lookup(n.name)), exprs...)
	// nft cannot list a change whose value comes from the map itself.
	all = append(append(all, loadInto(valueReg, unix.NFT_PAYLOAD_LL_HEADER, 0, 6)), n.key()...)
	return term{fmt.Sprintf(words, n.words(), "@"+n.name, int(timeout.Minutes())), append(all, change(n.name, op, timeout))}
}

// note gives the connection's further frames a hardware address.
func (n *noted) note(mac [6]byte) term {
	return term{
		fmt.Sprintf("update @%s { %s : %s }", n.name, n.words(), net.HardwareAddr(mac[:])),
		append(append(n.key(), immediate(valueReg, mac[:])), change(n.name, setUpdate, 0)),
	}
}

var (
	notTCP = term{"meta l4proto != tcp", []expression{loadMeta(unix.NFT_META_L4PROTO), compare(unix.NFT_CMP_NEQ, []byte{unix.IPPROTO_TCP})}}
	toHost = term{"meta pkttype set host", []expression{immediate(reg1, []byte{0}), storeMeta(unix.NFT_META_PKTTYPE)}}

	// The last chains in the bridge's prerouting and forward hooks. passing removes the notes of
	// SYNs that pass in the end.
	bridged = base("bridged", "filter", "prerouting", unix.NF_INET_PRE_ROUTING, 300)
	beyond  = base("beyond", "filter", "forward", unix.NF_INET_FORWARD, 300)
	passing = base("passing", "filter", "forward", unix.NF_INET_FORWARD, 301)
)

// tagged matches the VLAN tag with which a frame leaves.
func tagged(vlan uint16, ethertype uint16) term {
	words, exprs := "", []expression(nil)
	at := func(offset uint32, mask, value uint16) {
		exprs = append(exprs, loadPayload(unix.NFT_PAYLOAD_LL_HEADER, offset, 2))
		if mask != 0xffff {
			exprs = append(exprs, masked([]byte{byte(mask >> 8), byte(mask)}, []byte{0, 0}))
		}
		exprs = append(exprs, compare(unix.NFT_CMP_EQ, []byte{byte(value >> 8), byte(value)}))
	}
	if vlan == 0 {
		words = fmt.Sprintf("@ll,96,16 0x%04x", ethertype)
		at(12, 0xffff, ethertype)
	} else {
		words = fmt.Sprintf("vlan id %d vlan type 0x%04x", vlan, ethertype)
		at(12, 0xffff, unix.ETH_P_8021Q)
		at(14, 0x0fff, vlan)
		at(16, 0xffff, ethertype)
	}
	return term{words, exprs}
}

// bridgeChains are all chains of the bridge's table.
var bridgeChains = []chain{bridged, beyond, passing}

// bridgeRules returns the rules of the bridge's table, in order.
func (r *Rules) bridgeRules(byTarget bool) (rules []rule) {
	add := func(c chain, terms ...term) { rules = append(rules, joined(c.name, terms...)) }
	for i := range notes {
		n := &notes[i]
		add(bridged, n.version(), tcp, notSYN,
			n.find("ether daddr set %[1]s map %[2]s update %[2]s { %[1]s timeout %[3]dm : ether daddr }", setUpdate, flowTimeout, storePayload(unix.NFT_PAYLOAD_LL_HEADER, 0, 6)), toHost)
		add(passing, n.version(), tcp, isSYN, n.find("%[1]s map %[2]s delete %[2]s { %[1]s : ether daddr }", setDelete, 0))
	}
	if !r.TCP || len(r.Bridges) == 0 {
		return rules
	}
	// All in one chain: nft_compat refuses an xtables target in a chain that a bridge's chain jumps to.
	add(beyond, notTCP, pass)
	add(beyond, flags("tcp flags & (fin | syn | rst | ack) != syn", fin|syn|rst|ack, syn, unix.NFT_CMP_NEQ), pass)
	// A packet that arrives by one port to a router and leaves by another is in transit.
	for i, p := range r.Bridges {
		for j, q := range r.Bridges {
			if (i == 0 || r.Bridges[i-1].Name != p.Name) && (j == 0 || r.Bridges[j-1].Name != q.Name) {
				add(beyond, oif(p.Name), iif(q.Name), pass)
			}
		}
	}
	for _, prefix := range r.Exclude {
		add(beyond, bridgedTo(prefix), pass)
	}
	for _, p := range r.NotTCP {
		add(beyond, dport("tcp", p), pass)
	}
	for _, p := range r.Bridges {
		for i := range notes {
			if n := &notes[i]; r.delivers(n.unspecified) {
				add(beyond, oif(p.Name), tagged(p.VLAN, n.ethertype), n.note(p.MAC), toQueue(byTarget))
			}
		}
	}
	return rules
}

// bridgedTo is like to, for a bridge's packets, whose family is not an IP family.
func bridgedTo(p netip.Prefix) term {
	n := &notes[0]
	if p.Addr().Is6() {
		n = &notes[1]
	}
	t := destination(p)
	return term{n.version().words + " " + t.words, append(n.version().exprs, t.exprs...)}
}
