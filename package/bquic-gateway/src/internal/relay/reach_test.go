// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
)

// silence is how long a test waits to conclude that no answer comes.
const silence = 3 * time.Second

// A reach is one attempt of a client to reach a target.
type reach struct {
	name    string
	client  string // namespace
	from    string // address of the client
	network string // tcp or udp
	target  string
}

// fence sets up everything on the node that keeps clients from targets: a firewall, a
// guest network with a captive portal, routes. The phone is on the LAN. All hosts answer
// with their names. The origin has the addresses of all targets, so a client that is
// carried past a fence would receive an answer.
func fence(m *mesh) []reach {
	t := m.t
	for _, name := range []string{"guest", "vpn"} {
		m.ns[name] = strings.TrimSuffix(m.ns["node"], "node") + name
		m.ip("", "netns add "+m.ns[name])
		t.Cleanup(func() { exec.Command("ip", "netns", "del", m.ns[name]).Run() })
		m.ip(name, "link set lo up")
	}
	m.link("guest", "eth0", "10.79.0.2/24 10.79.0.3/24 fd79::2/64 fd79::3/64 198.51.101.10/24 2001:db8:b::10/64",
		"node", "guest0", "10.79.0.1/24 fd79::1/64 198.51.101.1/24 2001:db8:b::1/64")
	m.link("vpn", "eth0", "10.80.0.2/24 fd80::2/64", "node", "vpn0", "10.80.0.1/24 fd80::1/64")
	m.ip("guest", "route add default via 10.79.0.1", "-6 route add default via fd79::1")
	m.ip("vpn", "route add default via 10.80.0.1", "-6 route add default via fd80::1")
	m.ip("phone", "addr add 198.51.100.10/24 dev lan", "-6 addr add 2001:db8:a::10/64 dev lan nodad")
	m.ip("node", "addr add 198.51.100.1/24 dev br-lan", "-6 addr add 2001:db8:a::1/64 dev br-lan nodad")
	m.ip("gateway", "route add 10.79.0.0/24 via "+node4, "-6 route add fd79::/64 via "+node6,
		"route add 198.51.100.0/23 via "+node4, "-6 route add 2001:db8:a::/47 via "+node6)

	// 3: blocked by address; 4: blackhole; 5: through the VPN; 6: unreachable; 7:
	// prohibited; 8: through the VPN for one client; 9: the node forwards one of its ports.
	for _, n := range []int{3, 4, 5, 6, 7, 8, 9} {
		m.ip("origin", fmt.Sprintf("addr add 203.0.113.%d/24 dev eth0", n), fmt.Sprintf("-6 addr add 2001:db8:77::%d/64 dev eth0 nodad", n))
	}
	m.ip("origin", "addr add 198.51.100.10/32 dev lo", "-6 addr add 2001:db8:a::10/128 dev lo nodad",
		"addr add 198.51.101.10/32 dev lo", "-6 addr add 2001:db8:b::10/128 dev lo nodad")
	for _, n := range []int{5, 8} {
		m.ip("vpn", fmt.Sprintf("addr add 203.0.113.%d/32 dev lo", n), fmt.Sprintf("-6 addr add 2001:db8:77::%d/128 dev lo nodad", n))
	}
	m.ip("node",
		"route add blackhole 203.0.113.4", "-6 route add blackhole 2001:db8:77::4",
		"route add 203.0.113.5 via 10.80.0.2", "-6 route add 2001:db8:77::5 via fd80::2",
		"route add unreachable 203.0.113.6", "-6 route add unreachable 2001:db8:77::6",
		"route add prohibit 203.0.113.7", "-6 route add prohibit 2001:db8:77::7",
		"route add 203.0.113.8 via 10.80.0.2 table 77", "-6 route add 2001:db8:77::8 via fd80::2 table 77",
		"rule add from 10.79.0.2 table 77", "-6 rule add from fd79::2 table 77")
	// A short version of the rules of fw4 and openNDS. openNDS marks clients that have logged
	// in. It redirects port 80 of all others to its page, and refuses their other traffic.
	ruleset := `
table inet fw {
	chain logins { type filter hook prerouting priority mangle;
		ip saddr { 10.79.0.2, 198.51.101.10 } meta mark set meta mark | 0x30000
		ip6 saddr { fd79::2, 2001:db8:b::10 } meta mark set meta mark | 0x30000
	}
	chain portal { type nat hook prerouting priority dstnat;
		iifname guest0 meta mark & 0x30000 != 0x30000 tcp dport 80 redirect to :2050
		ip daddr 203.0.113.9 tcp dport 80 dnat ip to 198.51.101.10:80
		ip6 daddr 2001:db8:77::9 tcp dport 80 dnat ip6 to [2001:db8:b::10]:80
	}
	chain input { type filter hook input priority 0; policy drop;
		ct state established,related accept
		iifname { lo, mesh, vpn0, br-lan } accept
		meta l4proto { icmp, ipv6-icmp } accept
		iifname guest0 tcp dport 2050 accept
		meta mark & 0xff0000ff == 0x62000072 accept
	}
	chain forward { type filter hook forward priority 0; policy drop;
		ct state established,related accept
		iifname guest0 meta mark & 0x30000 != 0x30000 reject
		tcp dport 25 drop
		udp dport 5025 reject
		ip daddr 203.0.113.3 drop
		ip6 daddr 2001:db8:77::3 reject
		iifname guest0 oifname br-lan drop
		iifname { br-lan, guest0 } accept
		ct status dnat accept
		iifname { mesh, vpn0 } accept
	}
	chain final { type filter hook postrouting priority -10; policy accept;
		tcp dport 26 drop
	}
}`
	cmd := exec.Command("ip", "netns", "exec", m.ns["node"], "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for host, ports := range map[string][]int{"origin": {80, 25, 26, 5000, 5025}, "vpn": {80, 5000}, "guest": {80, 5000}, "phone": {80, 5000}, "node": {80, 2050, 5000}, "gateway": {80, 5000}} {
		for _, port := range ports {
			m.named(host, port)
		}
	}

	var all []reach
	client := func(name, client, v4, v6 string, targets ...[3]string) { // name, IPv4, IPv6
		for _, target := range targets {
			for i, network := range []string{"tcp", "udp"} {
				port, special, isSpecial := []int{80, 5000}[i], 0, false
				if _, err := fmt.Sscanf(target[0], "port %d", &special); err == nil {
					isSpecial = true
					port = special
				}
				if isSpecial && (port >= 5000) != (network == "udp") {
					continue
				}
				for j, from := range []string{v4, v6} {
					if target[1+j] == "" {
						continue
					}
					all = append(all, reach{
						fmt.Sprintf("%s to %s, %s of IPv%d", name, target[0], network, 4+2*j),
						client, from, network, net.JoinHostPort(target[1+j], fmt.Sprint(port)),
					})
				}
			}
		}
	}
	world := [][3]string{
		{"the world", origin4, origin6},
		{"port 25", origin4, origin6},
		{"port 26", origin4, origin6},
		{"port 5025", origin4, origin6},
		{"a blocked address", "203.0.113.3", "2001:db8:77::3"},
		{"a blackhole", "203.0.113.4", "2001:db8:77::4"},
		{"a prefix of the VPN", "203.0.113.5", "2001:db8:77::5"},
		{"an unreachable route", "203.0.113.6", "2001:db8:77::6"},
		{"a prohibited route", "203.0.113.7", "2001:db8:77::7"},
		{"what is the VPN's for one client", "203.0.113.8", "2001:db8:77::8"},
		{"a forwarded port", "203.0.113.9", "2001:db8:77::9"},
	}
	own := [][3]string{
		{"the node on the LAN", "10.77.0.1", "fd77::1"},
		{"the node on the LAN, global", "198.51.100.1", "2001:db8:a::1"},
		{"the node on the mesh", node4, node6},
		{"the LAN's broadcast", "198.51.100.255", ""},
		{"the LAN's old broadcast", "198.51.100.0", ""},
		{"the LAN's anycast", "", "2001:db8:a::"},
		{"the guests' broadcast", "198.51.101.255", ""},
		{"the guests' anycast", "", "2001:db8:b::"},
		{"the gateway", gateway4, gateway6},
		{"the gateway's far side", exit4, exit6},
		{"the far side's broadcast", "203.0.113.255", ""},
		{"the far side's anycast", "", "2001:db8:77::"},
		{"everybody", "255.255.255.255", "ff02::1%lan"},
		{"nobody", "0.0.0.0", "::"},
		{"a mapped address", "", "::ffff:203.0.113.2"},
	}
	client("LAN", "phone", "10.77.0.2", "fd77::2", slices.Concat(world, own)...)
	client("LAN", "phone", "10.77.0.2", "fd77::2", [3]string{"a guest", "198.51.101.10", "2001:db8:b::10"})
	client("guest", "guest", "10.79.0.2", "fd79::2", world...)
	client("guest", "guest", "10.79.0.2", "fd79::2", own[:8]...)
	client("guest", "guest", "10.79.0.2", "fd79::2", [3]string{"the LAN", "198.51.100.10", "2001:db8:a::10"})
	client("guest before login", "guest", "10.79.0.3", "fd79::3", world...)
	client("guest before login", "guest", "10.79.0.3", "fd79::3", [3]string{"the LAN", "198.51.100.10", "2001:db8:a::10"})
	return all
}

