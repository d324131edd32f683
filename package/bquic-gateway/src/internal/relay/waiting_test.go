// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/tunnel"
)

// TestWaiting has flows whose tunnels do not open. A flow that begins with a burst has room for it, and all together have no more room than there is for all.
func TestWaiting(t *testing.T) {
	f := &flows{by: make(map[pair]*flow)}
	target := netip.MustParseAddrPort("192.0.2.1:5000")
	sum := 0
	for i := range uint16(20) {
		key := pair{netip.AddrPortFrom(netip.MustParseAddr("10.1.2.3"), 40000+i), target}
		fl := &flow{pair: key}
		f.by[key] = fl
		held := 0
		for range maxWaiting {
			if f.decide(t.Context(), &divert.Packet{Client: key.client, Target: target, UDP: true}, nil) == divert.Hold {
				held++
			}
		}
		if held != len(fl.waiting) || held == 0 || i == 0 && held != 256 {
			t.Errorf("of the flow %d, %d are held, and %d wait", i, held, len(fl.waiting))
		}
		sum += held
	}
	if sum > maxWaiting || uint64(20*maxWaiting-sum) != f.lost.Load() {
		t.Errorf("%d wait, and %d are lost", sum, f.lost.Load())
	}
}

// TestPortRemoved has a datagram that waits in the kernel's queue while a reload removes its port. It goes on by the kernel.
func TestPortRemoved(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	one.will(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == tunnel.ProbeTarget {
			fine(w, r)
		} else {
			mute(w, r)
		}
	})
	r, err := New(Config{Gateways: InOrder(one.address), Token: "correct-horse", Pins: []cert.Pin{one.pin}, Interfaces: []string{"br-lan"},
		UDPPorts: []divert.Ports{{First: 53, Last: 53}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.diverter = new(divert.Diverter)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { r.gateways.run(ctx) })
	for deadline := time.Now().Add(patience); !r.gateways.works(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no session")
		}
	}
	p := &divert.Packet{Client: netip.MustParseAddrPort("10.1.2.3:40000"), Target: netip.MustParseAddrPort("192.0.2.1:5000"), UDP: true}
	if v := r.decide(ctx, p, new(sync.WaitGroup)); v != divert.Pass {
		t.Errorf("the verdict is %v", v)
	}
}
