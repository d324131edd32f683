// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClientRoutes checks that a bridged client to which the node has no route gets one for
// as long as it is needed, and that a client that the node reaches otherwise gets none.
func TestClientRoutes(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	ip := func(args string) string {
		t.Helper()
		out, err := exec.Command("ip", strings.Fields(args)...).Output()
		if err != nil && !strings.Contains(args, "show") { // ip fails if the table is empty
			t.Fatalf("ip %s: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	for _, args := range []string{
		"link set lo up", "link add br0 type bridge", "link set br0 up", "link add wan type bridge", "link set wan up",
		"link add br1 type bridge", "link set br1 up",
		"addr add 10.1.0.1/24 dev br0", "addr add 10.2.0.1/24 dev wan", "route add default via 10.2.0.9",
		"route add blackhole 192.0.2.4", "route add unreachable 192.0.2.5", "route add prohibit 192.0.2.6", "route add 198.51.100.0/24 dev br0",
		"route add 203.0.114.0/24 via 10.1.0.9",
	} {
		ip(args)
	}
	indexes, err := deviceIndexes(t)
	if err != nil {
		t.Fatal(err)
	}
	br := indexes["br0"]
	d := new(Diverter)
	d.bridge.routes, d.bridge.users = make(map[netip.Addr]*clientRoute), make(map[connection]use)
	if d.bridge.routing, err = toClients().add(); err != nil {
		t.Fatal(err)
	}
	reach := func(client, target string, anyTarget bool) error {
		p := Packet{Client: netip.AddrPortFrom(netip.MustParseAddr(client), 1), Target: netip.AddrPortFrom(netip.MustParseAddr(target), 80), Bridge: br}
		return d.Reach(&p, anyTarget)
	}
	release := func(client, target string) {
		d.Release(netip.AddrPortFrom(netip.MustParseAddr(client), 1), netip.AddrPortFrom(netip.MustParseAddr(target), 80))
	}
	const world = "203.0.113.1"
	for _, tc := range []struct {
		name, client, target string
		anyTarget            bool
		want                 error
		route                string
	}{
		{"of the bridge's prefix", "10.1.0.2", world, false, nil, ""},
		{"of an unknown prefix", "10.7.0.2", world, false, nil, "10.7.0.2 dev br0 proto static scope link"},
		{"behind a router of the bridge", "203.0.114.5", world, false, nil, "203.0.114.5 dev br0 proto static scope link"},
		{"of another device", "10.2.0.2", world, false, errClient, ""},
		{"the node's own", "10.2.0.1", world, false, errClient, ""},
		{"a blackhole", "10.1.0.2", "192.0.2.4", true, errTarget, ""},
		{"unreachable", "10.1.0.2", "192.0.2.5", true, errTarget, ""},
		{"prohibited", "10.1.0.2", "192.0.2.6", true, errTarget, ""},
		{"the node itself", "10.1.0.2", "10.2.0.1", true, errTarget, ""},
		{"on the bridge", "10.1.0.2", "198.51.100.7", true, errOnLink, ""},
		{"behind a router of the bridge", "10.1.0.2", "203.0.114.5", false, nil, ""},
		{"on another device", "10.1.0.2", "10.2.0.5", false, nil, ""},
		{"no route", "10.1.0.2", "2001:db8::1", false, errTarget, ""},
		{"no route, and none is needed", "10.1.0.2", "2001:db8::1", true, nil, ""},
		{"no route to the client, either", "2001:db8:7::2", "2001:db8::1", true, nil, ""}, // ip shows IPv4's
	} {
		if err := reach(tc.client, tc.target, tc.anyTarget); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := ip("route show table 192"); got != tc.route {
			t.Errorf("%s: the routes are %q", tc.name, got)
		}
		client := netip.MustParseAddr(tc.client)
		release(tc.client, tc.target)
		if r := d.bridge.routes[client]; r != nil { // late packets still have a route
			r.last = r.last.Add(-linger - time.Second)
			release("0.0.0.0", world)
		}
		if got := ip("route show table 192"); got != "" {
			t.Errorf("%s: the routes are %q in the end", tc.name, got)
		}
	}
	// As netifd makes it: a default route for the node's own addresses only.
	ip("-6 addr add 2001:db8:5::1/64 dev br0 nodad")
	ip("-6 route add default from 2001:db8:5::/64 via 2001:db8:5::9 dev br0")
	if err := reach("2001:db8:5::2", "2001:db8::1", false); err != nil {
		t.Errorf("by a default route for some sources: %v", err)
	}
	ip("-6 addr del 2001:db8:5::1/64 dev br0")
	if err := reach("2001:db8:5::2", "2001:db8::1", false); !errors.Is(err, errTarget) {
		t.Errorf("by a default route for other sources: %v", err)
	}
	// The connections of a client share its route, which stays for a while after the last one, however long that took.
	client := netip.MustParseAddr("10.7.0.2")
	routed := func(what, dev string) {
		t.Helper()
		if got := ip("route show table 192"); got != "10.7.0.2 dev "+dev+" proto static scope link" {
			t.Errorf("%s: the routes are %q", what, got)
		}
	}
	for range 2 {
		if err := reach("10.7.0.2", world, false); err != nil {
			t.Error(err)
		}
	}
	for _, what := range []string{"one of two has ended", "both have ended"} {
		r := d.bridge.routes[client]
		r.last = r.last.Add(-2 * linger)
		release("0.0.0.0", world)
		routed("before "+what, "br0")
		release("10.7.0.2", world)
		routed(what, "br0")
	}
	// It may then be a client of another bridge.
	br = indexes["br1"]
	if err := reach("10.7.0.2", world, false); err != nil {
		t.Error(err)
	}
	routed("by another bridge", "br1")
	br = indexes["br0"]
	if err := reach("10.7.0.2", world, false); !errors.Is(err, errClient) {
		t.Errorf("a client of another bridge: %v", err)
	}
	for i := range maxRoutes {
		d.bridge.routes[netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)})] = &clientRoute{users: 1}
	}
	if err := reach("10.7.0.3", world, false); !errors.Is(err, errRoom) {
		t.Errorf("too many clients: %v", err)
	}
	d.bridge.routes, d.bridge.users = make(map[netip.Addr]*clientRoute), make(map[connection]use)
	// Left behind by a process that was killed together with its guard.
	if err := reach("10.7.0.2", world, false); err != nil {
		t.Error(err)
	}
	if err := Clean(); err != nil {
		t.Error(err)
	}
	if got := ip("route show table 192") + ip("rule show pref 92"); got != "" {
		t.Errorf("there is still %q", got)
	}
	d.bridge.close()
}

