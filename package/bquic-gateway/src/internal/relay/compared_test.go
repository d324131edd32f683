// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bquic/internal/proof"
	"bquic/internal/tunnel"
)

// TestKeptLater checks that what could not be written because the flash was full is written when there is room.
func TestKeptLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	c := newComparison(&settings{Config: Config{ControlShare: MaxControlShare, Fixed: Fixed{StateDir: dir}}}, slog.New(slog.DiscardHandler))
	c.changed = true
	c.keep()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.keep()
	if _, err := os.Stat(filepath.Join(dir, StateFile)); err != nil {
		t.Error(err)
	}
}

// TestNothingUncompared: where nothing is compared, a full path is no reason to count.
func TestNothingUncompared(t *testing.T) {
	client, server := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddrPort("192.0.2.1:443")
	for share, want := range map[int]uint32{0: 0, MaxControlShare: 1} {
		c := newComparison(&settings{Config: Config{ControlShare: share}}, slog.New(slog.DiscardHandler))
		for range 2 { // the second joins the first
			if s := c.join(time.Now(), client, server, true); s.Measured() {
				t.Errorf("with a share of %d: compared", share)
			}
		}
		if n := c.report().Uncompared; n != want {
			t.Errorf("with a share of %d: %d not compared", share, n)
		}
	}
}

// TestNothingComparedAlone: while connections that the node makes itself reach no server, the carried ones do not count either. They would be
// compared with the direct ones of another hour.
func TestNothingComparedAlone(t *testing.T) {
	four, six := netip.MustParseAddrPort("192.0.2.1:443"), netip.MustParseAddrPort("[2001:db8::1]:443")
	c := newComparison(&settings{Config: Config{ControlShare: MaxControlShare}}, slog.New(slog.DiscardHandler))
	now := time.Now()
	measured := func(server netip.AddrPort) (n int) {
		for i := range byte(40) {
			if s := c.join(now, netip.AddrFrom4([4]byte{10, 1, 2, i}), server, false); s.Measured() {
				n++
			} else if s.Arm() != proof.Carried {
				t.Errorf("to %s: neither compared nor carried", server)
			}
		}
		return n
	}
	for i := range byte(maxLost) {
		c.reached(netip.AddrFrom4([4]byte{192, 0, 2, i}), false)
	}
	if n := measured(four); n > 0 {
		t.Errorf("%d of IPv4 are compared, and none of them can go direct", n)
	}
	if n := measured(six); n != 40 {
		t.Errorf("%d of IPv6 are compared", n)
	}
	if n := c.report().Uncompared; n > 0 {
		t.Errorf("clients fill the path for %d", n)
	}
}

// TestVisit: what a client opens to a server while it has a connection there goes the same way, unless it is the web.
func TestVisit(t *testing.T) {
	client, server := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.1")
	c := newComparison(&settings{Config: Config{ControlShare: MaxControlShare}}, slog.New(slog.DiscardHandler))
	now := time.Now()
	join := func(port uint16) *proof.Session {
		now = now.Add(time.Minute)
		return c.join(now, client, netip.AddrPortFrom(server, port), false)
	}
	for _, arm := range []proof.Arm{proof.Direct, proof.Carried} {
		first, second := c.enter(client, server, arm), c.enter(client, server, proof.Carried)
		first()
		for port := range uint16(40) {
			if s := join(50000 + port); s.Arm() != arm || s.Measured() {
				t.Errorf("beside one of %v: %v, measured %v", arm, s.Arm(), s.Measured())
			}
			if s := join(443); !s.Measured() {
				t.Error("a page is not measured")
			}
		}
		second()
		if s := join(50000); !s.Measured() {
			t.Error("after its end, another one is not measured")
		}
	}
	if len(c.visits) != 0 {
		t.Errorf("%+v", c.visits)
	}
}

// TestOneServer: a client that tries all day to reach one server, which only gateways reach, says nothing about the node's own way out.
func TestOneServer(t *testing.T) {
	c := newComparison(&settings{Config: Config{ControlShare: MaxControlShare}}, slog.New(slog.DiscardHandler))
	server := netip.MustParseAddr("192.0.2.1")
	for range 10 * maxLost {
		c.reached(server, false)
	}
	if !c.ownWay(server).until.IsZero() {
		t.Error("one server cannot be reached, and no connection goes direct")
	}
}

// TestClockAhead: a router boots with a clock that is ten years ahead, until a time server has set it. The week is not lost.
func TestClockAhead(t *testing.T) {
	dir := t.TempDir()
	start := func() *comparison {
		return newComparison(&settings{Config: Config{ControlShare: MaxControlShare, Fixed: Fixed{StateDir: dir}}}, slog.New(slog.DiscardHandler))
	}
	client, server := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddrPort("192.0.2.1:443")
	now, ahead := time.Now(), 10*365*24*time.Hour
	kept := start()
	s := kept.join(now, client, server, false)
	kept.proof.Record(s.Ticket(), proof.Outcome{Bytes: 1000, First: time.Second, Wait: time.Second})
	kept.changed = true
	kept.keep()

	c := start()
	c.restore()
	c.join(now.Add(ahead), client, server, false)
	if o := c.report().Overall; o.Carried+o.Direct != 0 {
		t.Fatalf("by the wrong clock, there are %+v", o)
	}
	c.follow(time.Minute)
	if o := c.report().Overall; o.Carried+o.Direct != 0 {
		t.Errorf("the clock was hardly set, and there are %+v", o)
	}
	c.follow(-ahead)
	if o := c.report().Overall; o.Carried+o.Direct != 1 {
		t.Errorf("by the right clock, there are %+v", o)
	}
}

// TestCutPage has a page load of two connections, of which the second ends only when the relay stops. How long the client would have waited for
// it is not known, so the page does not count.
func TestCutPage(t *testing.T) {
	for name, cut := range map[string]bool{"a whole page": false, "a page that is cut": true} {
		t.Run(name, func(t *testing.T) {
			r := &Relay{comparison: newComparison(&settings{Config: Config{ControlShare: MaxControlShare}}, slog.New(slog.DiscardHandler))}
			c := r.comparison
			client, server := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddrPort("192.0.2.1:443")
			page := c.join(time.Now().Add(-2*proof.SessionGap), client, server, false)
			ctx, stop := context.WithCancel(t.Context())
			for last := range 2 {
				of := c.begin(page, &r.hand)
				phone, near := tcpEnds(t)
				far, origin := tcpEnds(t)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = tunnel.SpliceTimed(near, nil, &tcpStream{TCPConn: far}, new(tunnel.Bytes), of.timing, func() bool { return false }, nil)
				}()
				_, err := origin.Write(make([]byte, 1000))
				if _, rerr := io.ReadFull(phone, make([]byte, 1000)); err != nil || rerr != nil {
					t.Fatal(err, rerr)
				}
				if last == 1 && cut {
					stop()
					tunnel.Reset(near)
				} else if err := errors.Join(phone.CloseWrite(), origin.CloseWrite()); err != nil {
					t.Fatal(err)
				}
				<-ended
				if last == 1 {
					c.mu.Lock()
					c.age(time.Now())
					c.mu.Unlock()
				}
				r.compared(ctx, &of)
			}
			var pages uint32
			for _, kind := range c.report().Kinds {
				pages += kind.Carried + kind.Direct
			}
			if want := map[bool]uint32{false: 1, true: 0}[cut]; pages != want {
				t.Errorf("%d pages count, want %d", pages, want)
			}
			stop()
		})
	}
}

// tcpEnds returns both ends of a connection.
func tcpEnds(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); b.Close() })
	return c, b
}
