// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/special"
	"bquic/internal/tunnel"
)

// never lists the prefixes that are never taken: private, local and other special ones.
var never = special.Prefixes()

// listen returns a listener for each IP version.
func listen(ctx context.Context, s *settings) ([]*net.TCPListener, error) {
	// Accepted connections inherit the mark. Without one, they would have that of their SYN (net.ipv4.tcp_fwmark_accept).
	// They send from addresses that the node does not have, or no longer has.
	lc := net.ListenConfig{Control: control(option{unix.SOL_SOCKET, unix.SO_MARK, divert.ClientMark},
		option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}, option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1})}
	// The kernel does not tell the original destination of a Multipath TCP connection, which Go's listeners take by default.
	lc.SetMultipathTCP(false)
	networks := []string{"tcp4"}
	if divert.HasIPv6() {
		networks = append(networks, "tcp6")
	}
	var listeners []*net.TCPListener
	for _, network := range networks {
		l, err := lc.Listen(ctx, network, fmt.Sprintf(":%d", s.Port))
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

// sparing returns tunnel.Sparing, or what asks sooner: an operator may have told conntrack to forget idle connections sooner. The node would
// then forward the rest of a carried one to its target, which does not know it.
func sparing() net.KeepAliveConfig {
	config := tunnel.Sparing
	text, _ := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established")
	if seconds, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		all := config.Idle + time.Duration(config.Count)*config.Interval // a client may be away for as long
		config.Idle = min(config.Idle, max(time.Duration(seconds/2), 1)*time.Second)
		config.Interval = min(config.Interval, config.Idle)
		config.Count = min(int((all-config.Idle)/config.Interval), 127) // MAX_TCP_KEEPCNT
	}
	return config
}

var errNotTaken = errors.New("connected to the relay's own port")

// targetOf returns the original target of a taken connection.
func (s *settings) targetOf(client *net.TCPConn) (netip.AddrPort, error) {
	local := unmap(client.LocalAddr().(*net.TCPAddr).AddrPort())
	target := local
	if s.Mode == divert.Redirect {
		var err error
		if target, err = originalDst(client, local.Addr().Is4()); err != nil {
			return target, err
		}
		if target == local {
			return target, errNotTaken
		}
	} else if int(target.Port()) == s.Port {
		if own, err := isOwn(target.Addr()); own || err != nil { // refuse rather than loop
			return target, errNotTaken
		}
	}
	return target, nil
}

func unmap(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// isOwn reports whether a device of this machine has the address.
func isOwn(addr netip.Addr) (bool, error) {
	addrs, err := net.InterfaceAddrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr() == addr
	}), err
}

// originalDst asks conntrack for the destination before translation.
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
	// This is the only getsockopt in x/sys with room for a sockaddr of either
	// IP version.
	var info *unix.IPv6MTUInfo
	cerr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptIPv6MTUInfo(int(fd), level, unix.SO_ORIGINAL_DST)
	})
	if err = errors.Join(cerr, err); err != nil {
		return netip.AddrPort{}, fmt.Errorf("no original destination: %w", err)
	}
	port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, info.Addr.Port))
	addr := netip.AddrFrom16(info.Addr.Addr).Unmap()
	if v4 { // sockaddr_in has the address at the offset of the flow label
		addr = netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, info.Addr.Flowinfo)))
	}
	return netip.AddrPortFrom(addr, port), nil
}

type option struct{ level, name, value int }

// control sets the options that apply to the socket's IP version.
func control(options ...option) func(network, _ string, raw syscall.RawConn) error {
	return func(network, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) {
			for _, o := range options {
				if o.level == unix.SOL_SOCKET || (o.level == unix.SOL_IPV6) == (network[len(network)-1] == '6') {
					err = errors.Join(err, unix.SetsockoptInt(int(fd), o.level, o.name, o.value))
				}
			}
		})
		return errors.Join(cerr, err)
	}
}
