// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// How taken TCP connections reach the relay's listener.
const (
	Redirect = "redirect" // NAT; the default
	TProxy   = "tproxy"   // no NAT: needs kmod-nft-tproxy and kmod-nft-socket
)

// A Ports is a range of ports, including both ends.
type Ports struct{ First, Last uint16 }

func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// ParsePorts parses a port, or two ports separated by a hyphen.
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

// Rules say which connections and flows are taken.
type Rules struct {
	Mode    string
	Port    int            // port of the relay's listener
	Node    []netip.Addr   // addresses of the node; Redirect delivers taken TCP to the first one of its IP version
	Clients []string       // devices with clients
	Uplinks []string       // devices by which packets must be about to leave
	Exclude []netip.Prefix // targets that are not taken
	TCP     bool           // take TCP
	NotTCP  []Ports        // TCP ports that are not taken
	UDP     []Ports        // UDP ports that are taken
	Bridges []*BridgePort  // ports by which bridged clients' packets leave, sorted by name
	Bridged bool           // bridged connections may have been taken, and their packets still arrive
	Flows   []string       // devices by which packets of UDP flows that may have been taken still arrive
}

// equal is called every second, too often for reflection on a router.
func (r *Rules) equal(s *Rules) bool {
	return r.Mode == s.Mode && r.Port == s.Port && r.TCP == s.TCP &&
		slices.Equal(r.Node, s.Node) && slices.Equal(r.Clients, s.Clients) && slices.Equal(r.Uplinks, s.Uplinks) &&
		slices.Equal(r.Exclude, s.Exclude) && slices.Equal(r.NotTCP, s.NotTCP) && slices.Equal(r.UDP, s.UDP) &&
		slices.EqualFunc(r.Bridges, s.Bridges, func(a, b *BridgePort) bool { return *a == *b }) && r.Bridged == s.Bridged && slices.Equal(r.Flows, s.Flows)
}

const (
	// tableName is the name of the nftables tables, of families inet and bridge.
	tableName = "bquic_relay"

	// Marks. Only the bits in ourBits count. mwan3 (0x3f00), pbr (0xff0000) and openNDS
	// (0x30000) use other bits, which may change.
	ourBits    = 0xff0000ff
	sentAgain  = 0x62000071 // SYNs on their way to the listener
	toSocket   = 0x62000072 // packets that a separate route delivers to transparent sockets
	AnswerMark = 0x62000073 // transparent UDP sockets that are connected to their clients, and their packets
	ClientMark = 0x62000074 // packets from the listener and its connections
	takenMark  = 0x62000075 // conntrack mark of connections taken by TPROXY

	// FirewallMark is toSocket in the syntax of /etc/config/firewall, for packets that the
	// firewall must accept.
	FirewallMark = "0x62000072/0xff0000ff"

	// The preferences are below mwan3's (1001 and up), and below all others if others are smaller. The table numbers are
	// within the range of busybox's ip (up to 1023).
	routeTable  = 191
	clientTable = 192 // routes to bridged clients
	rulePref    = 91
	clientPref  = 92
)

// A rule is a rule of a chain. text is the rule in nft's syntax, for display.
type rule struct {
	chain string
	text  string
	exprs []expression
}

// A term is a part of a rule.
type term struct {
	words string
	exprs []expression
}

func joined(chain string, terms ...term) rule {
	r := rule{chain: chain}
	var words []string
	for _, t := range terms {
		words = append(words, t.words)
		r.exprs = append(r.exprs, t.exprs...)
	}
	r.text = strings.Join(words, " ")
	return r
}

func meta(key uint32, words string, data []byte) term {
	return term{words, []expression{loadMeta(key), compare(unix.NFT_CMP_EQ, data)}}
}

func device(key uint32, word, name string) term {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return meta(key, fmt.Sprintf("%s %q", word, name), b)
}

func iif(name string) term { return device(unix.NFT_META_IIFNAME, "iifname", name) }
func oif(name string) term { return device(unix.NFT_META_OIFNAME, "oifname", name) }

