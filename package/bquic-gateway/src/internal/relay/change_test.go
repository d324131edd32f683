// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/relay"
)

// echoed is a carried connection that echoes every byte.
type echoed struct {
	t *testing.T
	*net.TCPConn
}

func (m *mesh) echo(node *process, target string) *echoed {
	m.t.Helper()
	conn := m.carry(node, target)
	return &echoed{m.t, conn}
}

func (e *echoed) says(text string) {
	e.t.Helper()
	if err := errors.Join(sendAll(e.TCPConn, []byte(text)), receiveAll(e.TCPConn, []byte(text))); err != nil {
		e.t.Fatalf("%s: %v", text, err)
	}
}

// resets sends text, and nobody answers: the connection is reset.
func (e *echoed) resets(text string) {
	e.t.Helper()
	if err := errors.Join(sendAll(e.TCPConn, []byte(text)), receiveReset(e.TCPConn)); err != nil {
		e.t.Errorf("%s: %v", text, err)
	}
}

// TestConntrackForgets has a node whose operator has told conntrack to forget idle connections soon, to save memory. Carried ones go on, as without
// a relay.
func TestConntrackForgets(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		m.run("node", "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_timeout_established=4")
		conn := m.echo(m.startRelay(m.config(mode)), origin4+":81")
		conn.says("before")
		time.Sleep(10 * time.Second)
		conn.says("after a pause")
	})
}

func (m *mesh) becomes(way, target string) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		got := m.way(target)
		if got == way {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("a connection to %s is %s, not %s", target, got, way)
		}
	}
}

// TestReload changes a running relay's configuration. Carried connections continue.
func TestReload(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.greet(":82")
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		m.startGatewayAt(444)
		c := m.config(mode)
		node := m.startRelay(c)
		carried := m.echo(node, origin4+":81")
		carried.says("before")
		m.becomes("carried", origin4+":80")

		c.Exclude = []netip.Prefix{netip.MustParsePrefix(origin4 + "/32")}
		node.apply(c)
		m.becomes("forwarded", origin4+":80")
		m.becomes("carried", "["+origin6+"]:80")
		carried.says("with its target excluded")

		c.Exclude, c.ExcludePorts = nil, []divert.Ports{{First: 82, Last: 90}}
		node.apply(c)
		m.becomes("forwarded", origin4+":82")
		m.becomes("carried", origin4+":80")
		carried.says("with other ports excluded")

		// Its device is no longer one of clients'.
		c.ExcludePorts, c.Interfaces = nil, []string{"mesh"}
		node.apply(c)
		m.becomes("forwarded", origin4+":80")
		carried.says("with other interfaces")
		c.Interfaces = []string{"br-lan"}
		node.apply(c)
		m.becomes("carried", origin4+":80")

		// Another gateway: the session with the old one ends with its last connection.
		c.Gateways = relay.InOrder(gateway4 + ":444")
		node.apply(c)
		node.await("a session with the other gateway", func(f figures) bool { return f.Relay.Gateway == gateway4+":444" && f.Relay.Taking })
		m.becomes("carried", origin4+":80")
		carried.says("through the old gateway")

		// An invalid configuration breaks nothing.
		bad := c
		bad.CAFile = "/nowhere"
		node.apply(bad)
		m.becomes("carried", origin4+":80")
		carried.says("after a mistake")
		node.await("one carried connection to be left", func(f figures) bool { return f.Relay.Carried.Now == 1 && f.Relay.State == "up" })
	})
}

// TestNoInterfaces has the node's address come and go in the rules, as when a network starts again. No SYN that arrives then is lost.
func TestNoInterfaces(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.startGateway()
		c := m.config(mode)
		node := m.startRelay(c)
		without := c
		without.Interfaces = nil
		for range 100 {
			for _, next := range []relay.Config{without, c} {
				node.apply(next)
				for range 3 {
					// Where the gateway's answer is late, on a busy machine, a connection goes direct.
					if way := m.way(origin4 + ":80"); !slices.Contains([]string{"carried", "forwarded", "direct"}, way) {
						t.Fatal(way)
					}
				}
			}
		}
	})
}

