// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"net"
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
