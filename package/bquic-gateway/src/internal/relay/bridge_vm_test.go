// SPDX-License-Identifier: Apache-2.0

//go:build vm

package relay_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// TestBridged has clients whose router is on the other side of the bridge.
func TestBridged(t *testing.T) {
	for _, tc := range []struct {
		name, addresses, mode, gateway, bridge string
		ports                                  []string // uplink ports, as configured
		carried                                []string // IP versions
	}{
		{"access point, redirect", dumb4 + " " + dumb6, divert.Redirect, gateway4, "auto", nil, []string{"4", "6"}},
		{"access point, tproxy", dumb4 + " " + dumb6, divert.TProxy, gateway4, "auto", nil, []string{"4", "6"}},
		{"Gluon, redirect", dumb6, divert.Redirect, gateway6, "auto", nil, []string{"6"}},
		{"Gluon, tproxy", dumb6, divert.TProxy, gateway6, "auto", nil, []string{"6"}},
		{"Gluon, tproxy, all", dumb6, divert.TProxy, gateway6, "1", nil, []string{"4", "6"}},
		{"a named port", dumb4 + " " + dumb6, divert.Redirect, gateway4, "auto", []string{"bat0"}, []string{"4", "6"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newBridgedMesh(t, tc.addresses)
			// Only here does a Gluon node have an IPv4 address, the same one on all nodes.
			m.ip("node", "link add local-node type veth peer name local-port", "link set local-port master br-client up",
				"addr add 10.77.0.254/32 dev local-node", "link set local-node up")
			targets := map[string]string{"4": m.greet(origin4 + ":80"), "6": m.greet("[" + origin6 + "]:80")}
			for version, target := range targets {
				if way := m.way(target); way != "forwarded" {
					t.Fatalf("without a relay, IPv%s is %s", version, way)
				}
			}
			before := m.kernel()
			gateway := m.startGateway()
			c := m.bridgedConfig(tc.mode, tc.gateway)
			c.Bridge, c.Uplinks = tc.bridge, tc.ports
			node := m.startRelay(c)
			for version, target := range targets {
				want := "forwarded"
				if strings.Contains(fmt.Sprint(tc.carried), version) {
					want = "carried"
				}
				if want == "carried" {
					m.carries(target)
				} else if way := m.way(target); way != want {
					t.Errorf("IPv%s is %s, not %s", version, way, want)
				}
			}
			gateway.signal(syscall.SIGTERM)
			node.await("the gateway to be away", func(f figures) bool { return !f.Relay.Taking })
			for version, target := range targets {
				if way := m.way(target); way != "forwarded" {
					t.Errorf("without the gateway, IPv%s is %s", version, way)
				}
			}
			if tc.mode == divert.Redirect {
				node.signal(syscall.SIGTERM)
			} else {
				node.signal(syscall.SIGKILL)
			}
			m.eventually("nothing is left in the kernel", func() bool { return m.kernel() == before })
		})
	}
}

// carries makes several connections, at least one of which must be carried. The others may go direct, because on a slow
// machine the gateway's answer may be late (see mesh.carry).
func (m *mesh) carries(target string) {
	m.t.Helper()
	ways := map[string]int{}
	const n = 5
	for range n {
		ways[m.way(target)]++
	}
	if ways["carried"] == 0 || ways["carried"]+ways["direct"] != n {
		m.t.Errorf("%s: %v", target, ways)
	}
}

// kernel returns the kernel state to which the relay may add.
func (m *mesh) kernel() string {
	m.t.Helper()
	out := ""
	for _, args := range [][]string{{"nft", "list", "ruleset"}, {"ip", "rule"}, {"ip", "-6", "rule"},
		{"ip", "route", "show", "table", "191"}, {"ip", "route", "show", "table", "192"},
		{"ip", "-6", "route", "show", "table", "191"}, {"ip", "-6", "route", "show", "table", "192"}} {
		args := append([]string{"netns", "exec", m.ns["node"]}, args...)
		b, _ := exec.Command("ip", args...).Output() // ip fails if the table is empty
		out += string(b)
	}
	return out
}

