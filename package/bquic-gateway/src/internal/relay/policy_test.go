// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// TestRoutingRules has a node with routing rules of its own for its clients. netifd gives the rules of /etc/config/network the
// preferences 1, 2, ..., and removes all rules of others when it starts. What is carried continues.
func TestRoutingRules(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.greetUDP(5000)
		m.startGateway()
		c := m.config(mode)
		c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
		node := m.startRelay(c)
		var all []*echoed
		var flows []net.Conn
		for _, host := range []string{origin4, "[" + origin6 + "]"} {
			all = append(all, m.echo(node, host+":81"))
			flows = append(flows, m.carryUDP(node, host+":5000"))
		}
		works := func(when string) {
			t.Helper()
			for i := range all {
				all[i].says(when)
				if way := m.ask(flows[i], when); way != "carried" {
					t.Errorf("%s: a flow is %s", when, way)
				}
			}
		}
		works("before")
		m.ip("node", "route add default via "+gateway4+" table 100", "rule add pref 1 iif br-lan table 100",
			"-6 route add default via "+gateway6+" table 100", "-6 rule add pref 1 iif br-lan table 100")
		works("with a rule that comes first")
		m.becomes("carried", origin4+":80")
		m.becomes("carried", "["+origin6+"]:80")
		m.ip("node", "link set lo down", "link set lo up", "rule flush", "rule add pref 32766 table main",
			"-6 rule flush", "-6 rule add pref 32766 table main")
		m.run("node", "sh", "-c", "for v in -4 -6; do while ip $v rule del table 191; do :; done 2>/dev/null; done")
		works("after all rules were removed")
	})
}

// TestClientsRoutes has a node whose routing rules send clients another way than its own connections, which go to the Internet
// by its own line. The relay, whose gateway refuses the target, leaves alone what it could not make itself in the clients' way.
func TestClientsRoutes(t *testing.T) {
	for _, tc := range []struct{ name, rule, way string }{
		{"device", "iif br-lan", "forwarded"},
		{"address", "from FROM", "forwarded"},
		{"mark", "fwmark 0x10000/0xff0000", "direct"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachMode(t, func(t *testing.T, mode string) {
				t.Parallel()
				m := newMesh(t)
				m.greet(":80")
				m.ownLine(tc.rule)
				m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'")
				node := m.startRelay(m.config(mode))
				for _, target := range []string{origin4 + ":80", "[" + origin6 + "]:80"} {
					if way := m.way(target); way != tc.way {
						t.Errorf("a connection to %s is %s, not %s", target, way, tc.way)
					}
				}
				if f := node.figures(); f.Relay.Carried.Total != 0 || (f.Relay.Direct.Total != 0) != (tc.way == "direct") {
					t.Errorf("carried %d, direct %d", f.Relay.Carried.Total, f.Relay.Direct.Total)
				}
			})
		})
	}
}

// TestClientsRoutesUDP is like TestClientsRoutes, with flows of UDP and a gateway that refuses nothing.
func TestClientsRoutesUDP(t *testing.T) {
	for _, tc := range []struct{ name, rule, way string }{
		{"device", "iif br-lan", "forwarded"},
		{"address", "from FROM", "forwarded"},
		{"mark", "fwmark 0x10000/0xff0000", "carried"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.greetUDP(5000)
			m.ownLine(tc.rule)
			m.startGateway()
			c := m.config(divert.Redirect)
			c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
			node := m.startRelay(c)
			for _, host := range []string{origin4, "[" + origin6 + "]"} {
				if way, _ := m.askBy(node, host+":5000", "hello"); way != tc.way {
					t.Errorf("a flow to %s is %s, not %s", host, way, tc.way)
				}
			}
		})
	}
}

// ownLine gives the node a line of its own to the origin, and a rule by which its clients go on by the mesh.
func (m *mesh) ownLine(rule string) {
	m.t.Helper()
	m.link("node", "wan", "10.79.0.1/24 fd79::1/64", "origin", "wan", "10.79.0.2/24 fd79::2/64")
	for _, v := range [][3]string{{"", gateway4, phone4}, {"-6 ", gateway6, phone6}} {
		m.ip("node", v[0]+"route add default via "+v[1]+" table 100", v[0]+"rule add pref 1000 "+strings.ReplaceAll(rule, "FROM", v[2])+" table 100")
	}
	m.ip("node", "route replace default via 10.79.0.2", "-6 route replace default via fd79::2")
	m.run("node", "nft", `table inet pbr {
		chain marks { type filter hook prerouting priority mangle; iifname "br-lan" meta mark set 0x10000; }
	}`)
}

