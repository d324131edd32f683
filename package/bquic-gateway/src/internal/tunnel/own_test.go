// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace runs the test again in a process with a separate network namespace,
// and reports whether this is that process. The namespace ends with the process.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "BQUIC_TEST_IN_NAMESPACE"
	if os.Getenv(inside) != "" {
		ip(t, "link set lo up")
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test makes a network namespace: run it as root")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	if dir := flag.Lookup("test.gocoverdir").Value.String(); dir != "" { // scripts/test --coverage
		cmd.Args = append(cmd.Args, "-test.gocoverdir="+dir)
	}
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func ip(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %s", command, out)
	}
}

// waitForRoutes waits for IPv6 routes of the table local. The kernel adds them when it has noticed the
// device's carrier, which can take seconds on a busy machine.
func waitForRoutes(t *testing.T, routes ...string) {
	t.Helper()
	for range 600 {
		out, err := exec.Command("ip", "-6", "route", "show", "table", "local").CombinedOutput()
		if err != nil {
			t.Fatalf("ip: %s", out)
		}
		if !slices.ContainsFunc(routes, func(r string) bool { return !strings.Contains(string(out), r) }) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the addresses have no routes")
}

// TestOwnForms tries every form of address that the kernel would deliver to the
// router itself, in a network namespace that forwards like a router.
func TestOwnForms(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{
		"link add wan type veth peer name far",
		"link set wan up", "link set far up",
		"addr add 203.0.113.1/24 dev wan", "addr add 198.51.100.1/30 dev wan", "addr add 198.51.100.9/31 dev wan",
		"-6 addr add 2001:db8:77::1/64 dev wan nodad", "-6 addr add 2001:db8:127::1/127 dev wan nodad",
		"-6 addr add fe80::1/64 dev wan nodad",
		"route add default via 203.0.113.2", "-6 route add default via 2001:db8:77::2",
		"route add local 192.0.2.0/28 dev lo", "-6 route add local 2001:db8:99::/64 dev lo", // AnyIP
		"route add blackhole 192.0.2.128/25",
	} {
		ip(t, command)
	}
	waitForRoutes(t, "local 2001:db8:77::1 ", "anycast 2001:db8:77:: ", "local 2001:db8:127::1 ", "local fe80::1 ")
	// Join a reserved anycast address (RFC 2526).
	reserved := netip.MustParseAddr("2001:db8:77::fdff:ffff:ffff:fffe")
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_ANYCAST, &unix.IPv6Mreq{Multiaddr: reserved.As16()}); err != nil {
		t.Fatal(err)
	}

	for _, tc := range []struct {
		host  string
		allow string // prefixes
		own   bool
	}{
		{"203.0.113.1", "", true},
		{"203.0.113.255", "", true}, // broadcast
		{"203.0.113.0", "", true},   // as in 4.2BSD
		{"198.51.100.0", "", true},
		{"198.51.100.3", "", true},
		{"198.51.100.9", "", true},
		{"198.51.100.8", "", false}, // RFC 3021: the neighbour
		{"203.0.113.2", "", false},
		{"192.0.2.7", "", true},
		{"192.0.2.77", "", false},
		{"2001:db8:77::1", "", true},
		{"2001:db8:77::", "", true}, // subnet-router anycast, RFC 4291, section 2.6.1
		{"2001:db8:77::2", "", false},
		{"2001:db8:127::1", "", true},
		{"2001:db8:127::", "", false}, // RFC 6164: the neighbour
		{"2001:db8:99::1234", "", true},
		{reserved.String(), "", true},
		{"::ffff:203.0.113.1", "", true},
		{"64:ff9b::203.0.113.1", "", true}, // NAT64
		{"64:ff9b::203.0.113.255", "", true},
		{"64:ff9b::203.0.113.2", "", false},
		{"2002:cb00:7101::1", "", true}, // 6to4
		{"fe80::1%wan", "fe80::/10", true},
		{"fe80::%wan", "fe80::/10", true},
		{"fe80::2%wan", "fe80::/10", false},
		{"fe80::1%wan", "fe80::1/128", false},
		// Allowed only by a prefix for the address alone.
		{"2001:db8:77::", "2001:db8::/32", true},
		{"2001:db8:77::", "2001:db8:77::/128", false},
		{"203.0.113.1", "203.0.113.0/24", true},
		{"203.0.113.1", "203.0.113.1/32", false},
		{"127.0.0.5", "127.0.0.0/8", false},
	} {
		var allow []netip.Prefix
		for a := range strings.FieldsSeq(tc.allow) {
			allow = append(allow, netip.MustParsePrefix(a))
		}
		for _, network := range []string{"udp", "tcp"} {
			if network == "tcp" && !tc.own {
				continue // no host answers there
			}
			conn, err := newHandler(nil).dial(context.Background(), network, net.JoinHostPort(tc.host, "9"), allow)
			if err == nil {
				conn.Close()
			}
			var refusal *Refusal
			prohibited := errors.As(err, &refusal) && refusal.Type == TargetProhibited
			if prohibited != tc.own {
				t.Errorf("%s %s, allowed are [%s]: %v", network, tc.host, tc.allow, err)
			}
		}
	}
}

