// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// TestNoUplink has a real gateway that can no longer reach the Internet, although packets forwarded
// through it can. The gateway must report it, and the kernel must forward connections until the
// gateway's uplink is back.
func TestNoUplink(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	m.becomes("carried", origin4+":80")
	state := func(want string) func(figures) bool {
		return func(f figures) bool { return f.Relay.Gateways[0].State == want }
	}
	for range 2 {
		m.ip("gateway", "rule add pref 10 iif lo to 203.0.113.0/24 table 78", "route add unreachable default table 78")
		// The first connections detect it, and go direct meanwhile.
		m.becomes("forwarded", origin4+":80")
		node.await("the gateway to say that it has no uplink, and the kernel not to ask", func(f figures) bool {
			return state(relay.StateNoUplink)(f) && !f.Relay.Taking
		})
		m.ip("gateway", "rule del pref 10", "route flush table 78")
		node.await("the gateway to have an uplink again", state(relay.StateUp))
		m.becomes("carried", origin4+":80")
	}
}

// TestNoUplinkUDP has a client that goes on sending while the gateway loses its uplink, as a telephone does that registers with its provider, or a
// VPN with all that its client does. Nobody opens a connection meanwhile. The flow goes on by the kernel.
func TestNoUplinkUDP(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(5060)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 5060, Last: 5060}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	flow := m.carryUDP(node, origin4+":5060")
	m.ip("gateway", "rule add pref 10 iif lo to 203.0.113.0/24 table 78", "route add unreachable default table 78")
	m.eventually("the flow goes on by the kernel", func() bool { return m.ask(flow, "without an uplink") == "forwarded" })
}

// TestNoUplinkWaiting has a gateway that loses its uplink, while its servers can be reached without it. A connection that it carries ends if its
// client waits for an answer, as if the mesh's other exit had got it without a relay. Others wait for the uplink.
func TestNoUplinkWaiting(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	waiting, resting := m.echo(node, origin4+":81"), m.echo(node, origin4+":81")
	waiting.says("before")
	resting.says("before")
	m.ip("gateway", "rule add pref 10 iif lo to 203.0.113.0/24 table 78", "route add unreachable default table 78")
	m.becomes("forwarded", origin4+":80")
	waiting.resets("in vain")
	m.ip("gateway", "rule del pref 10", "route flush table 78")
	m.becomes("carried", origin4+":80")
	resting.says("after")
}

// TestSilentIPv6 has a gateway whose provider drops IPv6, although it has given the gateway an address and a route. Each server that clients ask for
// first would cost them a wait.
func TestSilentIPv6(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(53)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	for port := 81; port < 89; port++ { // clients prefer IPv6
		m.becomes("carried", m.greet(fmt.Sprintf("[%s]:%d", origin6, port)))
	}
	m.run("gateway", "nft", "table inet provider { chain out { type filter hook output priority 0; ip6 daddr 2001:db8::/32 meta l4proto { tcp, udp } drop; }; }")
	for i := range 20 {
		server := fmt.Sprintf("2001:db8:%d::1", i)
		m.ip("origin", "-6 addr add "+server+"/128 dev eth0 nodad preferred_lft 0") // not what it answers UDP from
		m.ip("gateway", "-6 route add "+server+" via "+origin6)
		switch way := m.way("[" + server + "]:80"); way {
		case "forwarded":
			for range 20 { // meanwhile the relay asks whether the gateway is slow
				time.Sleep(200 * time.Millisecond)
				if way := m.wayBy(node, origin4+":80"); way != "carried" {
					t.Fatalf("by IPv4: %s", way)
				}
			}
			if way := m.ask(m.udp("["+origin6+"]:53"), "question"); way != "forwarded" {
				t.Errorf("a datagram by IPv6: %s", way)
			}
			return
		case "direct":
		default:
			t.Fatalf("%s: %s", server, way)
		}
	}
	t.Error("connections by IPv6 still wait for the gateway")
}

// TestNoPlace has a gateway with one place. While it is taken, the kernel forwards new connections, which would wait for a refusal, and the
// one that has the place goes on.
func TestNoPlace(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGatewayAt(443, "config peer 'node'", "\tlist token 'token-of-node'", "\toption tunnels '1'")
	c := m.config(divert.Redirect)
	c.Token = "token-of-node"
	node := m.startRelay(c)
	kept := m.echo(node, origin4+":81")
	m.becomes("forwarded", origin4+":80")
	m.eventually("the status to say so", func() bool {
		m.way(origin4 + ":80")
		f := node.figures().Relay
		return f.State == relay.StateUp && strings.Contains(f.Gateways[0].Error, "no place")
	})
	kept.says("still")
	kept.Close()
	m.becomes("carried", origin4+":80")
}

// TestGatewayEnds stops a gateway. Its connections continue, new ones go direct, and it exits after
// the last one.
func TestGatewayEnds(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	gateway := m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	kept := m.echo(node, origin4+":81")
	kept.says("before")
	gateway.cmd.Process.Signal(syscall.SIGTERM)
	m.becomes("forwarded", origin4+":80")
	time.Sleep(3 * time.Second) // longer than the timeout for requests
	kept.says("later")
	kept.Close()
	if err := gateway.signal(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
	m.startGateway()
	m.recovers("the end of a gateway")
}

// TestNoUplinkReplaced has a second gateway that loses its uplink after the first one is back. A telephone's flow that it still carries goes on by
// the first one.
func TestNoUplinkReplaced(t *testing.T) {
	t.Parallel()
	m := newNamespaces(t, "phone", "node", "gateway", "second", "origin")
	m.link("phone", "lan", phone4+"/24 "+phone6+"/64", "node", "br-lan", "10.77.0.1/24 fd77::1/64")
	m.ip("phone", "route add default via 10.77.0.1")
	m.linkOrigin("node", "mesh")
	m.link("node", "far", "10.79.0.1/24", "second", "mesh", "10.79.0.2/24")
	m.link("second", "wan", moved4+"/32", "origin", "eth1", "")
	m.ip("second", "route add "+origin4+" dev wan", "route add default via "+origin4)
	m.ip("origin", "route add "+moved4+" dev eth1")
	m.greet(":80")
	m.greetUDP(5060)
	m.startGatewayIn("second", 444)
	c := m.config(divert.Redirect)
	c.Gateways = relay.InOrder(gateway4+":443", "10.79.0.2:444")
	c.UDPPorts = []divert.Ports{{First: 5060, Last: 5060}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	var flows []net.Conn
	for range 3 {
		flows = append(flows, m.carryUDP(node, origin4+":5060"))
	}
	m.startGateway()
	node.await("the first gateway", func(f figures) bool { return f.Relay.Taking && f.Relay.Gateway == gateway4+":443" })
	m.ip("second", "link set wan down")
	m.eventually("a flow goes on", func() bool { // not each one, if the gateway's answer is late: see askBy
		return slices.ContainsFunc(flows, func(flow net.Conn) bool { return m.ask(flow, "by the first") == "carried" })
	})
}
