// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"bquic/internal/divert"
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
			flows = append(flows, m.udp(host+":5000"))
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
				m.link("node", "wan", "10.79.0.1/24 fd79::1/64", "origin", "wan", "10.79.0.2/24 fd79::2/64")
				for _, v := range [][3]string{{"", gateway4, phone4}, {"-6 ", gateway6, phone6}} {
					m.ip("node", v[0]+"route add default via "+v[1]+" table 100", v[0]+"rule add pref 1000 "+strings.ReplaceAll(tc.rule, "FROM", v[2])+" table 100")
				}
				m.ip("node", "route replace default via 10.79.0.2", "-6 route replace default via fd79::2")
				m.run("node", "nft", `table inet pbr {
					chain marks { type filter hook prerouting priority mangle; iifname "br-lan" meta mark set 0x10000; }
				}`)
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
