// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// On a bridge, a client's packets go past the node's IP: they bear the hardware address
// of a router beyond. The SYNs among them are queued when they are about to leave by a
// port, after the bridge's own rules. What is taken is noted in a map; the frames that
// follow get the bridge's own hardware address, and the node's IP sees them, with the
// bridge as their device, like those of a routed client.
//
// (meta broute would have them come from the port, for which neither the node's firewall
// nor this package has rules, and asks for more of the kernel.)

// A BridgePort is one by which packets leave a bridge towards a router.
type BridgePort struct {
	Name        string  // of the port
	Index       int     // of the port
	Device      string  // what the node's IP has of the bridge: itself, or a VLAN of it
	DeviceIndex int     // of Device
	MAC         [6]byte // of Device
	VLAN        uint16  // the tag with which frames leave; 0: none
}

const (
	// flowTimeout is how long a connection may be silent. Its socket probes more often
	// (tunnel.KeepAlive), and the answer makes the note of it young again.
	flowTimeout = 10 * time.Minute
	// maxNoted bounds the connections that are noted, of each IP version. Without room,
	// a SYN is not queued.
	maxNoted = 8192
)

// A noted is the map of what was taken of an IP version: from protocol, addresses and
// ports, to the hardware address that the frames get.
type noted struct {
	name        string
	ethertype   uint16
	word        string
	offset      uint32 // of the source's address in the IP header; the target's follows
	size        uint32 // of an address
	addressType uint32 // to nft
	unspecified netip.Addr
}

var notes = []noted{
	{"taken4", unix.ETH_P_IP, "ip", 12, 4, 7, netip.IPv4Unspecified()},
	{"taken6", unix.ETH_P_IPV6, "ip6", 8, 16, 8, netip.IPv6Unspecified()},
}

// keySize is that of a map's key, whose parts are filled up to registers.
func (n *noted) keySize() uint32 { return 4 + 2*n.size + 4 + 4 }

// keyType tells nft what the parts are: it gives up on rules with a key that it does not
// understand. 12 is a protocol, 13 a port (enum datatypes of its datatype.h).
func (n *noted) keyType() (id uint32) {
	for _, part := range []uint32{12, n.addressType, n.addressType, 13, 13} {
		id = id<<6 | part
	}
	return id
}

// key puts a packet's key together.
func (n *noted) key() []expression {
	registers := n.size / 4
	return []expression{
		{"meta", []attribute{num(unix.NFTA_META_DREG, keyReg), num(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO)}},
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

// find ends the rule for what is not noted. Then come exprs, and the change of the note.
func (n *noted) find(words string, op uint32, exprs ...expression) term {
	all := append(append(n.key(), lookup(n.name)), exprs...)
	// nft gives up on a change whose value comes from the map itself.
	all = append(append(all, loadInto(valueReg, unix.NFT_PAYLOAD_LL_HEADER, 0, 6)), n.key()...)
	return term{fmt.Sprintf(words, n.words(), "@"+n.name), append(all, change(n.name, op))}
}

// note makes the packet's frames get a hardware address from now on.
func (n *noted) note(mac [6]byte) term {
	return term{
		fmt.Sprintf("update @%s { %s : %s }", n.name, n.words(), net.HardwareAddr(mac[:])),
		append(append(n.key(), immediate(valueReg, mac[:])), change(n.name, setUpdate)),
	}
}

var (
	notTCP = term{"meta l4proto != tcp", []expression{loadMeta(unix.NFT_META_L4PROTO), compare(unix.NFT_CMP_NEQ, []byte{unix.IPPROTO_TCP})}}
	toHost = term{"meta pkttype set host", []expression{immediate(reg1, []byte{0}), storeMeta(unix.NFT_META_PKTTYPE)}}

	// Last of the bridge's prerouting and forward chains. What passes in the end is noted no more.
	bridged = base("bridged", "filter", "prerouting", unix.NF_INET_PRE_ROUTING, 300)
	beyond  = base("beyond", "filter", "forward", unix.NF_INET_FORWARD, 300)
	passing = base("passing", "filter", "forward", unix.NF_INET_FORWARD, 301)
)

// tagged matches the VLAN tag that a frame leaves with.
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

// bridgeChains are all that the bridge's table has.
func (r *Rules) bridgeChains() []chain { return []chain{bridged, beyond, passing} }

// bridgeRules are those of the bridge's table, in order.
func (r *Rules) bridgeRules(byTarget bool) (rules []rule) {
	add := func(c chain, terms ...term) { rules = append(rules, joined(c.name, terms...)) }
	for i := range notes {
		n := &notes[i]
		add(bridged, n.version(), tcp, notSYN,
			n.find("ether daddr set %[1]s map %[2]s update %[2]s { %[1]s : ether daddr }", setUpdate, storePayload(unix.NFT_PAYLOAD_LL_HEADER, 0, 6)), toHost)
		add(passing, n.version(), tcp, isSYN, n.find("%[1]s map %[2]s delete %[2]s { %[1]s : ether daddr }", setDelete))
	}
	if !r.TCP || len(r.Bridges) == 0 {
		return rules
	}
	// In one chain: nft_compat refuses the target of xtables in one that a bridge's goes to.
	add(beyond, notTCP, pass)
	add(beyond, flags("tcp flags & (fin | syn | rst | ack) != syn", fin|syn|rst|ack, syn, unix.NFT_CMP_NEQ), pass)
	// What comes from one way to the world and leaves by another is in transit.
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

// bridgedTo is to for a bridge's packets, whose family is not that of IP.
func bridgedTo(p netip.Prefix) term {
	n := &notes[0]
	if p.Addr().Is6() {
		n = &notes[1]
	}
	t := destination(p)
	return term{n.version().words + " " + t.words, append(n.version().exprs, t.exprs...)}
}
