// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// How TCP that is taken gets to the relay's listener.
const (
	Redirect = "redirect" // NAT: needs no routing, the default
	TProxy   = "tproxy"   // no NAT: needs kmod-nft-tproxy and kmod-nft-socket
)

// A Ports is a range with both its ends.
type Ports struct{ First, Last uint16 }

func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// ParsePorts reads a port, or two and a hyphen.
func ParsePorts(s string) (p Ports, err error) {
	first, last, several := strings.Cut(s, "-")
	if !several {
		last = first
	}
	a, aerr := strconv.ParseUint(first, 10, 16)
	b, berr := strconv.ParseUint(last, 10, 16)
	if aerr != nil || berr != nil || a == 0 || b < a {
		return p, fmt.Errorf("%q is neither a port from 1 to 65535 nor a range like 6000-6063", s)
	}
	return Ports{uint16(a), uint16(b)}, nil
}

// Rules say what is taken.
type Rules struct {
	Mode    string
	Port    int            // that the relay listens on
	Node    []netip.Addr   // of the node: taken TCP is delivered to the first one of its IP version (Redirect)
	Clients []string       // devices that clients are behind
	Uplinks []string       // devices that packets must be about to leave by
	Exclude []netip.Prefix // targets that are not taken
	TCP     bool           // take TCP
	NotTCP  []Ports        // of these ports none
	UDP     []Ports        // of these ports UDP
}

const (
	// TableName is that of the nftables table, of family inet.
	TableName = "bquic_relay"

	// Marks, of which only the bits of ourBits count: the others are those that mwan3
	// (0x3f00), pbr (0xff0000) and openNDS (0x30000) use, and may change meanwhile.
	ourBits    = 0xff0000ff
	sentAgain  = 0x62000071 // SYNs on their way to the listener
	toSocket   = 0x62000072 // packets that a route of its own delivers to transparent sockets
	AnswerMark = 0x62000073 // what transparent UDP sockets send

	// FirewallMark is toSocket as /etc/config/firewall has it: packets that the
	// firewall has to let in.
	FirewallMark = "0x62000072/0xff0000ff"

	// The rule stands before those of mwan3 (1001 and up). busybox's ip knows tables up to 1023.
	routeTable = 191
	rulePref   = 91
)

// A rule has its text, in nft's words, for people.
type rule struct {
	chain string
	text  string
	exprs []expr.Any
}

// A term is a part of a rule.
type term struct {
	text  string
	exprs []expr.Any
}

func joined(chain string, terms ...term) rule {
	r := rule{chain: chain}
	var words []string
	for _, t := range terms {
		words = append(words, t.text)
		r.exprs = append(r.exprs, t.exprs...)
	}
	r.text = strings.Join(words, " ")
	return r
}

func meta(key expr.MetaKey, text string, data []byte) term {
	return term{text, []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data},
	}}
}

func device(key expr.MetaKey, word, name string) term {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return meta(key, fmt.Sprintf("%s %q", word, name), b)
}

func iif(name string) term { return device(expr.MetaKeyIIFNAME, "iifname", name) }
func oif(name string) term { return device(expr.MetaKeyOIFNAME, "oifname", name) }

func protocol(number byte, name string) term {
	return meta(expr.MetaKeyL4PROTO, "meta l4proto "+name, []byte{number})
}

var (
	tcp = protocol(unix.IPPROTO_TCP, "tcp")
	udp = protocol(unix.IPPROTO_UDP, "udp")
)

func version(addr netip.Addr) term {
	if addr.Is4() {
		return meta(expr.MetaKeyNFPROTO, "meta nfproto ipv4", []byte{unix.NFPROTO_IPV4})
	}
	return meta(expr.MetaKeyNFPROTO, "meta nfproto ipv6", []byte{unix.NFPROTO_IPV6})
}

func mark(value uint32) term {
	return term{fmt.Sprintf("meta mark & 0x%x == 0x%x", uint32(ourBits), value), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(ourBits), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native(value)},
	}}
}

func setMark(value uint32) term {
	return term{fmt.Sprintf("meta mark set meta mark & 0x%08x | 0x%x", ^uint32(ourBits), value), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(^uint32(ourBits)), Xor: native(value)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
	}}
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// to matches the destination address.
func to(p netip.Prefix) term {
	v, word := version(p.Addr()), "ip"
	offset, size := uint32(16), uint32(4)
	if p.Addr().Is6() {
		offset, size, word = 24, 16, "ip6"
	}
	exprs := append(v.exprs, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size})
	if p.Bits() < p.Addr().BitLen() {
		mask := make([]byte, size)
		for i := range p.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		exprs = append(exprs, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)})
	}
	exprs = append(exprs, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()})
	return term{fmt.Sprintf("%s daddr %s", word, p.Masked()), exprs}
}

