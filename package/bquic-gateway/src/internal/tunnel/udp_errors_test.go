// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"
)

// A datagramPipe is a stream whose datagrams are in channels.
type datagramPipe struct {
	http3.Stream
	ctx      context.Context
	from, to chan []byte
}

func (s *datagramPipe) Read([]byte) (int, error)         { <-s.ctx.Done(); return 0, net.ErrClosed }
func (s *datagramPipe) CancelRead(quic.StreamErrorCode)  {}
func (s *datagramPipe) CancelWrite(quic.StreamErrorCode) {}
func (s *datagramPipe) SendDatagram(b []byte) error      { s.to <- append([]byte(nil), b...); return nil }

func (s *datagramPipe) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	select {
	case b := <-s.from:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestUDPErrors checks that a UDP tunnel goes on after routers' errors about one of its datagrams, and a gateway's also after the target's.
func TestUDPErrors(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	icmp, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer icmp.Close()
	target, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77)})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go func() {
		for b := make([]byte, 2048); ; {
			n, from, err := target.ReadFromUDP(b)
			if err != nil {
				return
			}
			_, _ = target.WriteToUDP(b[:n], from)
		}
	}()
	conn, err := net.DialUDP("udp4", nil, target.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	str := &datagramPipe{ctx: t.Context(), from: make(chan []byte), to: make(chan []byte)}
	ended := make(chan error, 1)
	f := NewFlow(t.Context(), conn, str, new(Bytes))
	f.gateway = true
	go func() { ended <- f.Run(time.Minute) }()
	echo := func(after string) {
		t.Helper()
		str.from <- []byte("\x00hello")
		select {
		case <-str.to:
		case err := <-ended:
			t.Fatalf("after %s, the tunnel ends with %v", after, err)
		case <-time.After(patience):
			t.Fatalf("after %s, no answer", after)
		}
	}
	echo("the beginning")
	for _, e := range []struct {
		text string
		code byte
	}{{"host unreachable", 1}, {"port unreachable", 3}, {"fragmentation needed", 4}, {"administratively prohibited", 13}} {
		// RFC 792: the header of the error, then those of the datagram that it is about.
		message := make([]byte, 8+20+8)
		message[0], message[1] = 3, e.code
		binary.BigEndian.PutUint16(message[6:], 1280) // next hop's MTU, RFC 1191
		ip := message[8:]
		ip[0], ip[9] = 4<<4|5, 17
		binary.BigEndian.PutUint16(ip[2:], 1400)
		copy(ip[12:], conn.LocalAddr().(*net.UDPAddr).IP.To4())
		copy(ip[16:], []byte{127, 0, 0, 77})
		udp := ip[20:]
		binary.BigEndian.PutUint16(udp, uint16(conn.LocalAddr().(*net.UDPAddr).Port))
		binary.BigEndian.PutUint16(udp[2:], uint16(target.LocalAddr().(*net.UDPAddr).Port))
		binary.BigEndian.PutUint16(udp[4:], 1380)
		sum := uint32(0)
		for i := 0; i < len(message); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(message[i:]))
		}
		for sum>>16 > 0 {
			sum = sum&0xffff + sum>>16
		}
		binary.BigEndian.PutUint16(message[2:], ^uint16(sum))
		if _, err := icmp.WriteTo(message, &net.IPAddr{IP: conn.LocalAddr().(*net.UDPAddr).IP}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("after %s, the tunnel ends with %v", e.text, err)
		case <-time.After(50 * time.Millisecond): // the error is there at once
		}
		echo(e.text)
	}
}

// TestUDPAfterError checks that an error about a datagram does not cost the next one.
func TestUDPAfterError(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	address := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77), Port: 53}
	conn, err := net.DialUDP("udp4", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := NewFlow(t.Context(), conn, &datagramPipe{ctx: t.Context()}, new(Bytes))
	f.receive([]byte("\x00to a closed port")) // the answer is there at once
	target, err := net.ListenUDP("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	f.receive([]byte("\x00next"))
	b := make([]byte, 100)
	_ = target.SetReadDeadline(time.Now().Add(patience))
	if n, err := target.Read(b); err != nil || string(b[:n]) != "next" {
		t.Errorf("%q, %v", b[:n], err)
	}
}

// TestUDPFragmentable checks that routers may fragment datagrams, as if the client had sent them. Behind a router that tells nobody
// what it has dropped, they would be lost.
func TestUDPFragmentable(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	NewFlow(t.Context(), conn, &datagramPipe{ctx: t.Context()}, new(Bytes)).receive(make([]byte, 1000))
	b := make([]byte, 1500)
	n, err := unix.Read(raw, b)
	if err != nil || n != 20+8+999 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if b[6]&0x40 != 0 {
		t.Error("a datagram must not be fragmented")
	}
}
