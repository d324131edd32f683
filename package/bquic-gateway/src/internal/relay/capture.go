// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"bquic/internal/special"
)

const (
	table = "bquic_relay"

	// TPROXY: packets with the mark are delivered locally by a route of its
	// own. The rule stands before those of mwan3 (1001 and up), and the mark is
	// outside of its mask (0x3f00).
	routeMark  = "0x62710000"
	routeTable = "25201"
	rulePref   = "91"
)

// never are the prefixes that are not taken: private, local and special ones.
var never = special.Prefixes()

// A capture describes the nftables table.
type capture struct {
	mode       string
	port       int
	interfaces []string
	exclude    []netip.Prefix
	ports      []PortRange // not taken
	udp        []PortRange // of UDP, which is taken by TPROXY in both modes
	routed     bool        // addRoutes was called
	take       bool        // new connections; if not, the kernel forwards them
}

// script returns input for nft(8) that replaces the table in one transaction.
// All strings in it are checked ones (Config.withDefaults) or our own.
//
// Only prerouting of the given interfaces is hooked, so nothing that the relay
// itself sends can come back to it. The priorities are just after dstnat and
// mangle, so rules of the operator's own come first.
func (c *capture) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", table)
	var v4, v6 []string
	for _, p := range append(append([]netip.Prefix{}, never...), c.exclude...) {
		p = p.Masked()
		if p.Addr().Is4() {
			v4 = append(v4, p.String())
		} else {
			v6 = append(v6, p.String())
		}
	}
	set := "\tset %s { type %s; flags interval; auto-merge; elements = { %s } }\n"
	fmt.Fprintf(&b, set, "exclude4", "ipv4_addr", strings.Join(v4, ", "))
	fmt.Fprintf(&b, set, "exclude6", "ipv6_addr", strings.Join(v6, ", "))

	hook, verdict := "nat hook prerouting priority dstnat + 5", fmt.Sprintf("redirect to :%d", c.port)
	if c.mode == TProxy {
		hook = "filter hook prerouting priority mangle + 5"
		verdict = fmt.Sprintf("tproxy to :%d meta mark set %s accept", c.port, routeMark)
	}
	fmt.Fprintf(&b, "\tchain prerouting {\n\t\ttype %s; policy accept;\n", hook)
	fmt.Fprintf(&b, "\t\tiifname != { \"%s\" } return\n", strings.Join(c.interfaces, `", "`))
	fmt.Fprintf(&b, "\t\tmeta l4proto != tcp return\n")
	if c.mode == TProxy {
		// Connections that were taken stay so, also while no new ones are.
		fmt.Fprintf(&b, "\t\ttcp flags & (syn | ack) != syn socket transparent 1 meta mark set %s accept\n", routeMark)
		fmt.Fprintf(&b, "\t\ttcp flags & (syn | ack | fin | rst) != syn return\n")
	}
	if !c.take {
		// What follows stays, unreachable: where no firewall does, the redirect
		// rule keeps conntrack on, and with it the translation of the
		// connections that were taken before.
		fmt.Fprintf(&b, "\t\treturn\n")
	}
	fmt.Fprintf(&b, "\t\tfib daddr type { local, broadcast, anycast, multicast } return\n")
	fmt.Fprintf(&b, "\t\tip daddr @exclude4 return\n\t\tip6 daddr @exclude6 return\n")
	if len(c.ports) > 0 {
		fmt.Fprintf(&b, "\t\ttcp dport { %s } return\n", elements(c.ports))
	}
	fmt.Fprintf(&b, "\t\tmeta l4proto tcp %s\n\t}\n", verdict)
	if len(c.udp) > 0 {
		fmt.Fprintf(&b, "\tchain datagrams {\n\t\ttype filter hook prerouting priority mangle + 5; policy accept;\n")
		fmt.Fprintf(&b, "\t\tiifname != { \"%s\" } return\n\t\tmeta l4proto != udp return\n", strings.Join(c.interfaces, `", "`))
		if !c.take { // flows go on while their sockets are there
			fmt.Fprintf(&b, "\t\tsocket transparent 1 meta mark set %s accept\n\t\treturn\n", routeMark)
		}
		fmt.Fprintf(&b, "\t\tfib daddr type { local, broadcast, anycast, multicast } return\n")
		fmt.Fprintf(&b, "\t\tip daddr @exclude4 return\n\t\tip6 daddr @exclude6 return\n")
		fmt.Fprintf(&b, "\t\tudp dport { %s } tproxy to :%d meta mark set %s accept\n\t}\n", elements(c.udp), c.port, routeMark)
	}
	b.WriteString("}\n")
	return b.String()
}