// TestPinChanged checks that a gateway whose key is no longer pinned receives no new
// connections. Its carried connections continue, and so does a session whose key is
// still pinned.
func TestPinChanged(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	c := m.config(divert.Redirect)
	node := m.startRelay(c)
	carried := m.echo(node, origin4+":81")
	carried.says("before")

	var other cert.Pin
	c.Pins = []cert.Pin{other}
	node.apply(c)
	f := node.await("the gateway to be refused", func(f figures) bool { return f.Relay.State == "away" && f.Relay.Gateways[0].Error != "" })
	if !strings.Contains(f.Relay.Gateways[0].Error, "wrong pin") {
		t.Errorf("gateways %+v", f.Relay.Gateways)
	}
	m.becomes("forwarded", origin4+":80")
	carried.says("in the session from before")

	c.Pins = []cert.Pin{other, m.pin}
	node.apply(c)
	m.becomes("carried", origin4+":80")
	carried.says("as it was")
}

// TestAuthorityChanged checks that a reload reads the authorities of `ca` again: one that is replaced, for example
// because its key was stolen, is no longer trusted.
func TestAuthorityChanged(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	other := t.TempDir()
	if _, _, err := cert.LoadOrCreate(other, []string{"gateway"}); err != nil {
		t.Fatal(err)
	}
	c := m.config(divert.Redirect)
	c.Pins, c.ServerName, c.CAFile = nil, "gateway", filepath.Join(t.TempDir(), "ca.pem")
	trust := func(dir string) {
		t.Helper()
		pem, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
		if err == nil {
			err = os.WriteFile(c.CAFile, pem, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	trust(m.state)
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")

	trust(other)
	node.apply(c)
	f := node.await("the gateway to be refused", func(f figures) bool { return f.Relay.State == "away" && f.Relay.Gateways[0].Error != "" })
	if !strings.Contains(f.Relay.Gateways[0].Error, "unknown authority") {
		t.Errorf("gateways %+v", f.Relay.Gateways)
	}
	m.becomes("forwarded", origin4+":80")

	trust(m.state)
	node.apply(c)
	m.becomes("carried", origin4+":80")
}

// TestDuplicateAddress checks that connections are translated to an address that works, although the node's
// newest one is another host's (RFC 4862, section 5.4).
func TestDuplicateAddress(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet("[" + origin6 + "]:80")
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	m.becomes("carried", "["+origin6+"]:80")

	m.ip("phone", "addr add fd77::9/64 dev lan nodad preferred_lft 0") // no source of connections
	m.ip("node", "addr add fd77::9/64 dev br-lan")
	for deadline := time.Now().Add(patience); !strings.Contains(m.run("node", "ip", "-6", "addr", "show", "dev", "br-lan"), "dadfailed"); {
		if time.Now().After(deadline) {
			t.Fatal("the kernel does not find the duplicate")
		}
		time.Sleep(50 * time.Millisecond)
	}
	for range 10 { // meanwhile the relay looks at its addresses again
		time.Sleep(200 * time.Millisecond)
		if way := m.wayBy(node, "["+origin6+"]:80"); way != "carried" {
			t.Fatalf("a connection is %s, not carried", way)
		}
	}
	if f := node.figures(); f.Relay.Direct.Total != f.Relay.Late {
		t.Errorf("%d direct connections, and %d had waited for the gateway", f.Relay.Direct.Total, f.Relay.Late)
	}
}

// TestSeveralGateways checks that the first working gateway is used, and a better
// one again when it is back.
func TestSeveralGateways(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	first := m.startGatewayAt(443)
	m.startGatewayAt(444)
	c := m.config(divert.Redirect)
	c.Gateways = relay.InOrder(gateway4+":443", gateway4+":444")
	c.Pins = []cert.Pin{{}, m.pin}
	node := m.startRelay(c)
	uses := func(port string) func(figures) bool {
		return func(f figures) bool { return f.Relay.Taking && f.Relay.Gateway == gateway4+":"+port }
	}
	node.await("the first gateway", uses("443"))
	first.signal(syscall.SIGKILL)
	killed := time.Now()
	// The second gateway is used as soon as the failure is noticed, here by a connection.
	for m.way(origin4+":80") != "carried" {
	}
	t.Logf("carried by the second gateway after %v", time.Since(killed).Round(10*time.Millisecond))
	f := node.await("the second gateway", uses("444"))
	if len(f.Relay.Gateways) != 2 || f.Relay.Gateways[0].State != "away" || f.Relay.Gateways[0].Error == "" || f.Relay.Gateways[1].State != "up" {
		t.Errorf("gateways %+v", f.Relay.Gateways)
	}
	kept := m.echo(node, origin4+":81")
	kept.says("by the second")
	m.startGatewayAt(443)
	node.await("the first gateway again", uses("443"))
	kept.says("still by the second")
	m.becomes("carried", origin4+":80")
}

// TestRoam changes the node's address while it carries connections.
func TestRoam(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	carried := m.echo(node, origin4+":81")
	carried.says("before")
	m.ip("node", "addr del "+node4+"/24 dev mesh", "addr add 10.78.0.3/24 dev mesh", "route replace default via "+gateway4)
	m.ip("gateway", "route replace 10.77.0.0/24 via 10.78.0.3")
	moved := time.Now()
	carried.says("after")
	t.Logf("an answer %v after the move", time.Since(moved).Round(time.Millisecond))
	m.becomes("carried", origin4+":80")
	if f := node.figures(); f.Relay.State != "up" || len(f.Relay.Connections) != 1 || time.Since(f.Relay.Connections[0].Since) < time.Since(moved) {
		t.Errorf("not in the same session: %+v", f.Relay)
	}
	carried.says("later")
}

// TestFurtherSessions checks that a relay in use has further sessions, which keep what they carry when the node's address changes, and
// come back after the gateway.
func TestFurtherSessions(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		gateway := m.startGateway()
		c := m.config(mode)
		c.Connections = 0
		node := m.startRelay(c)
		up := func(least int) func(f figures) bool {
			return func(f figures) bool {
				n := 0
				for _, s := range f.Relay.Connections {
					if s.Healthy {
						n++
					}
				}
				return n >= least
			}
		}
		carried := []*echoed{m.echo(node, origin4+":81")}
		node.await("further sessions", up(4))
		carried = append(carried, m.echo(node, origin4+":81"))
		m.ip("node", "addr del "+node4+"/24 dev mesh", "addr add 10.78.0.3/24 dev mesh", "route replace default via "+gateway4)
		m.ip("gateway", "route replace 10.77.0.0/24 via 10.78.0.3")
		for _, one := range carried {
			one.says("after the move")
		}
		gateway.signal(syscall.SIGKILL)
		m.startGateway()
		m.becomes("carried", origin4+":80")
		node.await("all sessions", up(4))
	})
}

// TestIdle checks that an idle relay sends hardly any packets, also if it has several sessions to choose
// from, and that the next connection is carried at once.
func TestIdle(t *testing.T) {
	for _, sessions := range []int{1, 2} {
		t.Run(fmt.Sprint(sessions), func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.greet(":80")
			m.startGateway()
			c := m.config(divert.Redirect)
			c.Connections = sessions
			node := m.startRelay(c)
			node.await("all sessions", func(f figures) bool { return len(f.Relay.Connections) == sessions })
			time.Sleep(3 * time.Second) // the handshake's last packets, path MTU discovery
			count := func(f figures) (packets uint64) {
				for _, s := range f.Relay.Connections {
					packets += s.Burst.PacketsSent + s.Burst.AcksReceived
				}
				return packets
			}
			before := count(node.figures())
			time.Sleep(32 * time.Second)
			f := node.figures()
			packets := (count(f) - before) / uint64(sessions)
			// Usually 6; late packets are retransmitted. A PING each second would be 64 packets.
			if packets > 20 || f.Relay.State != "up" || len(f.Relay.Connections) != sessions {
				t.Errorf("%d packets a session in 32 s, %s", packets, f.Relay.State)
			}
			t.Logf("%d packets a session in 32 s", packets)
			m.becomes("carried", origin4+":80")
		})
	}
}

