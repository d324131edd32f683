// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"net/netip"
	"strings"
	"testing"
)

func bridgedRules() Rules {
	return Rules{
		Mode: TProxy, Port: 12443, TCP: true, Bridged: true,
		Clients: []string{"br-client"}, Uplinks: []string{"br-client"}, NotTCP: []Ports{{25, 25}},
		Exclude: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7")},
		Bridges: []*BridgePort{
			{Name: "bat0", Index: 2, Device: "br-client", DeviceIndex: 3, MAC: [6]byte{2, 0, 0, 0, 0, 1}},
			{Name: "bat0", Index: 2, Device: "br-client.7", DeviceIndex: 4, MAC: [6]byte{2, 0, 0, 0, 0, 1}, VLAN: 7},
			{Name: "mesh-vpn", Index: 5, Device: "br-client", DeviceIndex: 3, MAC: [6]byte{2, 0, 0, 0, 0, 1}},
		},
	}
}

func TestBridgeRules(t *testing.T) {
	r := bridgedRules()
	has := func(want string, n int) {
		t.Helper()
		_, text, _ := strings.Cut(r.String(), "table bridge")
		if got := strings.Count(text, want); got != n {
			t.Errorf("%d times, not %d, %q in:\n%s", got, n, want, r.String())
		}
	}
	has("queue flags bypass to 25201", 6)
	has("vlan id 7", 2)
	has(`oifname "bat0" iifname "mesh-vpn" return`, 1)
	has(`oifname "bat0" iifname "bat0" return`, 1)
	has("tcp dport 25 return", 1)
	has("ip daddr 10.0.0.0/8 return", 1)
	has("02:00:00:00:00:01", 6)
	r.Mode = Redirect // without an address of the node, nothing can be redirected
	has("queue", 0)
	r.Node = []netip.Addr{netip.MustParseAddr("fd00::1")}
	has("queue", 3)
	// While the gateway is away, taken connections continue.
	r.Bridges = nil
	has("queue", 0)
	has("ether daddr set", 2)
	r.Bridged = false
	has("", 1)
}