// named answers TCP and UDP on a port with the host's name.
func (m *mesh) named(host string, port int) {
	m.t.Helper()
	address := fmt.Sprintf(":%d", port)
	var l net.Listener
	var datagrams []net.PacketConn
	if err := m.in(host, func() (err error) {
		if l, err = net.Listen("tcp", address); err != nil {
			return err
		}
		// One socket for each address, to answer from it, and one for broadcasts.
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return err
		}
		hosts := []string{""}
		for _, a := range addrs {
			if ip := a.(*net.IPNet).IP; ip.IsGlobalUnicast() {
				hosts = append(hosts, ip.String())
			}
		}
		for _, host := range hosts {
			lc := net.ListenConfig{Control: reused}
			c, err := lc.ListenPacket(m.t.Context(), "udp", net.JoinHostPort(host, fmt.Sprint(port)))
			if err != nil {
				return err
			}
			datagrams = append(datagrams, c)
		}
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.WriteString(conn, host)
				conn.Close()
			}()
		}
	}()
	for _, c := range datagrams {
		m.t.Cleanup(func() { c.Close() })
		go func() {
			for b := make([]byte, 100); ; {
				_, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = c.WriteTo([]byte(host), from)
			}
		}()
	}
}

// try returns the name of the host that answers, or "" if none does within wait, which is
// at least silence.
func (m *mesh) try(r reach, wait time.Duration) string {
	deadline := time.Now().Add(wait)
	var local net.Addr
	from := net.ParseIP(r.from)
	if strings.HasPrefix(netip.MustParseAddrPort(r.target).Addr().String(), "ff") {
		from = nil
	}
	if local = (&net.TCPAddr{IP: from}); r.network == "udp" {
		local = &net.UDPAddr{IP: from}
	}
	var conn net.Conn
	err := m.in(r.client, func() (err error) {
		d := net.Dialer{Deadline: deadline, LocalAddr: local, Control: broadcasts}
		conn, err = d.Dial(r.network, r.target)
		return err
	})
	if err != nil {
		return ""
	}
	defer conn.Close()
	answer := make([]byte, 100)
	if r.network == "tcp" {
		_ = conn.SetReadDeadline(deadline)
		n, _ := io.ReadFull(conn, answer)
		return string(answer[:n])
	}
	for time.Now().Before(deadline) {
		_, _ = conn.Write([]byte("?"))
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if n, err := conn.Read(answer); err == nil {
			return string(answer[:n])
		}
	}
	return ""
}

