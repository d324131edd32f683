// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// reaches starts a gateway and a relay that uses an address of it, and returns a carried connection.
func (m *mesh) reaches(address string) (node *process, carried *echoed) {
	m.t.Helper()
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	c := m.config(divert.Redirect)
	c.Gateways = relay.InOrder(net.JoinHostPort(address, "443"))
	node = m.startRelay(c)
	carried = m.echo(node, origin4+":81")
	carried.says("before")
	return node, carried
}

// TestOtherDevice changes the route between node and gateway to one by other devices. The node keeps its address, as a
// mesh node does that has several radios.
func TestOtherDevice(t *testing.T) {
	for version, end := range map[string]struct{ gateway, node, nextGateway, nextNode string }{
		"IPv4": {gateway4, node4, "10.79.0.1", "10.79.0.2"},
		"IPv6": {gateway6, node6, "fd79::1", "fd79::2"},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.link("node", "other", "10.79.0.2/24 fd79::2/64", "gateway", "other", "10.79.0.1/24 fd79::1/64")
			node, carried := m.reaches(end.gateway)
			six := ""
			if version == "IPv6" {
				six = "-6 "
			}
			m.ip("node", fmt.Sprintf("%sroute add %s via %s dev other src %s", six, end.gateway, end.nextGateway, end.node))
			m.ip("gateway", fmt.Sprintf("%sroute add %s via %s dev other", six, end.node, end.nextNode))
			m.run("gateway", "nft", `table inet cut {
				chain in { type filter hook prerouting priority -400; iifname "mesh" drop; }
				chain out { type filter hook postrouting priority 400; oifname "mesh" drop; }
			}`)
			moved := time.Now()
			carried.says("after")
			t.Logf("an answer %v after the change", time.Since(moved).Round(time.Millisecond))
			if f := node.figures(); len(f.Relay.Connections) != 1 || time.Since(f.Relay.Connections[0].Since) < time.Since(moved) {
				t.Errorf("not in the same session: %+v", f.Relay)
			}
		})
	}
}

// TestDirectOtherDevice is like TestOtherDevice, for a connection that the relay makes directly, and for one that the kernel forwards.
func TestDirectOtherDevice(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.link("node", "other", "10.79.0.2/24", "gateway", "other", "10.79.0.1/24")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.listen(":82", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
	c := m.config(divert.Redirect)
	c.ExcludePorts = []divert.Ports{{First: 82, Last: 82}}
	node := m.startRelay(c)
	var all []*echoed
	for _, port := range []string{":81", ":82"} {
		conn, err := m.dial(origin4 + port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, &echoed{t, conn})
		all[len(all)-1].says("before")
	}
	if f := node.figures(); f.Relay.Direct.Now != 1 {
		t.Fatalf("%d direct connections, not 1", f.Relay.Direct.Now)
	}
	m.moves()
	for _, conn := range all {
		conn.says("after")
	}
}

// moves breaks the link between node and gateway. Their mesh finds the way by their devices called other.
func (m *mesh) moves() {
	m.t.Helper()
	m.ip("node", "route replace default via 10.79.0.1 dev other src "+node4)
	m.ip("gateway", "route add "+node4+" via 10.79.0.2 dev other", "route replace 10.77.0.0/24 via 10.79.0.2 dev other")
	m.run("gateway", "nft", `table inet broken {
		chain in { type filter hook prerouting priority -400; iifname "mesh" drop; }
		chain out { type filter hook postrouting priority 400; oifname "mesh" drop; }
	}`)
}

// silence drops all packets of the gateway's sessions.
func (m *mesh) silence() {
	m.t.Helper()
	m.run("gateway", "nft", `table inet silence {
		chain in { type filter hook prerouting priority -400; udp dport 443 drop; }
		chain out { type filter hook postrouting priority 400; udp sport 443 drop; }
	}`)
}

// TestDirectMoved has a path that breaks just when a connection begins. While the relay waits for its gateway's answer, the mesh finds another
// path, and the connection, which the relay then makes directly, takes that.
func TestDirectMoved(t *testing.T) {
	t.Parallel()
	for range 20 {
		if directMoved(t) {
			return
		}
	}
	t.Error("the mesh is too slow: the relay has never waited for so long")
}

// directMoved reports whether the mesh has found the other path while the relay waited.
func directMoved(t *testing.T) (inTime bool) {
	t.Helper()
	m := newMesh(t)
	m.link("node", "other", "10.79.0.2/24", "gateway", "other", "10.79.0.1/24")
	m.greet(":80")
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	m.becomes("carried", origin4+":80")
	node.await("nothing to be carried", func(f figures) bool { return f.Relay.Connections[0].Streams == 0 })
	waits := func(f figures) bool { return f.Relay.Direct.Now == 0 && f.Relay.Connections[0].Streams == 1 }
	before := node.figures().Relay.Direct.Total
	m.silence()
	conn, err := m.dial(origin4 + ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	node.await("the relay to ask its gateway", func(f figures) bool { return waits(f) || f.Relay.Direct.Total > before })
	m.moves()
	if !waits(node.figures()) {
		return false
	}
	if way, err := io.ReadAll(conn); string(way) != "direct" || err != nil {
		t.Errorf("%q, %v", way, err)
	}
	return true
}

// TestGatewayKilledMoved has a gateway that fails after the mesh has found another path to it. The connections that it carried end, because their
// targets can be reached without it.
func TestGatewayKilledMoved(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.link("node", "other", "10.79.0.2/24", "gateway", "other", "10.79.0.1/24")
	_, carried := m.reaches(gateway4)
	m.ip("node", "route add "+gateway4+" via 10.79.0.1 dev other src "+node4)
	m.moves()
	carried.says("after")
	m.silence()
	carried.resets("unheard")
}

// TestRenumbered gives the node another address, as DHCP does with an access point. What it carries continues, as what it forwards does.
func TestRenumbered(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		node := m.startRelay(m.config(mode))
		// The client's router stays the same, as beyond a bridge.
		mac := strings.TrimSpace(m.run("node", "cat", "/sys/class/net/br-lan/address"))
		m.ip("phone", "neigh replace 10.77.0.1 lladdr "+mac+" dev lan nud permanent", "-6 neigh replace fd77::1 lladdr "+mac+" dev lan nud permanent")
		var all []*echoed
		for _, host := range []string{origin4, "[" + origin6 + "]"} {
			all = append(all, m.echo(node, host+":81"))
			all[len(all)-1].says("before")
		}
		m.ip("node", "addr del 10.77.0.1/24 dev br-lan", "addr add 10.77.0.5/24 dev br-lan",
			"-6 addr del fd77::1/64 dev br-lan", "-6 addr add fd77::5/64 dev br-lan nodad")
		for _, conn := range all {
			conn.says("after")
		}
		m.becomes("carried", origin4+":80")
		m.becomes("carried", "["+origin6+"]:80")
	})
}

