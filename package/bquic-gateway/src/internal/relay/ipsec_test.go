// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
)

// TestIPsecPolicy has a node that protects what its clients send to a target, as far as the peer can do that (level use). It has no key
// yet, so the kernel sends it as it is. The relay leaves it to the kernel.
func TestIPsecPolicy(t *testing.T) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_XFRM)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Skip("this kernel has no IPsec")
	} else if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.greet(":81")
		m.greetUDP(5000)
		m.startGateway()
		c := m.config(mode)
		c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
		node := m.startRelay(c)
		targets := []string{origin4, "[" + origin6 + "]"}
		ways := func(want, port81 string) {
			t.Helper()
			for _, host := range targets {
				for port, want := range map[string]string{":80": want, ":81": port81} {
					if way := m.wayBy(node, host+port); way != want {
						t.Errorf("a connection to %s%s is %s, not %s", host, port, way, want)
					}
				}
				if way, _ := m.askBy(node, host+":5000", "hello"); way != want {
					t.Errorf("a flow to %s is %s, not %s", host, way, want)
				}
			}
		}
		ways("carried", "carried")
		const level = " proto esp mode transport level use"
		m.ip("node", "xfrm policy add src 10.77.0.0/24 dst "+origin4+" dir out priority 2 tmpl"+level,
			"xfrm policy add src 10.77.0.0/24 dst "+origin4+" proto tcp dport 81 dir out priority 1",
			"xfrm policy add src fd77::/64 dst "+origin6+" dir out priority 2 tmpl"+level,
			"xfrm policy add src fd77::/64 dst "+origin6+" proto tcp dport 81 dir out priority 1")
		ways("forwarded", "carried")
		m.ip("node", "xfrm policy flush")
		ways("carried", "carried")
	})
}