func elements(ports []PortRange) string {
	var all []string
	for _, p := range ports {
		all = append(all, p.String())
	}
	return strings.Join(all, ", ")
}

func nft(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	return run(cmd)
}

// removeTable removes our table, if it is there.
func removeTable() error {
	return nft(fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", table))
}

// addRoutes makes marked packets local ones where TPROXY is used, after removing
// what a killed relay may have left.
func (c *capture) addRoutes() error {
	if c.routed || c.mode != TProxy && len(c.udp) == 0 {
		return nil
	}
	c.routed = true
	removeRoutes()
	for _, family := range families() {
		if err := ip(family, "rule", "add", "pref", rulePref, "fwmark", routeMark, "table", routeTable); err != nil {
			return err
		}
		if err := ip(family, "route", "add", "local", "default", "dev", "lo", "table", routeTable); err != nil {
			return err
		}
	}
	return nil
}

func removeRoutes() {
	for _, family := range families() {
		for range 16 { // a rule can be there more than once
			if ip(family, "rule", "del", "pref", rulePref, "fwmark", routeMark, "table", routeTable) != nil {
				break
			}
		}
		_ = ip(family, "route", "flush", "table", routeTable)
	}
}

func families() []string {
	if hasIPv6() {
		return []string{"-4", "-6"}
	}
	return []string{"-4"}
}

// hasIPv6 reports whether the kernel has IPv6 at all.
func hasIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func ip(args ...string) error { return run(exec.Command("ip", args...)) }

// run returns the first line that cmd complained with.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if line, _, _ := bytes.Cut(bytes.TrimSpace(out), []byte("\n")); len(line) > 0 {
		err = errors.New(string(line))
	}
	return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
}

// listen returns a listener per IP version.
func (c *capture) listen(ctx context.Context) ([]*net.TCPListener, error) {
	var lc net.ListenConfig
	if c.mode == TProxy {
		lc.Control = control(option{unix.SOL_IP, unix.IP_TRANSPARENT}, option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT})
	}
	networks := []string{"tcp4"}
	if hasIPv6() {
		networks = append(networks, "tcp6")
	}
	var listeners []*net.TCPListener
	for _, network := range networks {
		l, err := lc.Listen(ctx, network, fmt.Sprintf(":%d", c.port))
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l.(*net.TCPListener))
	}
	return listeners, nil
}

var errNotTaken = errors.New("connected to the relay's own port")

// target returns what the client of a taken connection wanted to connect to.
func (c *capture) target(client *net.TCPConn) (netip.AddrPort, error) {
	local := unmap(client.LocalAddr().(*net.TCPAddr).AddrPort())
	target := local
	if c.mode == Redirect {
		var err error
		if target, err = originalDst(client, local.Addr().Is4()); err != nil {
			return target, err
		}
		if target == local {
			return target, errNotTaken
		}
	} else if int(target.Port()) == c.port && isOwn(target.Addr()) {
		return target, errNotTaken
	}
	return target, nil
}

func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

func isOwn(addr netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // rather refuse than loop
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == addr {
			return true
		}
	}
	return false
}

// originalDst asks conntrack for the destination before REDIRECT.
// SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST have the same number.
func originalDst(conn *net.TCPConn, v4 bool) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	level := unix.SOL_IPV6
	if v4 {
		level = unix.SOL_IP
	}
	// The only getsockopt in x/sys with room for a sockaddr of either version.
	var info *unix.IPv6MTUInfo
	cerr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptIPv6MTUInfo(int(fd), level, unix.SO_ORIGINAL_DST)
	})
	if err = errors.Join(cerr, err); err != nil {
		return netip.AddrPort{}, fmt.Errorf("no original destination: %w", err)
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, info.Addr.Port))
	addr := netip.AddrFrom16(info.Addr.Addr).Unmap()
	if v4 { // in sockaddr_in the address stands in the place of the flow label
		addr = netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, info.Addr.Flowinfo)))
	}
	return netip.AddrPortFrom(addr, port), nil
}