var (
	tcp = meta(unix.NFT_META_L4PROTO, "meta l4proto tcp", []byte{unix.IPPROTO_TCP})
	udp = meta(unix.NFT_META_L4PROTO, "meta l4proto udp", []byte{unix.IPPROTO_UDP})
)

func version(addr netip.Addr) term {
	if addr.Is4() {
		return meta(unix.NFT_META_NFPROTO, "meta nfproto ipv4", []byte{unix.NFPROTO_IPV4})
	}
	return meta(unix.NFT_META_NFPROTO, "meta nfproto ipv6", []byte{unix.NFPROTO_IPV6})
}

func mark(value uint32) term {
	return term{fmt.Sprintf("meta mark & 0x%x == 0x%x", uint32(ourBits), value), []expression{
		loadMeta(unix.NFT_META_MARK), masked(native(ourBits), native(0)), compare(unix.NFT_CMP_EQ, native(value)),
	}}
}

func setMark(value uint32) term {
	return term{fmt.Sprintf("meta mark set meta mark & 0x%08x | 0x%x", ^uint32(ourBits), value), []expression{
		loadMeta(unix.NFT_META_MARK), masked(native(^uint32(ourBits)), native(value)), storeMeta(unix.NFT_META_MARK),
	}}
}

// taken matches packets of connections that take has marked. Matching the socket is not
// enough: while it is in TIME-WAIT, its client may reuse the port for a connection that is
// forwarded.
var (
	taken = term{fmt.Sprintf("ct mark & 0x%x == 0x%x", uint32(ourBits), takenMark), []expression{
		loadConn(unix.NFT_CT_MARK), masked(native(ourBits), native(0)), compare(unix.NFT_CMP_EQ, native(takenMark)),
	}}
	take = term{fmt.Sprintf("ct mark set ct mark & 0x%08x | 0x%x", ^uint32(ourBits), takenMark), []expression{
		loadConn(unix.NFT_CT_MARK), masked(native(^uint32(ourBits)), native(takenMark)), storeConnMark(),
	}}
)

// native returns a number in the byte order of the kernel's marks and states.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// to matches the IP version and the destination address of a packet.
func to(p netip.Prefix) term {
	t := destination(p)
	t.exprs = append(version(p.Addr()).exprs, t.exprs...)
	return t
}

// destination matches the destination address of a packet of the prefix's IP version.
func destination(p netip.Prefix) term {
	offset, size, word := uint32(16), 4, "ip"
	if p.Addr().Is6() {
		offset, size, word = 24, 16, "ip6"
	}
	exprs := []expression{loadPayload(unix.NFT_PAYLOAD_NETWORK_HEADER, offset, uint32(size))}
	if p.Bits() < p.Addr().BitLen() {
		mask := make([]byte, size)
		for i := range p.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		exprs = append(exprs, masked(mask, make([]byte, size)))
	}
	return term{fmt.Sprintf("%s daddr %s", word, p.Masked()), append(exprs, compare(unix.NFT_CMP_EQ, p.Masked().Addr().AsSlice()))}
}

// dport matches the destination port, which is at the same offset in TCP and UDP.
func dport(name string, p Ports) term {
	return term{fmt.Sprintf("%s dport %s", name, p), []expression{
		loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
		compare(unix.NFT_CMP_GTE, binary.BigEndian.AppendUint16(nil, p.First)),
		compare(unix.NFT_CMP_LTE, binary.BigEndian.AppendUint16(nil, p.Last)),
	}}
}

// flags compares the TCP flags (RFC 9293, section 3.1) in mask with value.
func flags(words string, mask, value byte, op uint32) term {
	return term{words, []expression{
		loadPayload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1), masked([]byte{mask}, []byte{0}), compare(op, []byte{value}),
	}}
}

const fin, syn, rst, ack = 1, 2, 4, 16

