// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
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

// TestAvoided checks that targets are avoided for a while.
func TestAvoided(t *testing.T) {
	now := time.Unix(1000, 0)
	target := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(i))
	}
	var a avoided
	if a.has(target(0), now) {
		t.Error("avoided without a reason")
	}
	for i := range maxAvoided + 10 {
		a.add(target(i), now.Add(time.Duration(i)))
	}
	if len(a.by) != maxAvoided || a.has(target(9), now) || !a.has(target(10), now) || !a.has(target(maxAvoided+9), now) {
		t.Errorf("%d are avoided", len(a.by))
	}
	if a.has(target(20), now.Add(avoidTime+time.Second)) {
		t.Error("avoided for ever")
	}
}

// TestSuspected checks that a target is avoided only when two connections in turn got no answer.
func TestSuspected(t *testing.T) {
	now := time.Unix(1000, 0)
	target := netip.MustParseAddrPort("192.0.2.1:80")
	var a avoided
	suspect := func(begun, due time.Duration) bool {
		a.suspect(target, now.Add(begun), now.Add(due))
		return a.has(target, now.Add(due))
	}
	if suspect(0, 2*time.Second) || suspect(time.Second, 3*time.Second) {
		t.Error("avoided after connections at the same time")
	}
	a.reached(target)
	if suspect(4*time.Second, 6*time.Second) {
		t.Error("avoided although it was reached in between")
	}
	if !suspect(7*time.Second, 9*time.Second) {
		t.Error("not avoided")
	}
	a.reached(target)
	if !a.has(target, now.Add(10*time.Second)) {
		t.Error("no longer avoided, though only an older connection has reached it")
	}
	if suspect(avoidTime+10*time.Second, avoidTime+12*time.Second) {
		t.Error("avoided for ever")
	}
}

// TestNoIPv6 has a gateway without IPv6: after a few targets, the others are not asked for.
func TestNoIPv6(t *testing.T) {
	now := time.Unix(1000, 0)
	target := func(network int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", network)), 443)
	}
	four := netip.MustParseAddrPort("192.0.2.1:443")
	var a avoided
	refused := func(target netip.AddrPort, kind string) { a.refused(target, &tunnel.Refusal{Type: kind}, now) }
	check := func(when string, want bool) {
		t.Helper()
		if a.has(target(99), now) != want || a.has(netip.MustParseAddrPort("192.0.2.2:443"), now) {
			t.Errorf("%s: avoided %v, not %v", when, !want, want)
		}
	}
	for range noIPv6 {
		refused(target(1), tunnel.TargetUnroutable)
	}
	check("one network has no route", false)
	refused(target(2), tunnel.TargetUnroutable)
	a.reached(target(3))
	refused(target(4), tunnel.TargetUnroutable)
	refused(target(5), tunnel.TargetProhibited)
	refused(target(6), tunnel.LimitReached)
	refused(four, tunnel.TargetUnroutable)
	check("a network has been reached", false)
	if !a.has(target(4), now) || !a.has(target(5), now) || !a.has(four, now) || a.has(target(6), now) {
		t.Errorf("avoided are %v", a.by)
	}
	refused(target(7), tunnel.TargetUnroutable)
	refused(target(8), tunnel.TargetUnroutable)
	check("no network has a route", true)
	now = now.Add(avoidTime)
	check("later", false)
	refused(target(9), tunnel.TargetUnroutable)
	check("nothing has changed", true)
	now = now.Add(avoidTime)
	a.reached(target(9))
	refused(target(10), tunnel.TargetUnroutable)
	check("one has been reached by now", false)
	now = now.Add(time.Minute)
	a.reached(target(9))
	for i := range noIPv6 {
		a.suspect(target(i), now.Add(-time.Second), now)
	}
	check("three networks did not answer at the same time", false)
	for i := range noIPv6 - 1 {
		begun := now.Add(time.Second)
		now = begun.Add(time.Second)
		a.suspect(target(i+noIPv6), begun, now)
	}
	check("no network answers", true)
	a.clear()
	check("another gateway", false)
}

// TestNoNAT64 has clients without IPv4, and a gateway with IPv6 but without a translator: after a few targets, the others behind the translator are
// not asked for.
func TestNoNAT64(t *testing.T) {
	now := time.Unix(1000, 0)
	var a avoided
	target := func(address string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(address), 443) }
	has := func(address string) bool { return a.has(target(address), now) }
	for i := range noIPv6 {
		if has("64:ff9b::203.0.113.99") {
			t.Errorf("avoided after %d networks", i)
		}
		a.refused(target(fmt.Sprintf("64:ff9b::198.51.%d.1", i)), &tunnel.Refusal{Type: tunnel.TargetUnroutable}, now)
		a.reached(target("2001:db8::1"))
	}
	if !has("64:ff9b::203.0.113.99") || has("2001:db8::2") || has("203.0.113.99") {
		t.Error("not what is behind the translator is avoided")
	}
	a.reached(target("64:ff9b::203.0.113.1"))
	if has("64:ff9b::203.0.113.99") {
		t.Error("avoided although the gateway has a translator by now")
	}
}

// TestAvoidedAgain has a target that the gateway does not reach. After a while, the relay itself asks for it, and clients' connections go direct
// until the gateway reaches it.
func TestAvoidedAgain(t *testing.T) {
	for _, target := range []string{"192.0.2.1:80", "[2001:db8:9::1]:80"} {
		one := newPuppet(t)
		r, err := New(Config{Gateways: InOrder(one.address), Token: "correct-horse", Pins: []cert.Pin{one.pin}, Interfaces: []string{"br-lan"}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r.diverter = new(divert.Diverter)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.gateways.run(ctx) })
		select { // as soon as there is a session, what was avoided before it is forgotten; then control is woken
		case <-r.kicked:
		case <-time.After(patience):
			t.Fatal("no session")
		}
		p := &divert.Packet{Client: netip.MustParseAddrPort("10.0.0.2:1024"), Target: netip.MustParseAddrPort(target)}
		refusal := &tunnel.Refusal{Type: tunnel.TargetUnroutable}
		before := time.Now().Add(-avoidTime)
		r.avoided.refused(p.Target, refusal, before)
		if p.Target.Addr().Is6() { // and no other one
			for i := range noIPv6 {
				r.avoided.refused(netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", i)), 80), refusal, before)
			}
		}
		decide := func() (v divert.Verdict) {
			var asking sync.WaitGroup
			v = r.decide(ctx, p, &asking)
			asking.Wait()
			return v
		}
		for i := range 3 {
			if v := decide(); v != divert.Pass || one.times(target) != 1 {
				t.Errorf("%s is still not reached, connection %d: %v, asked for %d times", target, i, v, one.times(target))
			}
		}
		one.will(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		for asked := 2; ; asked++ { // on a busy machine, an answer may be late
			r.avoided.mu.Lock()
			r.avoided.native.last = before
			if x, ok := r.avoided.by[p.Target]; ok {
				x.since = before
				r.avoided.by[p.Target] = x
			}
			r.avoided.mu.Unlock()
			if v := decide(); v != divert.Pass || one.times(target) != asked {
				t.Fatalf("%s is reached by now: %v, asked for %d times", target, v, one.times(target))
			}
			v := decide()
			if v == divert.Take && one.times(target) == asked {
				break
			}
			if asked == 10 {
				t.Fatalf("%s has been reached: %v, asked for %d times", target, v, one.times(target))
			}
		}
		cancel()
		wg.Wait()
	}
}