// TestNoRouteForAMoment takes the path away for a second, in ways for which the kernel has different errors. What is
// carried continues.
func TestNoRouteForAMoment(t *testing.T) {
	for name, moment := range map[string]struct {
		gateway    string
		on         string
		away, back string
	}{
		"blackhole route":        {gateway4, "node", "route add blackhole " + gateway4 + "/32", "route del blackhole " + gateway4 + "/32"},
		"blackhole route, IPv6":  {gateway6, "node", "-6 route add blackhole " + gateway6 + "/128", "-6 route del blackhole " + gateway6 + "/128"},
		"gateway: blackhole":     {gateway4, "gateway", "route add blackhole " + node4 + "/32", "route del blackhole " + node4 + "/32"},
		"gateway's address":      {gateway4, "gateway", "addr del " + gateway4 + "/24 dev mesh", "addr add " + gateway4 + "/24 dev mesh"},
		"gateway's IPv6 address": {gateway6, "gateway", "-6 addr del " + gateway6 + "/64 dev mesh", "-6 addr add " + gateway6 + "/64 dev mesh nodad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			node, carried := m.reaches(moment.gateway)
			gone := time.Now()
			m.ip(moment.on, moment.away)
			if err := sendAll(carried.TCPConn, []byte("during")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			m.ip(moment.on, moment.back)
			if err := receiveAll(carried.TCPConn, []byte("during")); err != nil {
				t.Fatal(err)
			}
			carried.says("after")
			if f := node.figures(); len(f.Relay.Connections) != 1 || time.Since(f.Relay.Connections[0].Since) < time.Since(gone) {
				t.Errorf("not in the same session: %+v", f.Relay)
			}
		})
	}
}

// TestDeviceReplaced removes the devices between node and gateway, and makes new ones with the same addresses, as a
// radio does that gets another configuration.
func TestDeviceReplaced(t *testing.T) {
	for version, address := range map[string]string{"IPv4": gateway4, "IPv6": gateway6} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			node, carried := m.reaches(address)
			gone := time.Now()
			m.ip("gateway", "link del mesh")
			time.Sleep(500 * time.Millisecond)
			m.link("node", "mesh", node4+"/24 "+node6+"/64", "gateway", "mesh", gateway4+"/24 "+gateway6+"/64")
			m.ip("node", "route add default via "+gateway4, "-6 route add default via "+gateway6)
			m.ip("gateway", "route add 10.77.0.0/24 via "+node4, "-6 route add fd77::/64 via "+node6)
			carried.says("after")
			if f := node.figures(); len(f.Relay.Connections) != 1 || time.Since(f.Relay.Connections[0].Since) < time.Since(gone) {
				t.Errorf("not in the same session: %+v", f.Relay)
			}
		})
	}
}
