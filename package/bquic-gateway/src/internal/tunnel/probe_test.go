// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// TestUplinkProbe checks that a relay's probe learns that the gateway's uplink is
// down, and that it is back, in a namespace whose only target comes and goes.
func TestUplinkProbe(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	const address = "192.0.2.1/32"
	h := newHandler([]netip.Prefix{netip.MustParsePrefix(address)}) // allowed explicitly, because it is an address of the namespace itself
	probe := func(status int, kind string) {
		t.Helper()
		if refusal := ReadRefusal(ask(h, ProbeTarget, "Bearer "+token)); refusal.Status != status || refusal.Type != kind {
			t.Errorf("a probe is answered %+v", *refusal)
		}
	}
	probe(403, TargetProhibited)
	ip(t, "addr add "+address+" dev lo")
	l, err := net.Listen("tcp", "192.0.2.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := l.Addr().String()
	conn, err := h.dial(t.Context(), "tcp", target, h.allow)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	probe(403, TargetProhibited)

	ip(t, "addr del "+address+" dev lo")
	probe(503, UplinkDown)
	if st := h.Stats(); st.Uplink || st.Open != 0 || st.Peers[0].Refused != 0 {
		t.Errorf("%+v", st)
	}
	var refusal *Refusal
	if _, err := h.dial(t.Context(), "tcp", target, h.allow); !errors.As(err, &refusal) || refusal.Status != 503 || refusal.Type != UplinkDown {
		t.Errorf("a tunnel to the outside: %v", err)
	}
	if res := ask(h, ProbeTarget, "Bearer x"); res.StatusCode != 407 {
		t.Errorf("a stranger's probe is answered %d", res.StatusCode)
	}
	now := time.Now()
	tryAll(t, h, &now)
	probe(503, UplinkDown)
	ip(t, "addr add "+address+" dev lo")
	waitUp(t, h, &now)
	probe(403, TargetProhibited)
	// A target that refuses the connection proves the uplink, too.
	ip(t, "addr del "+address+" dev lo")
	probe(503, UplinkDown)
	l.Close()
	ip(t, "addr add "+address+" dev lo")
	waitUp(t, h, &now)
	probe(403, TargetProhibited)
}

// waitUp tries targets until one answers. On a busy machine that can take more
// than one try.
func waitUp(t *testing.T, h *Handler, now *time.Time) {
	t.Helper()
	for end := time.Now().Add(patience); h.isDown(); tryAll(t, h, now) {
		if time.Now().After(end) {
			t.Fatal("down, though somebody answers")
		}
	}
}

// tryAll tries targets when they are due, and returns when all tries have ended.
func tryAll(t *testing.T, h *Handler, now *time.Time) {
	t.Helper()
	*now = now.Add(uplinkTry + time.Second)
	h.tryUplink(t.Context(), *now)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		trying := h.uplink.trying
		h.mu.Unlock()
		if !trying {
			return
		}
		if time.Now().After(end) {
			t.Fatal("targets are tried for ever")
		}
	}
}

// TestUplinkSilence has an uplink with a route but without answers, like a modem
// without a line. Clients give up long before a connection times out.
func TestUplinkSilence(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	targets := []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"}
	var allow []netip.Prefix
	for _, a := range targets {
		allow = append(allow, netip.MustParsePrefix(a+"/32"))
	}
	ip(t, "link add wan type veth peer name far")
	ip(t, "link set wan up")
	ip(t, "link set far up")
	ip(t, "addr add 10.0.0.2/24 dev wan")
	ip(t, "neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev wan nud permanent")
	ip(t, "route add default via 10.0.0.1")
	h := newHandler(allow)
	var wg sync.WaitGroup
	for _, a := range targets {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(givenUp+500*time.Millisecond, cancel)
			if _, err := h.dial(ctx, "tcp", a+":80", allow); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", a, err)
			}
		})
	}
	wg.Wait()
	if h.isDown() {
		t.Error("down before anything was tried")
	}
	now := time.Now()
	tryAll(t, h, &now)
	if !h.isDown() {
		t.Error("not down, though nobody answers")
	}
	// The line is back: a target answers by refusing the connection.
	ip(t, "addr add 203.0.113.1/32 dev lo")
	waitUp(t, h, &now)
}

// TestUplinkIPv6Lost has a gateway whose clients have used IPv6 only for a while, as most servers have it, when it loses its IPv6. IPv4 goes on.
func TestUplinkIPv6Lost(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	targets := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for i := range 2 * uplinkKept {
		targets = append(targets, netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::1", i)))
	}
	var allow []netip.Prefix
	for _, a := range targets {
		allow = append(allow, netip.PrefixFrom(a, a.BitLen()))
	}
	h := newHandler(allow)
	dial := func(a netip.Addr) (kind string) {
		var refusal *Refusal
		if _, err := h.dial(t.Context(), "tcp", netip.AddrPortFrom(a, 80).String(), allow); errors.As(err, &refusal) {
			return refusal.Type
		}
		return ""
	}
	for _, p := range allow {
		ip(t, "addr add "+p.String()+" dev lo")
		for end := time.Now().Add(patience); dial(p.Addr()) != connectionRefused; { // which proves the uplink, too
			if time.Now().After(end) {
				t.Fatalf("%s does not answer", p)
			}
		}
	}
	for _, p := range allow[1:] {
		ip(t, "addr del "+p.String()+" dev lo")
	}
	welcome := func(when string) {
		t.Helper()
		if refusal := ReadRefusal(ask(h, ProbeTarget, "Bearer "+token)); refusal.Type != TargetProhibited {
			t.Errorf("%s, a probe is answered %+v", when, *refusal)
		}
	}
	welcome("without a route for IPv6")
	if kind := dial(targets[1]); kind != TargetUnroutable {
		t.Errorf("a server is %q", kind)
	}
	now := time.Now()
	tryAll(t, h, &now)
	welcome("after a connection without a route")
}
