// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"flag"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"bquic/internal/system"
)

// answerAt answers questions for IPv4 addresses, asked at port 53 of an address, with this address.
func answerAt(t *testing.T, address netip.Addr) {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 53)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for b := make([]byte, 512); ; {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: address.As4()},
				}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
}

// TestFollowNameServers mounts the file behind /etc/resolv.conf, as ujail does. Then the file is replaced, as netifd does.
func TestFollowNameServers(t *testing.T) {
	const inside = "BQUIC_TEST_IN_NAMESPACE"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		if dir := flag.Lookup("test.gocoverdir").Value.String(); dir != "" { // scripts/test --coverage
			cmd.Args = append(cmd.Args, "-test.gocoverdir="+dir)
		}
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	written := filepath.Join(t.TempDir(), "resolv.conf.auto")
	write := func(text string) {
		if err := system.Replace(written, []byte(text), 0o644, -1); err != nil {
			t.Fatal(err)
		}
	}
	write("") // the router is booting
	if err := unix.Mount(written, resolvConf, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	followNameServers(written)
	for _, server := range []string{"127.0.0.2", "127.0.0.3"} {
		address := netip.MustParseAddr(server)
		answerAt(t, address)
		write("# Interface wan\nnameserver " + server + "\nsearch lan\n")
		if got, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", "origin.test"); err != nil || !slices.Equal(got, []netip.Addr{address}) {
			t.Errorf("with name server %s: %v, %v", server, got, err)
		}
	}

	// Any other file is what the router is to use: that of its DNS server, or the operator's.
	net.DefaultResolver = &net.Resolver{}
	followNameServers(written)
	if net.DefaultResolver.Dial != nil {
		t.Error("follows name servers that /etc/resolv.conf does not name")
	}
}

func TestInstead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf.auto")
	if got := serversIn(file); got != nil {
		t.Errorf("no file: %q", got)
	}
	text := "# Interface wan6\nnameserver 2001:db8::1\nsearch lan\nnameserver\tfe80::1%wan\nnameserver\n#nameserver 192.0.2.1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	now := serversIn(file)
	if want := []string{"[2001:db8::1]:53", "[fe80::1%wan]:53"}; !slices.Equal(now, want) {
		t.Errorf("read %q, want %q", now, want)
	}
	for _, test := range []struct {
		address, want string
		old, now      []string
	}{
		{"127.0.0.1:53", now[0], nil, now},
		{"[::1]:53", now[1], nil, now},
		{"[::1]:53", now[0], nil, now[:1]},
		{now[1], now[1], now, now},
		{"192.0.2.1:53", now[0], []string{"192.0.2.1:53"}, now},
		{"192.0.2.1:53", "192.0.2.1:53", []string{"192.0.2.1:53"}, nil},
	} {
		if got := instead(test.address, test.old, test.now); got != test.want {
			t.Errorf("%s of %q: %s, want %s", test.address, test.old, got, test.want)
		}
	}
}

// TestJailNameServers checks that the jail shows the directory in which netifd replaces the file.
func TestJailNameServers(t *testing.T) {
	if p := plan(t, Gateway, "config gateway\n\toption enabled '1'\n", nameServersDir); !slices.Contains(p.See, nameServersDir) {
		t.Errorf("sees %q", p.See)
	}
}
