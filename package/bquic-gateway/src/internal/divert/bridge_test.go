// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
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

// TestNotes checks that a connection's note goes a while after its last use, and that until then it is the one that nft shows.
func TestNotes(t *testing.T) {
	table := tableApart(t)
	defer table.close()
	if err := table.openBridge(); err != nil {
		t.Fatal(err)
	}
	d := &Diverter{table: table}
	d.bridge.users = make(map[connection]use)
	noted := func() string {
		t.Helper()
		out, err := exec.Command("nft", "list", "table", "bridge", tableName).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	other := connection{netip.MustParseAddrPort("10.0.0.9:9"), netip.MustParseAddrPort("203.0.113.9:9")}
	for _, shown := range []string{"tcp . 10.0.0.2 . 203.0.113.1 . 40000 . 443", "tcp . 2001:db8::2 . 2001:db8:1::1 . 40000 . 443"} {
		part := strings.Split(shown, " . ")
		c := connection{netip.MustParseAddrPort(net.JoinHostPort(part[1], part[3])), netip.MustParseAddrPort(net.JoinHostPort(part[2], part[4]))}
		var batch transaction
		batch.note(unix.NFT_MSG_NEWSETELEM, netlink.Create, c, value(unix.NFTA_SET_ELEM_DATA, []byte{2, 0, 0, 0, 0, 1}))
		if err := batch.commit(table.conn); err != nil {
			t.Fatal(err)
		}
		check := func(when string, want bool) {
			t.Helper()
			if text := noted(); strings.Contains(text, shown) != want {
				t.Errorf("%s: %v in:\n%s", when, !want, text)
			}
		}
		later := func() {
			for i := range d.bridge.ended {
				d.bridge.ended[i].at = d.bridge.ended[i].at.Add(-2 * linger)
			}
			d.Release(other.client, other.target)
		}
		check("noted", true)
		d.bridge.users[c] = use{1, &BridgePort{Device: "br-lan", MAC: [6]byte{2, 0, 0, 0, 0, 1}}}
		later()
		check("in use", true)
		for _, known := range []bool{true, false} { // the second time, nothing has changed
			moved := d.bridge.set([]*BridgePort{{Device: "br-guest"}, {Device: "br-lan", MAC: [6]byte{2, 0, 0, 0, 0, 2}}})
			if mac, ok := moved[c]; ok != known {
				t.Errorf("with another address: %v", moved)
			} else if ok {
				if err := table.renew(c, mac); err != nil {
					t.Error(err)
				}
			}
		}
		if text := noted(); !strings.Contains(text, "02:00:00:00:00:02") || strings.Contains(text, "02:00:00:00:00:01") {
			t.Errorf("with another address:\n%s", text)
		}
		d.Release(c.client, c.target)
		check("just ended", true)
		d.bridge.users[c] = use{n: 1} // its client uses the port again
		later()
		check("in use again", true)
		d.Release(c.client, c.target)
		later()
		check("ended", false)
		later() // for one that is not noted, too
	}
}