// TestBridgedVLAN has clients in a VLAN of the bridge for which the node has a device.
func TestBridgedVLAN(t *testing.T) {
	for _, filtering := range []bool{false, true} {
		t.Run(fmt.Sprintf("filtering %v", filtering), func(t *testing.T) {
			m := newBridgedMesh(t, "")
			phone := "lan.7"
			m.ip("phone", "-6 route del default")
			for _, name := range []string{"phone", "router"} {
				m.ip(name, "addr flush dev lan", "-6 addr flush dev lan scope global")
			}
			m.ip("router", "link add lan.7 link lan type vlan id 7", "link set lan.7 up",
				"addr add "+router4+"/24 dev lan.7", "addr add "+router6+"/64 dev lan.7 nodad")
			if filtering {
				phone = "lan" // the port adds and removes the tag
				m.ip("node", "link set br-client type bridge vlan_filtering 1")
				for _, args := range []string{"add dev client0 vid 7 pvid untagged", "add dev bat0 vid 7", "add dev br-client vid 7 self"} {
					m.run("node", append([]string{"bridge", "vlan"}, strings.Fields(args)...)...)
				}
			} else {
				m.ip("phone", "link add lan.7 link lan type vlan id 7", "link set lan.7 up")
			}
			m.ip("phone", "addr add "+phone4+"/24 dev "+phone, "addr add "+phone6+"/64 dev "+phone+" nodad",
				"route add default via "+router4, "-6 route add default via "+router6)
			m.ip("node", "link add br-client.7 link br-client type vlan id 7", "link set br-client.7 up",
				"addr add "+dumb4+"/24 dev br-client.7", "addr add "+dumb6+"/64 dev br-client.7 nodad",
				"route add default via "+router4, "-6 route add default via "+router6)
			m.startGateway()
			c := m.bridgedConfig(divert.Redirect, gateway4)
			c.Interfaces = []string{"br-client.7"}
			m.startRelay(c)
			for _, target := range []string{m.greet(origin4 + ":80"), m.greet("[" + origin6 + "]:80")} {
				m.carries(target)
			}
		})
	}
}

// TestBridgedKills checks that connections that are not carried continue while relays start, stop or are killed.
func TestBridgedKills(t *testing.T) {
	m := newBridgedMesh(t, dumb6)
	m.greet(":80")
	before := m.kernel()
	unending := m.listen(":81", func(conn *net.TCPConn) {
		conn.SetDeadline(time.Time{})
		io.Copy(conn, conn)
	})
	_, port, _ := net.SplitHostPort(unending)
	var lasting []*net.TCPConn
	for _, host := range []string{origin4, origin6} {
		conn, err := m.dial(net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		lasting = append(lasting, conn)
	}
	m.startGateway()
	var wg sync.WaitGroup
	var over atomic.Bool
	defer wg.Wait()
	defer over.Store(true)
	for _, host := range []string{origin4, origin6} { // may fail, because the relay is killed meanwhile
		wg.Go(func() {
			for !over.Load() {
				m.way(net.JoinHostPort(host, "80"))
			}
		})
	}
	carried := 0
	for i := range 20 {
		c := m.bridgedConfig([]string{divert.Redirect, divert.TProxy}[i%2], gateway6)
		c.Bridge = relay.BridgeAll
		node := m.startRelay(c)
		for _, host := range []string{origin4, origin6} {
			if m.way(net.JoinHostPort(host, "80")) == "carried" { // not always: see mesh.carry
				carried++
			}
		}
		node.signal([]syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL}[i%3])
		for _, host := range []string{origin4, origin6} {
			if way := m.way(net.JoinHostPort(host, "80")); way != "forwarded" {
				t.Errorf("%d: without the relay, %s is %s", i, host, way)
			}
		}
		for _, conn := range lasting {
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Fatalf("%d: a connection that was never taken: %v", i, err)
			}
		}
		m.eventually("nothing is left in the kernel", func() bool { return m.kernel() == before })
	}
	if carried < 20 {
		t.Errorf("%d connections were carried", carried)
	}
}

// TestBridgedStops stops gateway, relay and a port of the bridge that is not on the path, and starts them again, during
// transfers. No transfer may notice.
func TestBridgedStops(t *testing.T) {
	for _, mode := range []string{divert.Redirect, divert.TProxy} {
		t.Run(mode, func(t *testing.T) {
			m := newBridgedMesh(t, dumb4+" "+dumb6)
			m.join("node", "br-client", "client1", "origin", "spare", "")
			m.stops(m.bridgedConfig(mode, gateway4), func() {
				m.ip("node", "link set client1 nomaster", "link set client1 master br-client", "link set client1 down", "link set client1 up")
			})
		})
	}
}