func reused(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
}

func broadcasts(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_BROADCAST, 1)
	})
}

// tryAll makes all attempts concurrently. It waits longer if an answer is expected.
func (m *mesh) tryAll(all []reach, expected map[string]string) map[string]string {
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := make(map[string]string)
	slots := make(chan struct{}, 40) // each dial needs a thread
	for _, r := range all {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			wait := silence
			if expected[r.name] != "" {
				wait = patience
			}
			answer := m.try(r, wait)
			mu.Lock()
			defer mu.Unlock()
			got[r.name] = answer
		})
	}
	wg.Wait()
	return got
}

// TestReach makes all attempts without a relay and with one, carried and direct. The same
// targets must be reachable in every case.
func TestReach(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	all := fence(m)
	without := m.tryAll(all, nil)
	again := m.tryAll(all, without) // slow state is there now, such as neighbour entries
	reachable := 0
	for name, answer := range again {
		if without[name] = answer; answer != "" {
			reachable++
		}
	}
	if reachable < 20 || len(all)-reachable < 40 {
		t.Errorf("of %d cases %d are reachable: too few of one kind", len(all), reachable)
	}
	for _, name := range []string{
		"LAN to the world, tcp of IPv4", "LAN to the world, udp of IPv6", "guest to the world, tcp of IPv6",
		"LAN to a guest, tcp of IPv4", "LAN to a forwarded port, tcp of IPv4", "guest to a prefix of the VPN, udp of IPv4",
	} {
		if without[name] == "" {
			t.Errorf("%s does not work without a relay either", name)
		}
	}

	with := func(name, mode string, used func(figures) bool, gateway ...string) {
		t.Run(name, func(t *testing.T) {
			g := m.startGatewayAt(443, gateway...)
			defer g.signal(syscall.SIGKILL)
			c := m.config(mode)
			c.Interfaces = []string{"br-lan", "guest0"}
			c.UDPPorts = []divert.Ports{{First: 5000, Last: 5999}}
			c.Limit = 1000
			node := m.startRelay(c)
			defer node.signal(syscall.SIGKILL) // SIGTERM would wait for connections without an answer
			for name, answer := range m.tryAll(all, without) {
				if answer != without[name] {
					t.Errorf("%s: %q with the relay, %q without", name, answer, without[name])
				}
			}
			if f := node.figures(); !used(f) {
				t.Errorf("the relay was not used in this way: %+v", f.Relay)
			}
		})
	}
	carried := func(f figures) bool { return f.Relay.Carried.Total >= 4 && f.Relay.UDP.Total >= 4 }
	direct := func(f figures) bool { return f.Relay.Direct.Total >= 4 && f.Relay.Carried.Total == 0 }
	with("carried", divert.Redirect, carried)
	with("carried by TPROXY", divert.TProxy, carried)
	with("refused", divert.Redirect, direct, "\tlist connect_to '192.0.2.0/24'")
	// The gateway itself has no IPv6 route to the origin, but forwards as before.
	m.ip("gateway", "-6 rule add pref 10 iif lo to 2001:db8:77::/64 table 78", "-6 route add unreachable default table 78")
	with("gateway without IPv6", divert.Redirect, func(f figures) bool { return f.Relay.Carried.Total >= 2 && f.Relay.Direct.Total >= 2 })
}

