// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"

	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"
)

// ConnectionIDLength is the length of both ends' connection IDs, in bytes. With the byte
// before it and the two bytes of packet number after it, the payload begins at a multiple
// of four, so the cipher of small processors can work on words instead of bytes.
const ConnectionIDLength = 5

// GatewayTransport returns a gateway's transport. It derives the stateless reset
// key from the certificate's key. So a restarted gateway can tell relays at once
// that it has lost their connections.
func GatewayTransport(udp *net.UDPConn, cert *tls.Certificate) (*quic.Transport, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return nil, err
	}
	reset, err := hkdf.Key(sha256.New, secret, nil, "bquic stateless reset", len(quic.StatelessResetKey{}))
	if err != nil {
		return nil, err
	}
	key := quic.StatelessResetKey(reset)
	conn, err := NewPacketConn(udp)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: conn, ConnectionIDLength: ConnectionIDLength, StatelessResetKey: &key}, nil
}

// A PacketConn is a UDP socket for quic.Transport that drops a packet if the kernel
// cannot send it at the moment. quic-go would close the connection, with all its
// streams, at the first moment without a route. In a mesh, another route is found
// soon. If not, the idle timeout ends the connection.
type PacketConn struct {
	*net.UDPConn
	out *quic.MessageWriter
}

// NewPacketConn returns a PacketConn that uses udp.
func NewPacketConn(udp *net.UDPConn) (PacketConn, error) {
	out, err := quic.NewMessageWriter(udp)
	return PacketConn{udp, out}, err
}

func (c PacketConn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	n, oobn, err = c.out.WriteMsgUDP(b, oob, addr)
	if err != nil && (passing(err) || errors.Is(err, syscall.EINVAL) && !segmented(oob)) {
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

// segmented reports whether the kernel is to segment a write. EINVAL may then mean that it cannot, and quic-go writes
// the packets one by one. Otherwise, it means a blackhole route, or that this machine no longer has the IPv6 address
// to send from.
func segmented(oob []byte) bool {
	for len(oob) > 0 {
		h, _, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return false
		}
		if h.Level == unix.IPPROTO_UDP {
			return true
		}
		oob = rest
	}
	return false
}

func passing(err error) bool {
	if err == nil {
		return false // before errno is allocated
	}
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
