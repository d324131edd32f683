// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// aLink returns a message about a VLAN on a device.
func aLink(t testing.TB) []byte {
	t.Helper()
	nest := func(attrs ...netlink.Attribute) []byte {
		b, err := netlink.MarshalAttributes(attrs)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	header := make([]byte, unix.SizeofIfInfomsg)
	copy(header[4:], native(7))
	return append(header, nest(
		netlink.Attribute{Type: unix.IFLA_IFNAME, Data: []byte("br-lan.10\x00")},
		netlink.Attribute{Type: unix.IFLA_LINK, Data: native(3)},
		netlink.Attribute{Type: unix.IFLA_ADDRESS, Data: []byte{2, 0, 0, 0, 0, 1}},
		netlink.Attribute{Type: unix.IFLA_LINKINFO | unix.NLA_F_NESTED, Data: nest(
			netlink.Attribute{Type: unix.IFLA_INFO_KIND, Data: []byte("vlan\x00")},
			netlink.Attribute{Type: unix.IFLA_INFO_DATA | unix.NLA_F_NESTED, Data: nest(
				netlink.Attribute{Type: unix.IFLA_VLAN_ID, Data: native(10)[:2]},
			)},
		)},
	)...)
}

func TestReadLink(t *testing.T) {
	l, ok := readLink(aLink(t))
	if !ok || l.index != 7 || l.name != "br-lan.10" || l.below != 3 || l.kind != "vlan" || l.mac != [6]byte{2, 0, 0, 0, 0, 1} {
		t.Errorf("read %+v, %v", l, ok)
	}
}

func FuzzReadLink(f *testing.F) {
	f.Add(aLink(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := readLink(b); ok && (l.name == "" || len(l.vlans) > len(b)) {
			t.Errorf("read %+v", l)
		}
		if n := readNeighbour(b); n.mac != nil && len(n.mac) != 6 {
			t.Errorf("read %+v", n)
		}
	})
}

// TestLeaves checks the tag with which frames of a VLAN leave.
func TestLeaves(t *testing.T) {
	bridge := &link{filter: true, vlans: []bridgeVLAN{{id: 1, pvid: true, untagged: true}, {id: 7}}}
	trunk := &link{vlans: []bridgeVLAN{{id: 1, pvid: true, untagged: true}, {id: 7}}}
	access := &link{vlans: []bridgeVLAN{{id: 7, pvid: true, untagged: true}}}
	for _, tc := range []struct {
		name         string
		bridge, port *link
		vlan, tag    uint16
		ok           bool
	}{
		{"a bridge that knows no VLANs", &link{}, &link{}, 0, 0, true},
		{"a tag that such a bridge hands on", &link{}, &link{}, 7, 7, true},
		{"the bridge's own, by a trunk", bridge, trunk, 0, 0, true},
		{"a VLAN by a trunk", bridge, trunk, 7, 7, true},
		{"a VLAN by its access port", bridge, access, 7, 0, true},
		{"a VLAN that the port is not in", bridge, access, 0, 0, false},
	} {
		if tag, ok := leaves(tc.bridge, tc.port, tc.vlan); tag != tc.tag || ok != tc.ok {
			t.Errorf("%s: %d, %v", tc.name, tag, ok)
		}
	}
}

// TestLookOnce checks that a look at a bridge reads the routes once, of which a mesh may have thousands.
func TestLookOnce(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test, in its own namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	batch := []string{"link add br-lan type bridge", "link set lo up", "link set br-lan up", "addr add 10.7.0.1/24 dev br-lan", "route add default via 10.7.0.2"}
	for i := range 1000 {
		batch = append(batch, fmt.Sprintf("route add 10.8.%d.%d via 10.7.0.2", i/250, i%250))
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(batch, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	once := testing.AllocsPerRun(3, func() { ways(conn, nil) })
	look := testing.AllocsPerRun(3, func() {
		if n, err := Look([]string{"br-lan"}, nil, nil); err != nil || !slices.Equal(n.Uplinks, []string{"br-lan"}) {
			t.Errorf("%+v, %v", n, err)
		}
	})
	if look > 1.5*once {
		t.Errorf("%.0f allocations, where reading the routes takes %.0f", look, once)
	}
}