// dport matches the destination port, which TCP and UDP have in the same place.
func dport(name string, p Ports) term {
	return term{fmt.Sprintf("%s dport %s", name, p), []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: binary.BigEndian.AppendUint16(nil, p.First)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: binary.BigEndian.AppendUint16(nil, p.Last)},
	}}
}

// flags compares those of the TCP flags (RFC 9293, section 3.1) that mask has.
func flags(text string, mask, value byte, op expr.CmpOp) term {
	return term{text, []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Op: op, Register: 1, Data: []byte{value}},
	}}
}

const fin, syn, rst, ack = 1, 2, 4, 16

var (
	isSYN  = flags("tcp flags & (fin | syn | rst | ack) == syn", fin|syn|rst|ack, syn, expr.CmpOpEq)
	notSYN = flags("tcp flags & (syn | ack) != syn", syn|ack, syn, expr.CmpOpNeq)
)

// known matches connections that others' rules have translated, and those whose first
// packet went on its way (IPS_DST_NAT, IPS_CONFIRMED).
var known = term{"ct status & (confirmed | dnat) != 0", []expr.Any{
	&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
	&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: native(1<<3 | 1<<5), Xor: native(0)},
	&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native(0)},
}}

var transparent = term{"socket transparent 1", []expr.Any{
	&expr.Socket{Key: expr.SocketKeyTransparent, Register: 1},
	&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}},
}}

var notrack = term{"notrack", []expr.Any{&expr.Notrack{}}}

func verdict(text string, kind expr.VerdictKind, chain string) term {
	return term{text, []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}}
}

var (
	accept = verdict("accept", expr.VerdictAccept, "")
	pass   = verdict("return", expr.VerdictReturn, "")
)

func jump(chain string) term { return verdict("goto "+chain, expr.VerdictGoto, chain) }

// toQueue hands packets to queueNumber, or lets them pass where nobody reads it. Some
// kernels know that by xtables' target only.
func toQueue(byTarget bool) term {
	t := term{text: fmt.Sprintf("queue flags bypass to %d", queueNumber)}
	if !byTarget {
		t.exprs = []expr.Any{&expr.Queue{Num: queueNumber, Total: 1, Flag: expr.QueueFlagBypass}}
		return t
	}
	// struct xt_NFQ_info_v3 of include/uapi/linux/netfilter/xt_NFQUEUE.h, aligned
	info := xt.Unknown(make([]byte, 8))
	binary.NativeEndian.PutUint16(info[0:], queueNumber)
	binary.NativeEndian.PutUint16(info[2:], 1)
	binary.NativeEndian.PutUint16(info[4:], 1) // NFQ_FLAG_BYPASS
	t.exprs = []expr.Any{&expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info}}
	return t
}

// dnat translates to addr and port.
func dnat(addr netip.Addr, port int) term {
	family, word := uint32(unix.NFPROTO_IPV4), "ip"
	if addr.Is6() {
		family, word = unix.NFPROTO_IPV6, "ip6"
	}
	return term{fmt.Sprintf("dnat %s to %s", word, netip.AddrPortFrom(addr, uint16(port))), []expr.Any{
		&expr.Immediate{Register: 1, Data: addr.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}}
}

func tproxy(port int) term {
	return term{fmt.Sprintf("tproxy to :%d", port), []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
		&expr.TProxy{Family: unix.NFPROTO_UNSPEC, TableFamily: unix.NFPROTO_INET, RegPort: 1},
	}}
}

// A chain is a base chain, or one that rules go to.
type chain struct {
	name string
	text string // of a base chain
	kind nftables.ChainType
	hook *nftables.ChainHook
	prio int32
}

func base(name string, kind nftables.ChainType, hookName string, hook *nftables.ChainHook, prio int32) chain {
	return chain{name, fmt.Sprintf("type %s hook %s priority %d; policy accept;", kind, hookName, prio), kind, hook, prio}
}