var (
	isSYN  = flags("tcp flags & (fin | syn | rst | ack) == syn", fin|syn|rst|ack, syn, unix.NFT_CMP_EQ)
	notSYN = flags("tcp flags & (syn | ack) != syn", syn|ack, syn, unix.NFT_CMP_NEQ)
)

// untrackable matches packets that other rules exempt from conntrack (NF_CT_STATE_UNTRACKED_BIT): neither NAT nor TPROXY
// could deliver the rest of their connection.
var untrackable = term{"ct state untracked", []expression{
	loadConn(unix.NFT_CT_STATE), masked(native(1<<6), native(0)), compare(unix.NFT_CMP_NEQ, native(0)),
}}

// zoned matches packets to which other rules give a conntrack zone. Conntrack does not find there what NAT or TPROXY has noted without one.
var zoned = term{"ct zone != 0", []expression{loadConn(unix.NFT_CT_ZONE), compare(unix.NFT_CMP_NEQ, []byte{0, 0})}}

// known matches connections whose first packet has passed (IPS_CONFIRMED), and those that other rules have translated
// (IPS_DST_NAT). It also matches those whose protocol the kernel reads, such as FTP, because other rules say so (IPS_HELPER),
// and those that such a protocol has announced (IPS_EXPECTED): they come from the same address, and go to the right one.
var known = term{"ct status & (expected | confirmed | dnat | 0x2000) != 0", []expression{
	loadConn(unix.NFT_CT_STATUS), masked(native(1<<0|1<<3|1<<5|1<<13), native(0)), compare(unix.NFT_CMP_NEQ, native(0)),
}}

var (
	transparent = term{"socket transparent 1", []expression{loadSocket(0), compare(unix.NFT_CMP_EQ, []byte{1})}}
	answering   = term{fmt.Sprintf("socket mark 0x%x", AnswerMark), []expression{loadSocket(1), compare(unix.NFT_CMP_EQ, native(AnswerMark))}}
	notrack     = term{"notrack", []expression{{name: "notrack"}}}
	accept      = term{"accept", []expression{decide(verdictAccept, "")}}
	drop        = term{"drop", []expression{decide(verdictDrop, "")}}
	pass        = term{"return", []expression{decide(unix.NFT_RETURN, "")}}
)

func jump(chain string) term {
	return term{"goto " + chain, []expression{decide(unix.NFT_GOTO, chain)}}
}

// toQueue sends packets to queueNumber, or lets them pass if no process reads it. Some kernels
// support this only with the xtables target (byTarget).
func toQueue(byTarget bool) term {
	t := term{words: fmt.Sprintf("queue flags bypass to %d", queueNumber)}
	if !byTarget {
		t.exprs = []expression{{"queue", []netlink.Attribute{
			short(unix.NFTA_QUEUE_NUM, queueNumber), short(unix.NFTA_QUEUE_TOTAL, 1), short(unix.NFTA_QUEUE_FLAGS, unix.NFT_QUEUE_FLAG_BYPASS),
		}}}
		return t
	}
	// struct xt_NFQ_info_v3 of include/uapi/linux/netfilter/xt_NFQUEUE.h, aligned
	info := make([]byte, 8)
	binary.NativeEndian.PutUint16(info[0:], queueNumber)
	binary.NativeEndian.PutUint16(info[2:], 1)
	binary.NativeEndian.PutUint16(info[4:], 1) // NFQ_FLAG_BYPASS
	t.exprs = []expression{{"target", []netlink.Attribute{
		text(unix.NFTA_TARGET_NAME, "NFQUEUE"), num(unix.NFTA_TARGET_REV, 3), attr(unix.NFTA_TARGET_INFO, info),
	}}}
	return t
}