// TestGuardKilled checks that the rules go with their process also if the guard was killed before.
func TestGuardKilled(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	rules := func() string {
		var all string
		for _, args := range [][]string{{"rule"}, {"-6", "rule"}, {"route", "show", "table", "all"}} {
			out, err := exec.Command("ip", args...).Output()
			if err != nil {
				t.Fatal(err)
			}
			all += string(out)
		}
		return all
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := rules()
	for _, s := range []steering{toSockets(ClientMark), toClients()} {
		r, err := s.add()
		if err != nil {
			t.Fatal(err)
		}
		if rules() == before {
			t.Error("no rule was added")
		}
		if err := r.guard.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.remove()
		if now := rules(); now != before {
			t.Errorf("before:\n%safterwards:\n%s", before, now)
		}
	}
}

// TestBridgeLater checks that bridged connections are taken once there is room again for the guard of their routing rules.
func TestBridgeLater(t *testing.T) {
	table := tableApart(t)
	defer table.close()
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := &Diverter{table: table}
	defer d.bridge.close()
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: files.Max}); err != nil {
		t.Fatal(err)
	}
	err := d.openBridge()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || d.BridgeProblem() == nil {
		t.Errorf("without a file for the guard's pipe: %v", err)
	}
	if err := d.openBridge(); err != nil || d.BridgeProblem() != nil || d.bridge.routing == nil {
		t.Errorf("with one again: %v", err)
	}
	for lack, forever := range map[error]bool{unix.ENOMEM: false, unix.ENOENT: true} {
		d.bridge.fail(fmt.Errorf("rules of the ports: %w", lack)) // as Apply does
		if err := d.openBridge(); (err != nil) != forever || (d.BridgeProblem() != nil) != forever {
			t.Errorf("after %v: %v", lack, err)
		}
		d.bridge.problem = nil
	}
}

// deviceIndexes returns the indexes of the devices.
func deviceIndexes(t *testing.T) (map[string]int, error) {
	t.Helper()
	interfaces, err := net.Interfaces()
	indexes := make(map[string]int)
	for _, dev := range interfaces {
		indexes[dev.Name] = dev.Index
	}
	return indexes, err
}

// TestClientRoutesRestored restarts the network: connections of bridged clients do not end with their device.
func TestClientRoutesRestored(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	up := func() {
		ip("link add br0 type bridge")
		ip("link set br0 up")
		ip("addr add 10.1.0.1/24 dev br0")
		ip("route add default via 10.1.0.9")
	}
	up()
	d := new(Diverter)
	d.bridge.routes, d.bridge.users = make(map[netip.Addr]*clientRoute), make(map[connection]use)
	var err error
	if d.bridge.routing, err = toClients().add(); err != nil {
		t.Fatal(err)
	}
	defer d.bridge.close()
	indexes, err := deviceIndexes(t)
	if err != nil {
		t.Fatal(err)
	}
	clients := []string{"10.7.0.2", "10.7.0.3", "2001:db8:7::2"}
	for _, client := range clients {
		p := Packet{Client: netip.AddrPortFrom(netip.MustParseAddr(client), 1), Target: netip.MustParseAddrPort("203.0.113.1:80"), Bridge: indexes["br0"]}
		if err := d.Reach(&p, false); err != nil {
			t.Fatal(err)
		}
	}
	routed := func(when string) {
		t.Helper()
		if err := d.Precede(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		var is string
		for _, family := range []string{"-4", "-6"} {
			out, _ := exec.Command("ip", family, "route", "show", "table", "192").Output()
			is += string(out)
		}
		for _, client := range clients {
			if !strings.Contains(is, client+" dev br0 ") {
				t.Errorf("%s: the routes are %q, without %s", when, is, client)
			}
		}
	}
	routed("before")
	ip("link set br0 down")
	if err := d.Precede(); err != nil {
		t.Error(err)
	}
	ip("link set br0 up")
	routed("after the bridge was down")
	ip("link del br0")
	if err := d.Precede(); err != nil {
		t.Error(err)
	}
	up()
	routed("with a new bridge of the same name")
}