// TestBridgedAddress has a bridge that gets another hardware address because a port joins and leaves, as when a radio restarts. What is carried goes
// on, as the clients' router has the same address as before.
func TestBridgedAddress(t *testing.T) {
	m := newBridgedMesh(t, dumb4+" "+dumb6)
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.bridgedConfig(divert.Redirect, gateway4))
	address := func() string { return m.run("node", "cat", "/sys/class/net/br-client/address") }
	before := []*echoed{m.echo(node, origin4+":81"), m.echo(node, "["+origin6+"]:81")}
	first := address()
	m.ip("node", "link add radio type veth peer name air", "link set radio address 02:00:00:00:00:01", "link set radio up", "link set radio master br-client")
	if address() == first {
		t.Fatal("the bridge has the same address")
	}
	m.eventually("connections of the new address", func() bool {
		return strings.Contains(m.run("node", "nft", "list", "table", "bridge", "bquic_relay"), "02:00:00:00:00:01")
	})
	during := []*echoed{m.echo(node, origin4+":81"), m.echo(node, "["+origin6+"]:81")}
	for _, conn := range slices.Concat(before, during) {
		conn.says("with the new address")
	}
	m.ip("node", "link set radio nomaster")
	if address() != first {
		t.Fatal("the bridge has another address")
	}
	for _, conn := range slices.Concat(before, during) {
		conn.SetDeadline(time.Now().Add(patience))
		conn.says("with the first address again")
	}
}

// TestBridgedTwice checks that of two relays on the path, the one next to the client takes a connection.
func TestBridgedTwice(t *testing.T) {
	m := newNamespaces(t, "phone", "first", "node", "router", "gateway", "origin")
	m.bridge("first", "br-client")
	m.bridge("node", "br-client")
	m.join("first", "br-client", "client0", "phone", "lan", phone4+"/24 "+phone6+"/64")
	m.join("first", "br-client", "bat0", "node", "client0", "")
	m.ip("node", "link set client0 master br-client")
	m.join("node", "br-client", "bat0", "router", "lan", router4+"/24 "+router6+"/64")
	m.link("router", "mesh", node4+"/24 "+node6+"/64", "gateway", "mesh", gateway4+"/24 "+gateway6+"/64")
	m.link("gateway", "wan", exit4+"/24 "+exit6+"/64", "origin", "eth0", origin4+"/24 "+origin6+"/64")
	m.ip("phone", "route add default via "+router4)
	m.ip("router", "route add default via "+gateway4)
	m.ip("gateway", "route add 10.77.0.0/24 via "+node4)
	m.ip("origin", "route add default via "+exit4)
	m.ip("first", "addr add 10.77.0.8/24 dev br-client", "route add default via "+router4)
	m.ip("node", "addr add "+dumb4+"/24 dev br-client", "route add default via "+router4)
	m.startGateway()
	c := m.bridgedConfig(divert.Redirect, gateway4)
	node := m.startRelay(c)
	first := m.start("first", role{Relay: &c})
	first.await("the relay to take connections", func(f figures) bool { return f.Relay.Taking })
	target := m.greet(origin4 + ":80")
	m.carries(target)
	// The second relay sees only the connections that the first one made directly because the gateway's answer was
	// late.
	a, b := first.figures().Relay, node.figures().Relay
	if late := a.Direct.Total; a.Carried.Total+late != 5 || b.Carried.Total+b.Direct.Total > late {
		t.Errorf("the first relay carried %d and made %d directly, the second %d and %d", a.Carried.Total, late, b.Carried.Total, b.Direct.Total)
	}
}