// dnat translates to addr and port.
func dnat(addr netip.Addr, port int) term {
	family, word := uint32(unix.NFPROTO_IPV4), "ip"
	if addr.Is6() {
		family, word = unix.NFPROTO_IPV6, "ip6"
	}
	return term{fmt.Sprintf("dnat %s to %s", word, netip.AddrPortFrom(addr, uint16(port))), []expression{
		immediate(reg1, addr.AsSlice()),
		immediate(reg2, binary.BigEndian.AppendUint16(nil, uint16(port))),
		{"nat", []netlink.Attribute{
			num(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT), num(unix.NFTA_NAT_FAMILY, family),
			num(unix.NFTA_NAT_REG_ADDR_MIN, reg1), num(unix.NFTA_NAT_REG_PROTO_MIN, reg2),
		}},
	}}
}

// tproxy delivers packets to a listener (NFTA_TPROXY_FAMILY, NFTA_TPROXY_REG_PORT).
func tproxy(port int) term {
	return term{fmt.Sprintf("tproxy to :%d", port), []expression{
		immediate(reg1, binary.BigEndian.AppendUint16(nil, uint16(port))),
		{"tproxy", []netlink.Attribute{num(1, unix.NFPROTO_UNSPEC), num(3, reg1)}},
	}}
}

// A chain is a base chain, or a chain that rules jump to.
type chain struct {
	name string
	text string // base chains only
	kind string // "": not a base chain
	hook uint32
	prio int32
}

func base(name string, kind, hookName string, hook uint32, prio int32) chain {
	return chain{name, fmt.Sprintf("type %s hook %s priority %d; policy accept;", kind, hookName, prio), kind, hook, prio}
}

// The priorities. forwarded comes after all filters of others, and before srcnat (100), so that
// it sees the client's address. again is at dstnat. untracked and answers are at raw, before
// conntrack. sockets is just after mangle, so that an operator's own rules come first.
var (
	forwarded = base("forwarded", "filter", "postrouting", unix.NF_INET_POST_ROUTING, 99)
	uplink    = chain{name: "uplink"}
	leaving   = chain{name: "leaving"}
	again     = base("again", "nat", "output", unix.NF_INET_LOCAL_OUT, -100)
	untracked = base("untracked", "filter", "prerouting", unix.NF_INET_PRE_ROUTING, -300)
	answers   = base("answers", "filter", "output", unix.NF_INET_LOCAL_OUT, -300)
	sockets   = base("sockets", "filter", "prerouting", unix.NF_INET_PRE_ROUTING, -145)
)

// chains returns all chains of the table.
func (r *Rules) chains() []chain {
	all := []chain{leaving, uplink, forwarded}
	if r.Mode == Redirect {
		all = append(all, again)
	}
	if r.routes() {
		all = append(all, sockets)
	}
	if len(r.Flows) > 0 {
		all = append(all, untracked, answers)
	}
	return all
}

// routes reports whether packets must be routed to sockets of this process.
func (r *Rules) routes() bool { return r.transparent() || r.Bridged }

// transparent reports whether sockets of this process stand in for targets.
func (r *Rules) transparent() bool { return r.Mode == TProxy || len(r.Flows) > 0 }

// marks returns the marks of packets that are routed to sockets of this process.
func (r *Rules) marks() (marks []uint32) {
	if r.Mode == TProxy {
		marks = append(marks, sentAgain)
	}
	if r.routes() {
		marks = append(marks, toSocket)
	}
	return marks
}

// rules returns the rules of the table, in order.
func (r *Rules) rules(byTarget, zones bool) (rules []rule) {
	add := func(c chain, terms ...term) { rules = append(rules, joined(c.name, terms...)) }
	if r.transparent() {
		// Another routing rule came first, until Precede. The target does not know what is carried, and would reset it.
		add(forwarded, mark(toSocket), drop)
	}
	if r.TCP || len(r.UDP) > 0 {
		for _, name := range r.Clients {
			add(forwarded, iif(name), jump(uplink.name))
		}
	}
	for _, name := range r.Uplinks {
		// A packet that arrives and leaves by the same device is between its clients.
		for _, client := range r.Clients {
			if client == name {
				add(uplink, iif(name), oif(name), pass)
			}
		}
		add(uplink, oif(name), jump(leaving.name))
	}
	add(leaving, untrackable, pass)
	add(leaving, known, pass)
	if zones {
		add(leaving, zoned, pass)
	}
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
	return append(rules, r.delivery()...)
}

