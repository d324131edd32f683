// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// apart moves the test's thread to a network namespace of its own, with which it ends.
func apart(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// xfrm runs commands of ip xfrm.
func xfrm(t *testing.T, commands ...string) {
	t.Helper()
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader("xfrm " + strings.Join(commands, "\nxfrm ") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v: %s", err, out)
	}
}

// TestProtected has the kernel list policies, in the ways in which IKE daemons write them.
func TestProtected(t *testing.T) {
	apart(t)
	conn, err := netlink.Dial(unix.NETLINK_XFRM, nil)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Skip("this kernel has no IPsec")
	} else if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	const (
		lan    = "src 10.77.0.0/24 dst 203.0.113.0/24"
		tunnel = " tmpl src 10.78.0.1 dst 10.78.0.2 proto esp mode tunnel"
	)
	packet := func(client, target string, change func(*Packet)) *Packet {
		p := &Packet{Client: netip.MustParseAddrPort(client), Target: netip.MustParseAddrPort(target), In: 7, Out: 1}
		if change != nil {
			change(p)
		}
		return p
	}
	phone := packet("10.77.0.2:40000", "203.0.113.2:80", nil)
	for _, tc := range []struct {
		name     string
		policies []string
		packet   *Packet
		want     bool
	}{
		{"no policy", nil, phone, false},
		{"a tunnel", []string{lan + " dir out" + tunnel}, phone, true},
		{"everything", []string{"src 0.0.0.0/0 dst 0.0.0.0/0 dir out" + tunnel}, phone, true},
		{"another client", []string{lan + " dir out" + tunnel}, packet("10.77.1.2:40000", "203.0.113.2:80", nil), false},
		{"another target", []string{lan + " dir out" + tunnel}, packet("10.77.0.2:40000", "203.0.112.2:80", nil), false},
		{"what arrives", []string{lan + " dir in" + tunnel, lan + " dir fwd" + tunnel}, phone, false},
		{"IPv6", []string{"src fd77::/64 dst 2001:db8:77::/48 dir out tmpl src fd78::1 dst fd78::2 proto esp mode tunnel"}, packet("[fd77::2]:40000", "[2001:db8:77::2]:80", nil), true},
		{"another prefix of IPv6", []string{"src fd77::/64 dst 2001:db8:77::/48 dir out tmpl src fd78::1 dst fd78::2 proto esp mode tunnel"}, packet("[fd77::2]:40000", "[2001:db8:78::2]:80", nil), false},
		{"all of IPv6, for IPv4", []string{"src ::/0 dst ::/0 dir out tmpl src fd78::1 dst fd78::2 proto esp mode tunnel"}, phone, false},
		{"a port of TCP", []string{lan + " proto tcp dport 80 dir out" + tunnel}, phone, true},
		{"another port", []string{lan + " proto tcp dport 81 dir out" + tunnel}, phone, false},
		{"a client's port", []string{lan + " proto tcp sport 40000 dir out" + tunnel}, phone, true},
		{"another client's port", []string{lan + " proto tcp sport 40001 dir out" + tunnel}, phone, false},
		{"UDP, for TCP", []string{lan + " proto udp dir out" + tunnel}, phone, false},
		{"UDP", []string{lan + " proto udp dir out" + tunnel}, packet("10.77.0.2:40000", "203.0.113.2:53", func(p *Packet) { p.UDP = true }), true},
		{"TCP, for UDP", []string{lan + " proto tcp dir out" + tunnel}, packet("10.77.0.2:40000", "203.0.113.2:53", func(p *Packet) { p.UDP = true }), false},
		{"a device", []string{lan + " dev lo dir out" + tunnel}, phone, true},
		{"another device", []string{lan + " dev lo dir out" + tunnel}, packet("10.77.0.2:40000", "203.0.113.2:80", func(p *Packet) { p.Out = 2 }), false},
		{"a mark", []string{lan + " dir out mark 0x10 mask 0xf0" + tunnel}, packet("10.77.0.2:40000", "203.0.113.2:80", func(p *Packet) { p.Mark = 0x11 }), true},
		{"another mark, of a VTI", []string{lan + " dir out mark 0x10 mask 0xf0" + tunnel}, phone, false},
		{"a device of IPsec", []string{lan + " dir out" + tunnel + " if_id 5"}, phone, false},
		{"a bypass that comes first", []string{lan + " dir out priority 200" + tunnel, lan + " proto tcp dport 80 dir out priority 100"}, phone, false},
		{"a bypass that comes later", []string{lan + " dir out priority 100" + tunnel, lan + " proto tcp dport 80 dir out priority 200"}, phone, true},
		{"a bypass that is older", []string{"src 10.77.0.0/24 dst 0.0.0.0/0 dir out priority 100", lan + " dir out priority 100" + tunnel}, phone, false},
		{"a bypass that is newer", []string{lan + " dir out priority 100" + tunnel, "src 10.77.0.0/24 dst 0.0.0.0/0 dir out priority 100"}, phone, true},
		{"what is dropped", []string{lan + " dir out action block"}, phone, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			apart(t)
			for _, policy := range tc.policies {
				xfrm(t, "policy add "+policy)
			}
			var d Diverter
			d.lookForIPsec()
			if got := d.Protected(tc.packet); got != tc.want {
				t.Errorf("protected: %v", got)
			}
		})
	}
}

// aProtection returns a policy as Linux lists it.
func aProtection(t testing.TB) []byte {
	t.Helper()
	size := 168
	if runtime.GOARCH == "386" {
		size = 164
	}
	b := make([]byte, size)
	copy(b, []byte{203, 0, 113, 0})
	copy(b[16:], []byte{10, 77, 0, 0})
	binary.BigEndian.PutUint16(b[32:], 443)
	binary.BigEndian.PutUint16(b[34:], 0xffff)
	binary.NativeEndian.PutUint16(b[40:], unix.AF_INET)
	b[42], b[43], b[44], b[160] = 24, 16, unix.IPPROTO_TCP, directionOut
	binary.NativeEndian.PutUint32(b[152:], 1000)
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: attrTemplates, Data: make([]byte, 64)},
		{Type: attrXfrmMark, Data: append(native(1), native(3)...)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(b, attrs...)
}

func TestReadProtection(t *testing.T) {
	want := protection{
		client: netip.MustParsePrefix("10.77.0.0/16"), target: netip.MustParsePrefix("203.0.113.0/24"),
		targetPort: 443, targetPorts: 0xffff, protocol: unix.IPPROTO_TCP, mark: 1, marks: 3, priority: 1000,
	}
	if p, ok := readProtection(aProtection(t)); !ok || p != want {
		t.Errorf("read %+v, %v", p, ok)
	}
}

func FuzzReadProtection(f *testing.F) {
	f.Add(aProtection(f))
	p := &Packet{Client: netip.MustParseAddrPort("10.77.0.2:40000"), Target: netip.MustParseAddrPort("203.0.113.2:443"), Mark: 1}
	f.Fuzz(func(t *testing.T, b []byte) {
		if is, ok := readProtection(b); ok && is.matches(p) && (!is.client.IsValid() || !is.target.IsValid()) {
			t.Errorf("%+v matches", is)
		}
	})
}
