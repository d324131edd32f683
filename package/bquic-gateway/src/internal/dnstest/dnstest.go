// SPDX-License-Identifier: Apache-2.0

package dnstest

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
)

// Serve runs a name server on this machine until the test ends, and returns its UDP address. It answers all questions
// for IPv4 addresses with the same ones, and those for others with none. Like dnsmasq, it returns them in another order
// each time.
func Serve(t *testing.T, addresses ...net.IP) (address string) {
	t.Helper()
	udp := listen(t)
	go func() {
		for b := make([]byte, 512); ; {
			n, from, err := udp.ReadFromUDP(b)
			if err != nil {
				return
			}
			end := 12 + slices.Index(b[12:n], 0) + 5 // name, type, class
			answer := slices.Clone(b[:end])
			copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
			if b[end-3] == 1 { // type A
				answer[7] = byte(len(addresses))
				for _, ip := range addresses {
					answer = append(append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4), ip.To4()...)
				}
				addresses = append(addresses[1:], addresses[0])
			}
			udp.WriteToUDP(answer, from)
		}
	}()
	return udp.LocalAddr().String()
}

// Silent returns the UDP address of a name server that never answers.
func Silent(t *testing.T) (address string) {
	t.Helper()
	return listen(t).LocalAddr().String()
}

// Use makes this process ask the name server whose address server returns. A test calls it before it starts anything,
// and cannot run in parallel.
func Use(t *testing.T, server func() string) {
	old := net.DefaultResolver
	d := net.Dialer{Resolver: old} // not the default one, because lookups may outlive the test
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return d.Dial("udp", server())
	}}
	t.Cleanup(func() { net.DefaultResolver = old })
}

// UseAfterSilence makes this process ask a silent name server first, for addresses of both IP versions, and then server.
func UseAfterSilence(t *testing.T, server string) {
	silent := Silent(t)
	var questions atomic.Int32
	Use(t, func() string {
		if questions.Add(1) <= 2 { // IPv4 and IPv6
			return silent
		}
		return server
	})
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	return udp
}