// TestGatewayAmongClients has a gateway that is at a port for clients of a node with a relay, as when all nodes of a mesh have the same
// configuration. What the gateway connects to itself goes its way: the relay would bring it back to the gateway, again and again.
func TestGatewayAmongClients(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newNamespaces(t, "phone", "node", "gateway", "exit", "origin")
		m.link("phone", "lan", phone4+"/24 "+phone6+"/64", "node", "br-lan", "10.77.0.1/24 fd77::1/64")
		m.link("gateway", "lan", gateway4+"/24 "+gateway6+"/64", "node", "br-server", node4+"/24 "+node6+"/64")
		m.link("node", "mesh", "10.79.0.1/24 fd79::1/64", "exit", "mesh", "10.79.0.2/24 fd79::2/64")
		m.link("exit", "wan", exit4+"/24 "+exit6+"/64", "origin", "eth0", origin4+"/24 "+origin6+"/64")
		m.ip("phone", "route add default via 10.77.0.1", "-6 route add default via fd77::1")
		m.ip("gateway", "route add default via "+node4, "-6 route add default via "+node6)
		m.ip("node", "route add default via 10.79.0.2", "-6 route add default via fd79::2")
		m.ip("exit", "route add 10.77.0.0/24 via 10.79.0.1", "route add 10.78.0.0/24 via 10.79.0.1",
			"-6 route add fd77::/64 via fd79::1", "-6 route add fd78::/64 via fd79::1")
		m.ip("origin", "route add default via "+exit4, "-6 route add default via "+exit6)
		m.listen(":80", func(conn *net.TCPConn) {
			io.WriteString(conn, conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String())
		})
		m.becomes(phone4, origin4+":80")
		m.becomes(phone6, "["+origin6+"]:80")
		m.startGateway()
		c := m.config(mode) // with the gateway's IPv4 address only
		c.Interfaces = []string{"br-lan", "br-server"}
		c.Limit = 20
		node := m.startRelay(c)
		for target, by := range map[string]string{origin4 + ":80": gateway4, "[" + origin6 + "]:80": gateway6} {
			before := node.figures().Relay.Carried.Total
			from, err := io.ReadAll(m.carry(node, target))
			if carried := node.figures().Relay.Carried.Total - before; string(from) != by || err != nil || carried != 1 {
				t.Errorf("a connection to %s came from %s (%v), and was carried %d times", target, from, err, carried)
			}
		}
	})
}

