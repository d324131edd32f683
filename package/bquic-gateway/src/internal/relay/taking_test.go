// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/proof"
)

// TestExpected checks that taken connections that never arrive do not use room for long.
func TestExpected(t *testing.T) {
	now := time.Unix(1000, 0)
	packet := func(i int) *divert.Packet {
		return &divert.Packet{
			Client: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), uint16(1024+i)),
			Target: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1+i)), Out: 7, Mark: uint32(i),
		}
	}
	var e expected
	for i := range maxExpected {
		if !e.add(packet(i), now, carried) {
			t.Fatalf("no room for the connection %d", i)
		}
	}
	if e.add(packet(maxExpected), now, carried) {
		t.Error("there was room for one too many")
	}
	p := packet(5)
	if x := e.accepted(pair{p.Client, p.Target}, now); x.out != 7 || x.mark != 5 {
		t.Errorf("came as %+v", x)
	}
	if x := e.accepted(pair{p.Client, p.Target}, now); x.out != 0 {
		t.Errorf("came twice: %+v", x)
	}
	if n := e.len(now); n != maxExpected-1 {
		t.Errorf("%d are expected", n)
	}
	if !e.has(packet(6)) || e.has(p) {
		t.Error("it is not known which connections are expected")
	}
	// A client may use a port again at once.
	p.Mark = 55
	if !e.add(p, now, carried) || e.accepted(pair{p.Client, p.Target}, now).mark != 55 {
		t.Error("the next connection by the same port is taken for the first one")
	}
	now = now.Add(expectTimeout)
	if n := e.len(now); n != 0 {
		t.Errorf("%d are expected still", n)
	}
	e.origins = nil // ends the pause
	for i := range maxExpected + 10 {
		p := packet(i)
		if !e.add(p, now, carried) || e.accepted(pair{p.Client, p.Target}, now).out != 7 || len(e.by) > 0 {
			t.Fatalf("the connection %d of those that come at once: %d are remembered", i, len(e.by))
		}
	}
}

// TestMissing checks that nothing is taken for longer and longer times while nothing arrives, and that all is well again
// after the first arrival.
func TestMissing(t *testing.T) {
	now := time.Unix(1000, 0)
	var e expected
	port := uint16(0)
	takeFrom := func(device int, client, target string) (key pair, ok bool) {
		port++
		p := &divert.Packet{Client: netip.AddrPortFrom(netip.MustParseAddr(client), port), Target: netip.MustParseAddrPort(target), In: device}
		return pair{p.Client, p.Target}, e.add(p, now, carried)
	}
	take := func() (key pair, ok bool) { return takeFrom(7, "10.0.0.2", "192.0.2.1:80") }
	paused := func() bool {
		some, all := e.paused(now)
		if some != all {
			t.Errorf("of one origin, some are paused %v, and all %v", some, all)
		}
		return some
	}
	wait := func() { // until what was taken last is missing
		for range arriveTime / forgetInterval {
			now = now.Add(forgetInterval)
			e.len(now)
		}
	}
	e.len(now)
	for i := range maxMissing {
		if _, ok := take(); !ok {
			t.Fatalf("the connection %d is not taken", i)
		}
		if i == maxMissing-1 { // the last one comes with others
			take()
			take()
		}
		if wait(); paused() != (i == maxMissing-1) {
			t.Fatalf("%d are missing: paused %v", i+1, paused())
		}
	}
	for pause := minPause; pause < 3*maxPause; pause *= 2 {
		now = now.Add(min(pause, maxPause) - 1)
		if _, ok := take(); ok {
			t.Fatalf("taken %s after the last one that is missing", min(pause, maxPause)-1)
		}
		now = now.Add(1)
		if _, ok := take(); !ok {
			t.Fatalf("not taken after %s", min(pause, maxPause))
		}
		wait()
		if !paused() {
			t.Fatal("one more is missing, and the next are taken")
		}
	}
	now = now.Add(maxPause)
	key, _ := take()
	now = now.Add(2 * arriveTime) // this process did not run
	if paused() {
		t.Error("connections are missing that the process has had no time to accept")
	}
	e.accepted(key, now)
	for i := range 2 * maxMissing { // too many at once for the listener
		if key, ok := take(); !ok {
			t.Errorf("after an arrival, the connection %d is not taken", i)
		} else if i == 0 {
			now = now.Add(1)
			e.accepted(key, now)
			now = now.Add(-1)
		}
	}
	if wait(); paused() {
		t.Error("connections that were taken before the last arrival count")
	}

	// Others arrive meanwhile: by another device, and of the other IP version.
	for range maxMissing {
		take()
		for _, other := range []struct {
			device         int
			client, target string
		}{{8, "10.0.1.2", "192.0.2.1:80"}, {7, "fd00::2", "[2001:db8::1]:80"}} {
			if key, ok := takeFrom(other.device, other.client, other.target); !ok {
				t.Errorf("%+v is not taken", other)
			} else {
				e.accepted(key, now)
			}
		}
		wait()
	}
	if some, all := e.paused(now); !some || all {
		t.Errorf("some are paused %v, and all %v", some, all)
	}
	if _, ok := take(); ok {
		t.Error("taken, although what was taken before did not arrive")
	}
}

