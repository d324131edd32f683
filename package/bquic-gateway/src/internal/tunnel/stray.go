// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How many times in a row, each watchInterval, a TCP connection must have been found without its address until it ends. At a relay, a
// connection that the kernel forwards could go on by another device, so the address has time to come back.
const (
	gatewayAstray = 2
	relayAstray   = 12
)

// restInterval is how often a connection is looked at on which neither end has anything to say. A client may wait for the rest of a download
// that has stopped because the address is gone; then keep-alive (Patient) gets no answer.
const restInterval = time.Minute

// errStrayed ends connections that are stuck because a provider has given this machine another address. Without relay and
// gateway, NAT would use the new address at once: TCP's target would answer with a reset, and UDP would go on.
var errStrayed = errors.New("this machine no longer has the address of the connection")

// A socket is connected to a target.
type socket interface {
	syscall.Conn
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

var _ socket = (*net.TCPConn)(nil)

// has reports whether addr belongs to this machine, as far as it can be found out.
func has(addr netip.Addr) bool {
	r, err := routeTo(addr)
	return err == nil && r.Kind == unix.RTN_LOCAL || err != nil && !errors.Is(err, errNoRoute)
}

// outward returns the connection to the target if it is TCP, or nil.
func (s *splice) outward() socket {
	if s.crowded == nil { // at a gateway
		return s.conn
	}
	direct, _ := s.str.(socket)
	return direct
}

// strayed reports whether what was sent to the target, or keep-alive, is not acknowledged, because this machine no longer has the address that it
// was sent from. While it has no other way to the target, the address may come back. It is called while nothing moves.
func (s *splice) strayed() bool {
	conn := s.outward()
	if conn == nil || s.idle > watchInterval && !s.unheard && s.astray == 0 && s.idle%restInterval != 0 {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	info := tcpInfo(raw)
	s.unheard = info != nil && (info.Unacked > 0 || info.Notsent_bytes > 0) // what could not be sent at all counts as not sent
	silent := info != nil && (info.Probes > 0 || s.unheard && info.Retransmits > 0)
	if !silent || has(addressOf(conn.LocalAddr()).Addr()) || !routed([]netip.AddrPort{addressOf(conn.RemoteAddr())}) {
		s.astray = 0
		return false
	}
	s.astray++
	return s.astray >= relayAstray || s.crowded == nil && s.astray >= gatewayAstray
}

func addressOf(a net.Addr) netip.AddrPort {
	ap := a.(interface{ AddrPort() netip.AddrPort }).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// endStrayed ends tunnels of UDP whose socket has an address that this machine no longer has. The client's next datagram begins another one.
func (h *Handler) endStrayed() {
	sockets := make(map[*grant]*net.UDPConn)
	h.mu.Lock()
	for g := range h.granted {
		if g.udp != nil {
			sockets[g] = g.udp
		}
	}
	h.mu.Unlock()
	own := make(map[netip.Addr]bool)
	for g, conn := range sockets {
		local := addressOf(conn.LocalAddr()).Addr()
		is, known := own[local]
		if !known {
			is = has(local)
			own[local] = is
		}
		if !is && routed([]netip.AddrPort{addressOf(conn.RemoteAddr())}) {
			g.end(errStrayed)
		}
	}
}