// delivery returns the rules that deliver what is taken to sockets of this process.
func (r *Rules) delivery() (rules []rule) {
	add := func(c chain, terms ...term) { rules = append(rules, joined(c.name, terms...)) }
	if r.Mode == Redirect {
		if r.Bridged { // a connection goes on without the address to which it is translated, of which its client knows nothing
			add(again, mark(sentAgain), take)
			add(sockets, taken, setMark(toSocket), accept)
		}
		for i, addr := range r.Node {
			if !slices.ContainsFunc(r.Node[:i], func(a netip.Addr) bool { return a.Is4() == addr.Is4() }) {
				add(again, version(addr), tcp, mark(sentAgain), dnat(addr, r.Port))
			}
		}
	}
	if r.Mode == TProxy {
		add(sockets, iif("lo"), mark(sentAgain), tcp, take, tproxy(r.Port), accept)
		// By any device: its client may no longer be one of r.Clients, and the target would reset what it does not know. Also ICMP about it, and
		// a SYN that its client repeats: the target would answer it, too.
		add(sockets, taken, transparent, setMark(toSocket), accept)
	}
	// Datagrams of a taken UDP flow are not tracked. So if the flow ends, the next datagram
	// begins a new flow for the node's firewall and NAT, which forward it. Nor is ICMP about them, which
	// tells the flow's socket that its client has closed the port.
	if len(r.Flows) > 0 {
		for _, name := range r.Flows {
			add(untracked, iif(name), notTCP, answering, notrack)
			add(sockets, iif(name), notTCP, answering, setMark(toSocket), accept)
		}
		add(answers, mark(AnswerMark), notrack)
	}
	return rules
}

// versions returns a term for each IP version whose TCP can be delivered.
func (r *Rules) versions() (versions []term) {
	for _, addr := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if r.delivers(addr) {
			versions = append(versions, version(addr))
		}
	}
	return versions
}

// delivers reports whether TCP of the address's IP version can be delivered.
func (r *Rules) delivers(addr netip.Addr) bool {
	return r.Mode == TProxy || slices.ContainsFunc(r.Node, func(a netip.Addr) bool { return a.Is4() == addr.Is4() })
}

// String returns the tables as nft would list them, and the commands for the routing rules.
func (r *Rules) String() string {
	var b strings.Builder
	list := func(family, maps string, chains []chain, rules []rule) {
		fmt.Fprintf(&b, "table %s %s {\n\tflags owner\n%s", family, tableName, maps)
		for _, c := range chains {
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
	}
	list("inet", "", r.chains(), r.rules(false, true))
	if r.Bridged {
		maps := ""
		for _, n := range notes {
			maps += fmt.Sprintf("\tmap %s {\n\t\ttypeof %s : ether daddr\n\t\tsize %d\n\t\tflags dynamic,timeout\n\t\ttimeout %dm\n\t}\n",
				n.name, n.words(), maxNoted, int(synTimeout.Minutes()))
		}
		list("bridge", maps, bridgeChains, r.bridgeRules(false))
		for _, value := range clientMarks {
			fmt.Fprintf(&b, "ip rule add pref %d fwmark 0x%x/0x%x table %d\n", clientPref, value, uint32(ourBits), clientTable)
		}
		fmt.Fprintf(&b, "# and in table %d a route to each bridged client to which the node has none\n", clientTable)
	}
	for _, value := range r.marks() {
		fmt.Fprintf(&b, "ip rule add pref %d fwmark 0x%x/0x%x table %d\n", rulePref, value, uint32(ourBits), routeTable)
	}
	if r.routes() {
		fmt.Fprintf(&b, "ip route add local default dev lo table %d\n", routeTable)
	}
	return b.String()
}
