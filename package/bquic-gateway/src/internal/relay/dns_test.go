// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"bquic/internal/cert"
)

// A nameServer answers all questions for IPv4 addresses with the same ones. Like dnsmasq, it returns them in another
// order each time.
func nameServer(t *testing.T, addresses ...net.IP) (address string) {
	t.Helper()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
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

// resolveWith makes this process ask the name server that server returns. A test calls it before it starts anything,
// and cannot run in parallel.
func resolveWith(t *testing.T, server func() string) {
	old := net.DefaultResolver
	d := net.Dialer{Resolver: old} // not the default one, because lookups may outlive the test
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return d.Dial("udp", server())
	}}
	t.Cleanup(func() { net.DefaultResolver = old })
}

// TestDeadAddress has a gateway with two addresses. Nothing answers at one of them.
func TestDeadAddress(t *testing.T) {
	server := nameServer(t, net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 1))
	resolveWith(t, func() string { return server })
	p := newPuppet(t)
	_, port, _ := net.SplitHostPort(p.address)
	b := newBench(t, InOrder("gateway.test:"+port), p)
	b.await("the address that works", b.works)
}

// TestDeadNameServer has a name server that does not answer before one that does.
func TestDeadNameServer(t *testing.T) {
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	server := nameServer(t, net.IPv4(127, 0, 0, 1))
	var questions atomic.Int32
	resolveWith(t, func() string {
		if questions.Add(1) <= 2 { // IPv4 and IPv6
			return silent.LocalAddr().String()
		}
		return server
	})
	p := newPuppet(t)
	_, port, _ := net.SplitHostPort(p.address)
	set, err := newSettings(Config{Gateways: InOrder("gateway.test:" + port), Pins: []cert.Pin{p.pin}, Token: "correct-horse", Interfaces: []string{"br-lan"}})
	if err != nil {
		t.Fatal(err)
	}
	d := &dialler{set, func(string, []netip.Prefix) {}, func() {}}
	s, err := d.dial(t.Context(), "gateway.test:"+port, new(place).next)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
}

// A lines is a log that keeps its lines for a test.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestDryRunWaits has a name server that does not answer: the operator learns what a dry run waits for.
func TestDryRunWaits(t *testing.T) {
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	resolveWith(t, func() string { return silent.LocalAddr().String() })
	log := make(lines, 10)
	r, err := New(Config{Gateways: InOrder("gateway.test:8443"), Pins: []cert.Pin{{}}, Token: "correct-horse", Interfaces: []string{"br-lan"}}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.DryRun(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "gateway.test:8443: ") {
		t.Errorf("the error is %v", err)
	}
	select {
	case line := <-log:
		if !strings.Contains(line, "waiting for DNS") {
			t.Errorf("it says %q", line)
		}
	default:
		t.Error("it has waited without a word")
	}
}
