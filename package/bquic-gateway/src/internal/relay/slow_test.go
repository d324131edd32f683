// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bquic/internal/cert"
	"bquic/internal/tunnel"
)

// TestSlow has a gateway whose uplink becomes so full that it reaches all servers, but too late. After a few connections, no further one waits for it
// until it is faster. A few servers that are dead change nothing.
func TestSlow(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	r, err := New(Config{Gateways: InOrder(one.address), Token: "correct-horse", Pins: []cert.Pin{one.pin}, Interfaces: []string{"br-lan"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { r.gateways.run(ctx) })
	eventually := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("waited in vain: ", what)
			}
		}
	}
	eventually("a session", r.gateways.works)
	var slow atomic.Bool
	one.will(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == tunnel.ProbeTarget:
			fine(w, r)
		case slow.Load(), strings.HasSuffix(r.Host, ":99"):
			mute(w, r)
		default:
			w.WriteHeader(http.StatusOK)
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ask := func(targets ...string) { // at once, each for a client that sends nothing
		t.Helper()
		var connections sync.WaitGroup
		for _, target := range targets {
			phone, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			phone.Close()
			accepted, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			connections.Go(func() {
				defer accepted.Close()
				r.carry(ctx, r.gateways.pick(nil), accepted.(*net.TCPConn), nil, way{target: netip.MustParseAddrPort(target)}, &client{}, new(comparing))
			})
		}
		connections.Wait()
	}
	ask("192.0.2.1:80")
	ask("192.0.2.9:99", "198.51.100.9:99", "203.0.113.9:99")
	eventually("the relay to ask for what works", func() bool { return one.times("192.0.2.1:80") == 2 })
	ask("192.0.2.2:80")
	if !r.gateways.room() {
		t.Error("nothing more is taken because of dead servers")
	}
	slow.Store(true)
	ask("192.0.2.3:80", "198.51.100.3:80", "203.0.113.3:80")
	eventually("nothing to be taken", func() bool { return !r.gateways.room() })
	slow.Store(false)
	eventually("connections to be taken", r.gateways.room)
}

// TestSlowMeanwhile has connections that a gateway opens while it is asked whether it is slow: what it is asked about changes.
func TestSlowMeanwhile(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	s := newBench(t, InOrder(one.address), one).awaitUse(one)
	one.will(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	open := func() {
		for port := range uint16(maxWays) {
			s.opened(way{target: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 1+port)})
		}
	}
	open()
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 20 {
		wg.Go(open)
		if !s.prompt(t.Context()) {
			t.Error("it is slow")
		}
	}
}