// TestExpectedByAnotherPort checks that a connection is recognised even if the kernel has
// changed its port on redirection.
func TestExpectedByAnotherPort(t *testing.T) {
	now := time.Unix(1000, 0)
	var e expected
	target := netip.MustParseAddrPort("192.0.2.1:80")
	for i, client := range []string{"10.0.0.2:40000", "10.0.0.2:40001", "10.0.0.3:40000"} {
		e.add(&divert.Packet{Client: netip.MustParseAddrPort(client), Target: target, Mark: uint32(i + 1)}, now.Add(time.Duration(i)), carried)
	}
	for _, c := range []struct {
		client, target string
		mark           uint32
	}{
		{"10.0.0.2:1", "192.0.2.2:80", 0}, // another target
		{"10.0.0.4:40000", "192.0.2.1:80", 0},
		{"10.0.0.2:1", "192.0.2.1:80", 1},
		{"10.0.0.2:40000", "192.0.2.1:80", 2}, // the first connection's port, which the kernel gave to the second
		{"10.0.0.2:2", "192.0.2.1:80", 0},
		{"10.0.0.3:40000", "192.0.2.1:80", 3},
	} {
		if x := e.accepted(pair{netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.target)}, now); x.mark != c.mark {
			t.Errorf("%s to %s came as %+v", c.client, c.target, x)
		}
	}
	if n := e.len(now); n != 0 {
		t.Errorf("%d are expected still", n)
	}
}

func carried() *proof.Session { return nil }

// TestDrawn checks that the result of a draw is known when the connection arrives.
func TestDrawn(t *testing.T) {
	var e expected
	now := time.Now()
	p := &divert.Packet{Client: netip.MustParseAddrPort("10.0.0.1:1"), Target: netip.MustParseAddrPort("192.0.2.1:80")}
	var sessions proof.Sessions
	drawn := func(arm proof.Arm, server string) *proof.Session {
		return sessions.Join(now, p.Client.Addr(), netip.MustParseAddr(server), func() proof.Ticket { return proof.Ticket{Arm: arm, Measured: true} })
	}
	if e.add(p, now, func() *proof.Session { return drawn(proof.Forwarded, "192.0.2.1") }) || e.len(now) != 0 {
		t.Error("left to the kernel, and expected")
	}
	want := drawn(proof.Direct, "192.0.2.2")
	e.add(p, now, func() *proof.Session { return want })
	if x := e.accepted(pair{p.Client, p.Target}, now); x.session != want {
		t.Errorf("%+v", x.session)
	}
}

// TestUnsentSYN has a SYN that the relay would take when the kernel's rules no longer deliver it, as when a network starts again. The kernel
// forwards it: it must not count as one that other rules keep from the relay.
func TestUnsentSYN(t *testing.T) {
	one := newPuppet(t)
	b := newBench(t, InOrder(one.address), one)
	b.awaitUse(one)
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	d, err := divert.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := New(validConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.gateways, r.diverter = b.gateways, d
	p := &divert.Packet{Client: netip.MustParseAddrPort("10.0.0.2:1024"), Target: netip.MustParseAddrPort("192.0.2.1:80")}
	if r.decide(t.Context(), p, nil) != divert.Take {
		t.Fatal("it is not taken")
	}
	r.begin(t.Context(), p, nil)
	if n := r.expected.len(time.Now()); n != 0 {
		t.Errorf("%d are expected", n)
	}
}

// TestRepeatedSYN has a client that repeats its SYN, because the answer was lost or slow, when the relay takes no more connections. The SYN must go
// the first one's way: on a bridge, one that passes takes the connection's further packets with it, past the relay that has answered.
func TestRepeatedSYN(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	b := newBench(t, InOrder(one.address), one)
	b.awaitUse(one)
	c := validConfig()
	c.Limit = 1
	r, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.gateways, r.diverter = b.gateways, new(divert.Diverter)
	p := &divert.Packet{Client: netip.MustParseAddrPort("10.0.0.2:1024"), Target: netip.MustParseAddrPort("192.0.2.1:80")}
	other := *p
	other.Client = netip.MustParseAddrPort("10.0.0.2:1025")
	for _, what := range []string{"with room for one", "again", "while the relay stops"} {
		if r.decide(t.Context(), p, nil) != divert.Take {
			t.Errorf("%s, it is not taken", what)
		}
		if r.decide(t.Context(), &other, nil) != divert.Pass {
			t.Errorf("%s, another one is taken", what)
		}
		r.ending.Store(what == "again")
	}
	if n := r.expected.len(time.Now()); n != 1 {
		t.Errorf("%d are expected", n)
	}
}