// TestClients checks the counters of each client.
func TestClients(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	for _, target := range []string{origin4 + ":81", "[" + origin6 + "]:81"} {
		c := m.echo(node, target)
		c.says("0123456789")
		c.Close()
	}
	f := node.await("both connections to end", func(f figures) bool {
		return f.Relay.Carried.Now == 0 && f.Relay.Direct.Now == 0 && f.Relay.Carried.Total == 2
	})
	slices.SortFunc(f.Relay.Clients, func(a, b relay.ClientStatus) int { return len(a.Address) - len(b.Address) })
	want := []relay.ClientStatus{{Address: phone6, Sent: 10, Received: 10}, {Address: phone4, Sent: 10, Received: 10}}
	if !slices.Equal(f.Relay.Clients, want) || f.Relay.Others != (relay.ClientStatus{}) || f.Relay.Carried.Up != 20 || f.Relay.Carried.Down != 20 {
		t.Errorf("clients %+v, others %+v, carried %+v", f.Relay.Clients, f.Relay.Others, f.Relay.Carried)
	}
}

// TestPortForwarded checks that a connection is forwarded like any other if its client reuses a
// port for the same target while the relay's socket of the previous connection is in TIME-WAIT.
func TestPortForwarded(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.routerLike()
		m.greet(":80")
		m.greet(":82")
		m.listen(":81", func(conn *net.TCPConn) { // the origin closes first
			b := make([]byte, 5)
			if _, err := io.ReadFull(conn, b); err == nil {
				conn.Write(b)
			}
		})
		m.startGateway()
		c := m.config(mode)
		node := m.startRelay(c)
		m.becomes("carried", origin4+":80")
		exchange := func(what string) {
			t.Helper()
			err := m.in("phone", func() error {
				d := net.Dialer{LocalAddr: &net.TCPAddr{Port: 40000}, Timeout: patience}
				conn, err := d.Dial("tcp", origin4+":81")
				if err != nil {
					return err
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				if err := sendAll(conn.(*net.TCPConn), []byte("hello")); err != nil {
					return err
				}
				answer, err := io.ReadAll(conn)
				if err == nil && string(answer) != "hello" {
					err = fmt.Errorf("the answer is %q", answer)
				}
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		before := node.figures().Relay.Carried.Total
		m.eventually("it is carried", func() bool { // not always: see mesh.carry
			exchange("carried")
			return node.figures().Relay.Carried.Total > before
		})
		node.await("the end of what was carried", func(f figures) bool { return f.Relay.Carried.Now == 0 })
		c.ExcludePorts = []divert.Ports{{First: 81, Last: 82}}
		node.apply(c)
		m.becomes("forwarded", origin4+":82") // the rules change after Apply has returned
		if waits := m.run("node", "ss", "-Htan", "state", "time-wait", "dport", "=", ":40000"); waits == "" {
			t.Error("the connection before is not in TIME-WAIT")
		}
		carried := node.figures().Relay.Carried.Total
		exchange("forwarded")
		if now := node.figures().Relay.Carried.Total; now != carried {
			t.Error("it was carried")
		}
	})
}

// routerLike gives the node the connection tracking and NAT that every router's firewall has,
// with or without a relay.
func (m *mesh) routerLike() {
	m.t.Helper()
	m.run("node", "nft", `table inet firewall {
		chain srcnat { type nat hook postrouting priority 100; oifname "none" masquerade; }
		chain forward { type filter hook forward priority 0; ct state established accept; }
	}`)
}