// TestPortsRoutes has a node whose routing rules send a port another way than all others, by another router on the same link.
func TestPortsRoutes(t *testing.T) {
	for _, tc := range []struct{ name, rule, way string }{
		{"of clients", "iif br-lan ipproto tcp dport 80", "forwarded"},
		{"of all", "ipproto tcp dport 80", "direct"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.greet(":80")
			for _, v := range [][3]string{{"", gateway4, "10.78.0.9"}, {"-6 ", gateway6, "fd78::9"}} {
				m.ip("node", v[0]+"route add default via "+v[1]+" table 100", v[0]+"rule add pref 1000 "+tc.rule+" table 100", v[0]+"route replace default via "+v[2])
			}
			m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
			m.startRelay(m.config(divert.Redirect))
			for _, target := range []string{origin4 + ":80", "[" + origin6 + "]:80"} {
				if way := m.way(target); way != tc.way {
					t.Errorf("a connection to %s is %q, not %s", target, way, tc.way)
				}
			}
		})
	}
}

// TestHelper has a node whose firewall tracks FTP (`ct helper`), as OpenWrt's does with kmod-nf-nathelper: it translates the address
// that a client names, and lets the server's connection to it in.
func TestHelper(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.run("node", "nft", `table inet fw {
			ct helper ftp { type "ftp" protocol tcp; }
			chain helpers { type filter hook prerouting priority 0; iifname "br-lan" tcp dport 21 ct helper set "ftp"; }
			chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; iifname "br-lan" accept; }
			chain srcnat { type nat hook postrouting priority 100; oifname "mesh" masquerade; }
		}`)
		m.listen(":21", func(control *net.TCPConn) {
			var a, b, c, d, p1, p2 byte
			fmt.Fscanf(control, "USER me\r\n")
			fmt.Fprint(control, "331 go on\r\n")
			if _, err := fmt.Fscanf(control, "PORT %d,%d,%d,%d,%d,%d\r\n", &a, &b, &c, &d, &p1, &p2); err != nil {
				return
			}
			err := m.in("origin", func() error {
				data, err := net.DialTimeout("tcp", fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, int(p1)<<8|int(p2)), silence)
				if err == nil {
					data.Close()
				}
				return err
			})
			fmt.Fprint(control, err)
		})
		active := func() string {
			var l net.Listener
			if err := m.in("phone", func() (err error) {
				l, err = net.Listen("tcp4", phone4+":0")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			control, err := m.dial(origin4 + ":21")
			if err != nil {
				return err.Error()
			}
			defer control.Close()
			fmt.Fprint(control, "USER me\r\n") // the kernel looks for commands that follow the end of a line
			fmt.Fscanf(control, "331 go on\r\n")
			port := l.Addr().(*net.TCPAddr).Port
			fmt.Fprintf(control, "PORT %s,%d,%d\r\n", strings.ReplaceAll(phone4, ".", ","), port>>8, port&255)
			said, err := io.ReadAll(control)
			if err != nil {
				return err.Error()
			}
			return string(said)
		}
		if err := active(); err != "<nil>" {
			t.Fatalf("without a relay: %s", err)
		}
		m.startGateway()
		m.startRelay(m.config(mode))
		m.becomes("carried", origin4+":80")
		if err := active(); err != "<nil>" {
			t.Error(err)
		}
	})
}

// TestDSCP has a client that marks its packets, as ssh does. Of a connection that the relay makes directly, they have the same mark.
func TestDSCP(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.run("origin", "nft", `table inet marked {
		counter expedited { }
		counter others { }
		chain in { type filter hook input priority 0; tcp dport 80 ip dscp ef counter name expedited accept; tcp dport 80 ip6 dscp ef counter name expedited accept; tcp dport 80 counter name others; }
	}`)
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
	m.startRelay(m.config(divert.Redirect))
	for network, target := range map[string]string{"tcp4": origin4 + ":80", "tcp6": "[" + origin6 + "]:80"} {
		var conn net.Conn
		if err := m.in("phone", func() (err error) {
			d := net.Dialer{Timeout: patience, Control: func(_, _ string, raw syscall.RawConn) error {
				return raw.Control(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TOS, 0xb8)
					_ = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TCLASS, 0xb8)
				})
			}}
			conn, err = d.Dial(network, target)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if way, err := io.ReadAll(conn); string(way) != "direct" {
			t.Errorf("to %s: %q, %v", target, way, err)
		}
		conn.Close()
	}
	expedited, others := m.run("origin", "nft", "list counter inet marked expedited"), m.run("origin", "nft", "list counter inet marked others")
	if strings.Contains(expedited, "packets 0 ") || !strings.Contains(others, "packets 0 ") {
		t.Errorf("%s%s", expedited, others)
	}
}

