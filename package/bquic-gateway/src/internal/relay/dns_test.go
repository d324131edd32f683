// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"bquic/internal/cert"
	"bquic/internal/dnstest"
)

// TestDeadAddress has a gateway with two addresses. Nothing answers at one of them.
func TestDeadAddress(t *testing.T) {
	server := dnstest.Serve(t, net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 1))
	dnstest.Use(t, func() string { return server })
	p := newPuppet(t)
	_, port, _ := net.SplitHostPort(p.address)
	b := newBench(t, InOrder("gateway.test:"+port), p)
	b.await("the address that works", b.works)
}

// TestDeadNameServer has a name server that does not answer before one that does.
func TestDeadNameServer(t *testing.T) {
	dnstest.UseAfterSilence(t, dnstest.Serve(t, net.IPv4(127, 0, 0, 1)))
	p := newPuppet(t)
	_, port, _ := net.SplitHostPort(p.address)
	set, err := newSettings(Config{Gateways: InOrder("gateway.test:" + port), Pins: []cert.Pin{p.pin}, Token: "correct-horse", Interfaces: []string{"br-lan"}})
	if err != nil {
		t.Fatal(err)
	}
	d := &dialler{set, func(string, []netip.Prefix) {}, new(learned), func() {}}
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
	silent := dnstest.Silent(t)
	dnstest.Use(t, func() string { return silent })
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
