// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// sendBatch is the number of datagrams per sendmmsg(2).
const sendBatch = 64

// datagrams sends datagrams made by next, up to rate per second, and returns how many it sent.
// With manyAddresses, they come from all over 127/8, which belongs to this host.
func datagrams(ctx context.Context, rate int, manyAddresses bool, next func() []byte) (int, error) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: attacker})
	if manyAddresses {
		socket, err = net.ListenUDP("udp4", nil)
	}
	if err != nil {
		return 0, err
	}
	defer socket.Close()
	conn := ipv4.NewPacketConn(socket)
	batch := make([]ipv4.Message, sendBatch)
	start, sent := time.Now(), 0
	for ctx.Err() == nil {
		if ahead := time.Duration(sent)*time.Second/time.Duration(rate) - time.Since(start); ahead > 0 {
			time.Sleep(ahead)
		}
		for i := range batch {
			batch[i] = ipv4.Message{Buffers: [][]byte{next()}, Addr: net.UDPAddrFromAddrPort(target)}
			if manyAddresses {
				source := ipv4.ControlMessage{Src: net.IPv4(127, byte(2+rand.N(200)), byte(rand.N(256)), byte(1+rand.N(250)))}
				batch[i].OOB = source.Marshal()
			}
		}
		n, err := conn.WriteBatch(batch, 0)
		if err != nil {
			continue // the socket's buffer is full
		}
		sent += n
	}
	return sent, nil
}

// forgedDatagrams sends datagrams made by next from another host's address and any of its
// ports, rate per second, and returns how many it sent. It needs a raw socket, so it runs in
// its own network namespace.
func forgedDatagrams(ctx context.Context, rate int, from net.IP, next func() []byte) (int, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return 0, fmt.Errorf("raw socket: %w", err)
	}
	defer unix.Close(socket)
	to := unix.SockaddrInet4{Addr: target.Addr().As4()}
	header := make([]byte, 20+8) // RFC 791, section 3.1; the kernel fills the rest in. RFC 768
	header[0], header[8], header[9] = 4<<4|5, 64, unix.IPPROTO_UDP
	copy(header[12:], from.To4())
	copy(header[16:], to.Addr[:])
	binary.BigEndian.PutUint16(header[22:], target.Port())
	start, sent := time.Now(), 0
	for ctx.Err() == nil {
		if ahead := time.Duration(sent)*time.Second/time.Duration(rate) - time.Since(start); ahead > 0 {
			pause(ctx, ahead)
			continue
		}
		payload := next()
		binary.BigEndian.PutUint16(header[20:], uint16(1024+rand.N(64512)))
		binary.BigEndian.PutUint16(header[24:], uint16(8+len(payload)))
		if err := unix.Sendto(socket, append(header[:28:28], payload...), 0, &to); err != nil {
			return sent, fmt.Errorf("raw socket: %w", err)
		}
		sent++
	}
	return sent, nil
}

// noise is the source of garbage.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{})
	r.Read(b)
	return b
}()

func garbage(size int) []byte {
	at := rand.N(len(noise) - size)
	return append([]byte(nil), noise[at:at+size]...)
}

func randomDatagram() []byte { return garbage(20 + rand.N(1180)) }

// longHeader looks like a handshake packet of a known or unknown version (RFC 9000, section
// 17.2).
func longHeader() []byte {
	b := garbage(initialSize)
	b[0] |= 0xc0
	version := [][]byte{{0, 0, 0, 1}, {0x6b, 0x33, 0x43, 0xcf}, {0x1a, 0x2a, 0x3a, 0x4a}}[rand.N(3)]
	copy(b[1:], version)
	b[5], b[14], b[23] = cidLen, cidLen, 0 // connection IDs, no token
	b[24], b[25] = 0x44, 0x96              // the length of all that follows
	return b
}

// shortHeader looks like a packet of an unknown connection (RFC 9000, section 17.3), which is
// answered by a stateless reset.
func shortHeader() []byte {
	b := garbage(40 + rand.N(1160))
	b[0] = b[0]&0x3f | 0x40
	return b
}
