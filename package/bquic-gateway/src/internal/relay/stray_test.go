// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"bquic/internal/divert"
)

// TestAddressReplaced has a gateway whose provider gives it another address, as many do every night. Without a gateway, NAT would use the new
// one: a server resets connections that it does not know by that address, so that clients make new ones, and flows of UDP go on.
func TestAddressReplaced(t *testing.T) {
	for version, end := range map[string]struct{ origin, was, is, six string }{
		"IPv4": {origin4, exit4 + "/24", moved4, ""},
		"IPv6": {"[" + origin6 + "]", exit6 + "/64", moved6, "-6 "},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.greet(":80")
			m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
			m.greetUDP(5000)
			m.startGateway()
			c := m.config(divert.Redirect)
			c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
			node := m.startRelay(c)
			carried, flow := m.echo(node, end.origin+":81"), m.carryUDP(node, end.origin+":5000")
			carried.says("before")
			bits := end.was[len(end.was)-3:]
			m.ip("gateway", end.six+"addr del "+end.was+" dev wan", end.six+"addr add "+end.is+bits+" dev wan"+map[string]string{"-6 ": " nodad"}[end.six])
			m.ip("origin", end.six+"route replace default via "+end.is)
			carried.resets("after")
			if way := m.ask(flow, "after"); way != "carried" && !(way == "forwarded" && node.late(flow, 2)) {
				t.Errorf("a flow whose client goes on sending is %s", way)
			}
			m.becomes("carried", end.origin+":80")
		})
	}
}

// TestDirectAddressReplaced is like TestAddressReplaced, for a connection that the relay makes directly.
func TestDirectAddressReplaced(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
	node := m.startRelay(m.config(divert.Redirect))
	conn, err := m.dial(origin4 + ":81")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	direct := &echoed{t, conn}
	direct.says("before")
	if f := node.figures(); f.Relay.Direct.Now != 1 {
		t.Fatalf("%d direct connections, not 1", f.Relay.Direct.Now)
	}
	m.ip("node", "addr del "+node4+"/24 dev mesh", "addr add 10.78.0.3/24 dev mesh", "route replace default via "+gateway4)
	m.ip("gateway", "route replace 10.77.0.0/24 via 10.78.0.3")
	direct.resets("after")
}

// TestAddressBack has a provider that takes the gateway's address away for a while, and gives it the same one again. Connections go on.
func TestAddressBack(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	carried := m.echo(m.startRelay(m.config(divert.Redirect)), origin4+":81")
	carried.says("before")
	m.ip("gateway", fmt.Sprintf("addr del %s/24 dev wan", exit4))
	if err := sendAll(carried.TCPConn, []byte("meanwhile")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(15 * time.Second) // tunnels are looked at every five
	m.ip("gateway", fmt.Sprintf("addr add %s/24 dev wan", exit4))
	if err := receiveAll(carried.TCPConn, []byte("meanwhile")); err != nil {
		t.Fatal(err)
	}
	carried.says("after")
}