// The priorities: forwarded packets after all that others may filter, and before
// srcnat (100), so that the client's address is still there; SYNs sent again where
// dstnat is; what is not to be tracked where raw is, before conntrack; TCP of sockets
// just after mangle, so that an operator's own rules come first.
var (
	forwarded = base("forwarded", nftables.ChainTypeFilter, "postrouting", nftables.ChainHookPostrouting, 99)
	uplink    = chain{name: "uplink"}
	leaving   = chain{name: "leaving"}
	again     = base("again", nftables.ChainTypeNAT, "output", nftables.ChainHookOutput, -100)
	untracked = base("untracked", nftables.ChainTypeFilter, "prerouting", nftables.ChainHookPrerouting, -300)
	answers   = base("answers", nftables.ChainTypeFilter, "output", nftables.ChainHookOutput, -300)
	sockets   = base("sockets", nftables.ChainTypeFilter, "prerouting", nftables.ChainHookPrerouting, -145)
)

// chains are all that a table of these rules has.
func (r *Rules) chains() []chain {
	all := []chain{leaving, uplink, forwarded}
	if r.Mode == Redirect {
		all = append(all, again)
	}
	if r.routes() {
		all = append(all, untracked, answers, sockets)
	}
	return all
}

// routes says that packets have to be routed to sockets of this process.
func (r *Rules) routes() bool { return r.Mode == TProxy || len(r.UDP) > 0 }

// marks are those of packets that are routed to sockets of this process.
func (r *Rules) marks() (marks []uint32) {
	if r.Mode == TProxy {
		marks = append(marks, sentAgain)
	}
	if r.routes() {
		marks = append(marks, toSocket)
	}
	return marks
}

// rules are those of the table, in order.
func (r *Rules) rules(byTarget bool) (rules []rule) {
	add := func(c chain, terms ...term) { rules = append(rules, joined(c.name, terms...)) }
	if r.TCP || len(r.UDP) > 0 {
		for _, name := range r.Clients {
			add(forwarded, iif(name), jump(uplink.name))
		}
	}
	for _, name := range r.Uplinks {
		// What comes and goes by one device is between its clients.
		for _, client := range r.Clients {
			if client == name {
				add(uplink, iif(name), oif(name), pass)
			}
		}
		add(uplink, oif(name), jump(leaving.name))
	}
	add(leaving, known, pass)
	for _, p := range r.Exclude {
		add(leaving, to(p), pass)
	}
	if r.TCP {
		for _, p := range r.NotTCP {
			add(leaving, tcp, dport("tcp", p), pass)
		}
		for _, v := range r.versions() {
			add(leaving, v, tcp, isSYN, toQueue(byTarget))
		}
	}
	for _, p := range r.UDP {
		add(leaving, udp, dport("udp", p), toQueue(byTarget))
	}
	if r.Mode == Redirect {
		for i, addr := range r.Node {
			if !slices.ContainsFunc(r.Node[:i], func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
				add(again, version(addr), tcp, mark(sentAgain), dnat(addr, r.Port))
			}
		}
	}
	if r.Mode == TProxy {
		add(sockets, iif("lo"), mark(sentAgain), tcp, tproxy(r.Port), accept)
		for _, name := range r.Clients {
			add(sockets, iif(name), tcp, notSYN, transparent, setMark(toSocket), accept)
		}
	}
	// What is of a UDP flow is not tracked: should the flow end, the next datagram is a
	// new one to the node's firewall and NAT, which forward it.
	if len(r.UDP) > 0 {
		for _, name := range r.Clients {
			add(untracked, iif(name), udp, transparent, notrack)
			add(sockets, iif(name), udp, transparent, setMark(toSocket), accept)
		}
		add(answers, mark(AnswerMark), notrack)
	}
	return rules
}

// versions are the IP versions whose TCP can be delivered.
func (r *Rules) versions() (versions []term) {
	for _, addr := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if r.Mode == TProxy || slices.ContainsFunc(r.Node, func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
			versions = append(versions, version(addr))
		}
	}
	return versions
}

// String is the table as nft would list it, and what else is set.
func (r *Rules) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n\tflags owner\n", TableName)
	rules := r.rules(false)
	for _, c := range r.chains() {
		fmt.Fprintf(&b, "\tchain %s {\n", c.name)
		if c.text != "" {
			fmt.Fprintf(&b, "\t\t%s\n", c.text)
		}
		for _, rule := range rules {
			if rule.chain == c.name {
				fmt.Fprintf(&b, "\t\t%s\n", rule.text)
			}
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	for _, value := range r.marks() {
		fmt.Fprintf(&b, "ip rule add pref %d fwmark 0x%x/0x%x table %d\n", rulePref, value, uint32(ourBits), routeTable)
	}
	if r.routes() {
		fmt.Fprintf(&b, "ip route add local default dev lo table %d\n", routeTable)
	}
	return b.String()
}
