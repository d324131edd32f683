// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// In a bridged mesh, the node is a bridge between the clients and their router:
//
//	phone --- node (relay, bridge) --- router --- gateway --- origin
//
// The node's bridge has client0 for the phone, and bat0 for the mesh, as on Gluon's nodes.
const (
	router4, router6 = "10.77.0.1", "fd77::1"
	dumb4, dumb6     = "10.77.0.9", "fd77::9" // the node's addresses in the clients' prefix, if it has any
)

// newBridgedMesh makes a bridged mesh. addresses are the node's addresses, separated by
// spaces. The node has a default route for each of their IP versions.
func newBridgedMesh(t *testing.T, addresses string) *mesh {
	t.Helper()
	m := newNamespaces(t, "phone", "node", "router", "gateway", "origin")
	m.bridge("node", "br-client")
	m.join("node", "br-client", "client0", "phone", "lan", phone4+"/24 "+phone6+"/64")
	m.join("node", "br-client", "bat0", "router", "lan", router4+"/24 "+router6+"/64")
	m.ip("phone", "route add default via "+router4, "-6 route add default via "+router6)
	m.linkOrigin("router", "mesh")
	for addr := range strings.FieldsSeq(addresses) {
		if strings.Contains(addr, ":") {
			m.ip("node", "addr add "+addr+"/64 dev br-client nodad", "-6 route add default via "+router6)
		} else {
			m.ip("node", "addr add "+addr+"/24 dev br-client", "route add default via "+router4)
		}
	}
	return m
}

// bridge makes a bridge in a namespace, whose IP rules do not see bridged packets, as on OpenWrt.
func (m *mesh) bridge(name, bridge string) {
	m.t.Helper()
	m.ip(name, "link add "+bridge+" type bridge", "link set "+bridge+" up")
	if err := m.in(name, func() error {
		for _, version := range []string{"iptables", "ip6tables"} {
			err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+version, []byte("0"), 0)
			if err != nil && !os.IsNotExist(err) { // a kernel without br_netfilter
				return err
			}
		}
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
}

// join connects a new port of a bridge to another namespace.
func (m *mesh) join(name, bridge, port, other, dev, addrs string) {
	m.t.Helper()
	m.link(name, port, "", other, dev, addrs)
	m.ip(name, "link set "+port+" master "+bridge)
}

func (m *mesh) bridgedConfig(mode, gateway string) relay.Config {
	c := m.config(mode)
	c.Interfaces = []string{"br-client"}
	c.Gateways = relay.InOrder(net.JoinHostPort(gateway, "443"))
	return c
}

// TestMacvlan has clients whose router is a macvlan on the bridge, like LibreMesh's anygw.
func TestMacvlan(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{divert.Redirect, divert.TProxy} {
		t.Run(mode, func(t *testing.T) {
			m := newNamespaces(t, "phone", "node", "gateway", "origin")
			m.bridge("node", "br-lan")
			m.join("node", "br-lan", "client0", "phone", "lan", phone4+"/24 "+phone6+"/64")
			m.ip("node", "addr add 10.77.0.9/24 dev br-lan", "addr add fd77::9/64 dev br-lan nodad",
				"link add anygw link br-lan type macvlan mode private", "addr add 10.77.0.1/24 dev anygw noprefixroute",
				"addr add fd77::1/64 dev anygw nodad noprefixroute", "link set anygw up")
			m.ip("phone", "route add default via 10.77.0.1", "-6 route add default via fd77::1")
			m.linkOrigin("node", "mesh")
			m.startGateway()
			node := m.startRelay(m.config(mode)) // with the default interface, br-lan
			for _, target := range []string{m.greet(origin4 + ":80"), m.greet("[" + origin6 + "]:80")} {
				if way := m.wayBy(node, target); way != "carried" {
					t.Errorf("%s is %s", target, way)
				}
			}
		})
	}
}

// TestUnseen checks that a relay reports that its clients are busy but bridged past it.
func TestUnseen(t *testing.T) {
	t.Parallel()
	m := newBridgedMesh(t, dumb4+" "+dumb6)
	m.startGateway()
	c := m.bridgedConfig(divert.Redirect, gateway4)
	c.Bridge = relay.BridgeOff
	node := m.startRelay(c)
	target := m.listen(origin4+":81", func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
	conn, err := m.dial(target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// An upload, because the number of ACKs of a download depends on this machine's load.
	go func() {
		for b := make([]byte, 64<<10); ; time.Sleep(100 * time.Millisecond) {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}()
	f := node.await("the relay to say that it sees nothing", func(f figures) bool { return f.Relay.Unseen != nil })
	if why := f.Relay.Unseen.Why; why != relay.UnseenOff {
		t.Errorf("it says %q: %s", why, f.Relay.Unseen.Reason)
	}
	node.logs("sees none of its clients' connections")
	node.signal(syscall.SIGTERM)
}

// TestUnseenWithoutDevice checks that a relay whose interface does not exist says so, although it
// sees no clients: with the name of a network of OpenWrt, for example, also after it has seen some.
func TestUnseenWithoutDevice(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.startGateway()
	m.greet(":80")
	c := m.config(divert.Redirect)
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	c.Interfaces = []string{"lan"}
	node.apply(c)
	f := node.await("the relay to say that it sees nothing", func(f figures) bool { return f.Relay.Unseen != nil })
	if u := f.Relay.Unseen; u.Why != relay.UnseenNoDevice || !strings.Contains(u.Reason, "device lan:") {
		t.Errorf("it says %q: %s", u.Why, u.Reason)
	}
	node.signal(syscall.SIGTERM)
}