// TestSigned has a client whose connection is signed (TCP-MD5), as those of BGP are. Only its two ends know the key.
func TestSigned(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		signed := func(peer string) func(string, string, syscall.RawConn) error {
			return func(_, _ string, raw syscall.RawConn) (err error) {
				sig := unix.TCPMD5Sig{Keylen: 3}
				sig.Addr.Family = unix.AF_INET
				copy(sig.Addr.Data[2:], net.ParseIP(peer).To4())
				copy(sig.Key[:], "key")
				cerr := raw.Control(func(fd uintptr) {
					err = unix.SetsockoptTCPMD5Sig(int(fd), unix.IPPROTO_TCP, unix.TCP_MD5SIG, &sig)
				})
				return errors.Join(cerr, err)
			}
		}
		var l net.Listener
		if err := m.in("origin", func() (err error) {
			lc := net.ListenConfig{Control: signed(phone4)}
			lc.SetMultipathTCP(false)
			l, err = lc.Listen(t.Context(), "tcp4", ":179")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				io.WriteString(conn, wayOf(conn.(*net.TCPConn)))
				conn.Close()
			}
		}()
		m.startGateway()
		m.startRelay(m.config(mode))
		m.becomes("carried", origin4+":80")
		err := m.in("phone", func() error {
			d := net.Dialer{Control: signed(origin4), Timeout: patience}
			d.SetMultipathTCP(false)
			conn, err := d.Dial("tcp4", origin4+":179")
			if err != nil {
				return err
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			if way, err := io.ReadAll(conn); err != nil || string(way) != "forwarded" {
				return fmt.Errorf("it was %s: %w", way, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestPrefixReplaced takes a prefix that the provider has replaced from the node's LAN. Clients with an address of another one
// keep their connections.
func TestPrefixReplaced(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		m.ip("node", "-6 addr add 2001:db8:9::1/64 dev br-lan nodad valid_lft 1000 preferred_lft 1000")
		carried := m.echo(m.startRelay(m.config(mode)), "["+origin6+"]:81")
		carried.says("before")
		m.ip("node", "-6 addr del 2001:db8:9::1/64 dev br-lan")
		carried.says("after")
	})
}

// TestZones has a node whose rules give clients' packets a conntrack zone, as for networks that have the same addresses. The relay
// leaves them alone.
func TestZones(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.greetUDP(5000)
		m.startGateway()
		c := m.config(mode)
		c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
		m.startRelay(c)
		m.becomes("carried", origin4+":80")
		m.run("node", "nft", `table inet zones {
			chain in { type filter hook prerouting priority raw; iifname { "br-lan", "mesh" } ct zone set 7; }
		}`)
		for _, host := range []string{origin4, "[" + origin6 + "]"} {
			if way := m.way(host + ":80"); way != "forwarded" {
				t.Errorf("a connection to %s: %s", host, way)
			}
			if way := m.ask(m.udp(host+":5000"), "hello"); way != "forwarded" {
				t.Errorf("a flow to %s: %s", host, way)
			}
		}
	})
}

// TestMarksAccepted has a node whose accepted connections take the mark of their SYN, as an operator sets for services on several uplinks.
func TestMarksAccepted(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		if err := m.in("node", func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_fwmark_accept", []byte("1"), 0) }); err != nil {
			t.Fatal(err)
		}
		m.startGateway()
		c := m.config(mode)
		c.Bridge = relay.BridgeOff
		node := m.startRelay(c)
		for _, target := range []string{origin4 + ":80", "[" + origin6 + "]:80"} {
			if way := m.wayBy(node, target); way != "carried" {
				t.Errorf("a connection to %s is %s, not carried", target, way)
			}
		}
	})
}