// TestBridgedRoaming has a client that roams to another node while connections are carried. These end with an error,
// and new connections work.
func TestBridgedRoaming(t *testing.T) {
	m := newNamespaces(t, "phone", "node", "other", "router", "gateway", "origin")
	m.bridge("phone", "lan")
	m.bridge("router", "lan")
	m.ip("phone", "addr add "+phone4+"/24 dev lan", "addr add "+phone6+"/64 dev lan nodad", "route add default via "+router4, "-6 route add default via "+router6)
	m.ip("router", "addr add "+router4+"/24 dev lan", "addr add "+router6+"/64 dev lan nodad")
	for i, name := range []string{"node", "other"} {
		m.bridge(name, "br-client")
		m.join(name, "br-client", "client0", "phone", fmt.Sprintf("radio%d", i), "")
		m.join(name, "br-client", "bat0", "router", fmt.Sprintf("mesh%d", i), "")
		m.ip("router", fmt.Sprintf("link set mesh%d master lan", i))
		m.ip(name, fmt.Sprintf("addr add 10.77.0.%d/24 dev br-client", 8+i), fmt.Sprintf("addr add fd77::%d/64 dev br-client nodad", 8+i),
			"route add default via "+router4, "-6 route add default via "+router6)
	}
	m.ip("phone", "link set radio0 master lan")
	m.linkOrigin("router", "wan")
	m.startGateway()
	c := m.bridgedConfig(divert.Redirect, gateway4)
	node := m.startRelay(c)
	other := m.start("other", role{Relay: &c})
	other.await("the other relay to take connections", func(f figures) bool { return f.Relay.Taking })
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) {
		for b := make([]byte, 1<<10); ; time.Sleep(10 * time.Millisecond) {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	})
	var lasting []*net.TCPConn
	for _, host := range []string{origin4, origin6} {
		conn := m.carry(node, net.JoinHostPort(host, "81"))
		if _, err := io.ReadFull(conn, make([]byte, 4<<10)); err != nil {
			t.Fatal(err)
		}
		lasting = append(lasting, conn)
	}
	m.ip("phone", "link set radio0 nomaster", "link set radio1 master lan")
	for _, conn := range lasting {
		go func() { // like a browser, ask for more
			for conn.SetWriteDeadline(time.Now().Add(patience)) == nil {
				if _, err := conn.Write([]byte("more")); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		began := time.Now()
		conn.SetReadDeadline(began.Add(patience))
		_, err := io.Copy(io.Discard, conn)
		if ne, ok := err.(net.Error); err == nil || ok && ne.Timeout() {
			t.Errorf("the carried connection to %v ended with %v", conn.RemoteAddr(), err)
		}
		t.Logf("it ended after %v: %v", time.Since(began), err)
	}
	for _, host := range []string{origin4, origin6} {
		m.carries(net.JoinHostPort(host, "80"))
	}
	if r := other.figures().Relay; r.Carried.Total+r.Direct.Total != 10 {
		t.Errorf("the other relay carried %d and made %d directly", r.Carried.Total, r.Direct.Total)
	}
}

// TestBridgedBatman uses a real batman-adv mesh on links with an MTU of 1,262 bytes, of which 1,230 remain.
func TestBridgedBatman(t *testing.T) {
	m := newNamespaces(t, "phone", "node", "router", "gateway", "origin")
	m.bridge("node", "br-client")
	m.bridge("router", "lan")
	m.join("node", "br-client", "client0", "phone", "lan", phone4+"/24 "+phone6+"/64")
	m.link("node", "wifi", "", "router", "wifi", "")
	for name, bridge := range map[string]string{"node": "br-client", "router": "lan"} {
		m.ip(name, "link set wifi mtu 1262", "link add bat0 type batadv", "link set wifi master bat0",
			"link set bat0 up", "link set bat0 mtu 1230", "link set bat0 master "+bridge, "link set "+bridge+" mtu 1230")
	}
	m.ip("phone", "link set lan mtu 1230") // set by the mesh's DHCP
	m.ip("router", "addr add "+router4+"/24 dev lan")
	m.link("router", "mesh", node4+"/24", "gateway", "mesh", gateway4+"/24")
	m.link("gateway", "wan", exit4+"/24", "origin", "eth0", origin4+"/24")
	m.ip("phone", "route add default via "+router4)
	m.ip("node", "addr add "+dumb4+"/24 dev br-client", "route add default via "+router4)
	m.ip("router", "route add default via "+gateway4)
	m.ip("gateway", "route add 10.77.0.0/24 via "+node4)
	m.ip("origin", "route add default via "+exit4)
	const size = 1 << 20
	target := m.listen(origin4+":80", func(conn *net.TCPConn) {
		io.WriteString(conn, wayOf(conn))
		conn.Write(make([]byte, size))
	})
	m.eventually("batman-adv has found its neighbour", func() bool { return strings.HasPrefix(m.way(target), "forwarded") })
	m.startGateway()
	c := m.bridgedConfig(divert.TProxy, gateway4)
	node := m.startRelay(c)
	if ports := node.figures().Relay.BridgePorts; !slices.Equal(ports, []string{"bat0"}) {
		t.Errorf("the ports are %q", ports)
	}
	for range 3 {
		if got := m.way(target); !strings.HasPrefix(got, "carried") || len(got) != len("carried")+size {
			t.Errorf("%.20q, %d bytes", got, len(got))
		}
	}
}