// TestBehind has a gateway that is the router of a home, whose hosts have public addresses. Its clients reach these only if the operator names them.
func TestBehind(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	for _, command := range []string{
		"link add wan type veth peer name far", "link add lan type veth peer name near",
		"link set wan up", "link set far up", "link set lan up", "link set near up",
		"addr add 203.0.113.1/24 dev wan", "-6 addr add 2001:db8:77::1/64 dev wan nodad",
		"addr add 198.51.100.1/24 dev lan", "-6 addr add 2001:db8:5::1/64 dev lan nodad",
		"route add default via 203.0.113.2", "-6 route add default via 2001:db8:77::2",
		"route add 192.0.2.0/24 via 198.51.100.9", "-6 route add 2001:db8:6::/64 via 2001:db8:5::9", // another router's
		"route add 128.0.0.0/1 dev lan",
	} {
		ip(t, command)
	}
	waitForRoutes(t, "local 2001:db8:77::1 ", "local 2001:db8:5::1 ")
	prohibited := func(host, allow string) bool {
		var prefixes []netip.Prefix
		if allow != "" {
			prefixes = append(prefixes, netip.MustParsePrefix(allow))
		}
		conn, err := newHandler(nil).dial(context.Background(), "udp", net.JoinHostPort(host, "9"), prefixes)
		if err == nil {
			conn.Close()
		}
		var refusal *Refusal
		return errors.As(err, &refusal) && refusal.Type == TargetProhibited
	}
	for _, tc := range []struct {
		host, allow string
		prohibited  bool
	}{
		{"198.51.100.7", "", true},
		{"198.51.100.7", "0.0.0.0/0", true},
		{"198.51.100.7", "198.51.100.0/24", false},
		{"198.51.100.7", "198.51.100.7/32", false},
		{"2001:db8:5::7", "", true},
		{"2001:db8:5::7", "2001:db8::/32", true},
		{"2001:db8:5::7", "2001:db8:5::/64", false},
		{"203.0.113.7", "", false}, // on the uplink
		{"2001:db8:77::7", "", false},
		{"192.0.2.7", "", false},
		{"2001:db8:6::7", "", false},
		{"192.1.2.3", "", false}, // by what stands in for a default route
		{"1.2.3.4", "", false},
		{"2600::1", "", false},
	} {
		if is := prohibited(tc.host, tc.allow); is != tc.prohibited {
			t.Errorf("%s, allowed are [%s]: prohibited %v", tc.host, tc.allow, is)
		}
	}
	// Without a default route, the Internet may be anywhere.
	ip(t, "route del default")
	ip(t, "-6 route del default")
	for _, host := range []string{"198.51.100.7", "2001:db8:5::7"} {
		if prohibited(host, "") {
			t.Errorf("%s is prohibited without a default route", host)
		}
	}
}