// TestPortal has a node with openNDS, which lets its clients reach nothing of the node but what `users_to_router` names, not even
// with answers; so it must name the relay's port. A client that has not logged in gets nowhere, not even by that port.
func TestPortal(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greet(":443")
	m.run("node", "nft", fmt.Sprintf(`table ip portal {
		set in { type ipv4_addr; }
		chain marks { type filter hook prerouting priority mangle; iifname "br-lan" ip saddr @in meta mark set meta mark | 0x30000; }
		chain outgoing { type nat hook prerouting priority dstnat; iifname "br-lan" meta mark & 0x30000 != 0x30000 tcp dport 80 redirect to :2050; }
		chain router { type filter hook input priority 0; iifname "br-lan" jump ndsRTR; }
		chain ndsRTR { ct state invalid drop; tcp dport { 22, 53, 80, 443, 2050, %d } accept; reject with icmp type port-unreachable; }
		chain internet { type filter hook forward priority 0; iifname "br-lan" jump ndsNET; }
		chain ndsNET { ct state invalid drop; meta mark & 0x30000 == 0x30000 accept; reject with icmp type port-unreachable; }
	}`, relay.DefaultPort))
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	for _, target := range []string{origin4 + ":80", origin4 + ":443", "10.77.0.1:" + fmt.Sprint(relay.DefaultPort)} {
		if way := m.way(target); slices.Contains([]string{"carried", "direct", "forwarded", ""}, way) {
			t.Errorf("before the login, a connection to %s is %q", target, way)
		}
	}
	m.run("node", "nft", "add element ip portal in { "+phone4+" }")
	for _, target := range []string{origin4 + ":80", origin4 + ":443"} {
		if way := m.wayBy(node, target); way != "carried" {
			t.Errorf("after the login, a connection to %s is %s", target, way)
		}
	}
	if f := node.figures(); f.Relay.Carried.Total != 2 || f.Relay.Direct.Total != f.Relay.Late {
		t.Errorf("carried %d, direct %d", f.Relay.Carried.Total, f.Relay.Direct.Total)
	}
}

// TestPortalRefuses is like TestPortal, but the portal, which knows only IPv4, refuses the relay's port. The relay leaves IPv4 alone
// after a few connections, although those of IPv6 arrive.
func TestPortalRefuses(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.run("node", "nft", `table ip portal {
			chain router { type filter hook input priority 0; iifname "br-lan" tcp dport { 22, 53, 2050 } accept; iifname "br-lan" reject; }
		}`)
		m.startGateway()
		node := m.startRelay(m.config(mode))
		m.eventually("IPv4 to be forwarded, while IPv6 is carried", func() bool {
			if way := m.wayBy(node, "["+origin6+"]:80"); way != "carried" {
				t.Errorf("a connection of IPv6 is %s", way)
			}
			return m.try(reach{client: "phone", from: phone4, network: "tcp", target: origin4 + ":80"}, time.Second) == "forwarded" &&
				node.figures().Relay.Unseen != nil
		})
		f := node.await("the relay to say why, and to take what arrives", func(f figures) bool { return f.Relay.Unseen != nil && f.Relay.Taking })
		if f.Relay.Unseen.Why != relay.UnseenMissing {
			t.Errorf("%+v", f.Relay.Unseen)
		}
	})
}

// TestClamped has a node whose rules make the segments of forwarded connections smaller, because a tunnel on the way loses large packets. That
// holds for connections that the relay makes itself, too.
func TestClamped(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	for _, port := range []string{":81", ":82"} {
		m.listen(port, func(conn *net.TCPConn) {
			raw, err := conn.SyscallConn()
			if err != nil {
				return
			}
			_ = raw.Control(func(fd uintptr) {
				if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
					fmt.Fprint(conn, info.Snd_mss)
				}
			})
		})
	}
	m.run("node", "nft", `table inet clamp {
		chain forward { type filter hook forward priority mangle; tcp flags & (syn | rst) == syn tcp option maxseg size set 1200; }
	}`)
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
	c := m.config(divert.Redirect)
	c.ExcludePorts = []divert.Ports{{First: 82, Last: 82}}
	node := m.startRelay(c)
	for _, host := range []string{origin4, "[" + origin6 + "]"} {
		direct, forwarded := m.way(host+":81"), m.way(host+":82")
		if direct != forwarded || !strings.HasPrefix(forwarded, "1") || len(forwarded) != 4 {
			t.Errorf("%s sends segments of %s bytes, and %s if the kernel forwards them", host, direct, forwarded)
		}
	}
	if f := node.figures(); f.Relay.Direct.Total != 2 {
		t.Errorf("%d direct connections, not 2", f.Relay.Direct.Total)
	}
}