// TestNeighbours has a server with a public address on the link of the node's uplink, such as one in the home of the node's operator. Connections to
// it stay there, and so come from the clients' own addresses.
func TestNeighbours(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newNamespaces(t, "phone", "node", "gateway", "origin")
		m.link("phone", "lan", phone4+"/24 "+phone6+"/64", "node", "br-lan", "10.77.0.1/24 fd77::1/64")
		m.bridge("gateway", "mesh")
		m.join("gateway", "mesh", "port0", "node", "mesh", node4+"/24 "+node6+"/64 198.51.100.1/24 2001:db8:78::1/64")
		m.join("gateway", "mesh", "port1", "origin", "home", "198.51.100.3/24 2001:db8:78::3/64")
		m.ip("gateway", "addr add "+gateway4+"/24 dev mesh", "addr add "+gateway6+"/64 dev mesh nodad", "addr add 198.51.100.2/24 dev mesh", "addr add 2001:db8:78::2/64 dev mesh nodad")
		m.link("gateway", "wan", exit4+"/24 "+exit6+"/64", "origin", "eth0", origin4+"/24 "+origin6+"/64")
		m.ip("phone", "route add default via 10.77.0.1", "-6 route add default via fd77::1")
		m.ip("node", "route add default via "+gateway4, "-6 route add default via "+gateway6)
		m.ip("gateway", "route add 10.77.0.0/24 via "+node4, "-6 route add fd77::/64 via "+node6)
		m.ip("origin", "route add default via "+exit4, "-6 route add default via "+exit6, "route add 10.77.0.0/24 via 198.51.100.1", "-6 route add fd77::/64 via 2001:db8:78::1")
		m.greet(":80")
		neighbours := []string{"198.51.100.3:80", "[2001:db8:78::3]:80"}
		for _, neighbour := range neighbours {
			m.becomes("forwarded", neighbour) // without a relay
		}
		m.startGateway()
		m.startRelay(m.config(mode))
		for i, other := range []string{origin4 + ":80", "[" + origin6 + "]:80"} {
			m.becomes("carried", other)
			if way := m.way(neighbours[i]); way != "forwarded" {
				t.Errorf("a connection to the neighbour %s is %q", neighbours[i], way)
			}
		}
	})
}
