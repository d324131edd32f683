// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"net"
	"syscall"
)

// A PacketConn is a UDP socket for quic.Transport that loses a packet where
// the kernel cannot send it just now. quic-go would give up the connection, and
// all that it carries, at the first moment without a route; in a mesh, another
// one is found soon. If not, the idle timeout ends the connection.
type PacketConn struct{ *net.UDPConn }

func (c PacketConn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if n, oobn, err = c.UDPConn.WriteMsgUDP(b, oob, addr); passing(err) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

func (c PacketConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	n, err := c.UDPConn.WriteTo(b, addr)
	if passing(err) {
		return len(b), nil
	}
	return n, err
}

func passing(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL,
		syscall.ECONNREFUSED,          // ICMP
		syscall.EPERM, syscall.EACCES, // firewall, prohibit route
		syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}
