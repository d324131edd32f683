// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

// patience is the timeout for events that must happen eventually.
const patience = 90 * time.Second

// A puppet is a gateway on this machine whose answers the test controls.
type puppet struct {
	address string
	pin     cert.Pin

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request)
	asked  map[string]int // number of requests by target
}

// Answers of a gateway to a probe and to all other requests.
func fine(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusForbidden, tunnel.TargetProhibited)
}

func noUplink(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusServiceUnavailable, tunnel.UplinkDown)
}

func mute(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func refuse(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Proxy-Status", fmt.Sprintf(`bquic; error=%s; details="as told"`, kind))
	w.WriteHeader(status)
}

func newPuppet(t *testing.T) *puppet {
	t.Helper()
	made, _, err := cert.LoadOrCreate(t.TempDir(), []string{"gateway"})
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &puppet{address: udp.LocalAddr().String(), pin: cert.PinOf(made.Leaf), answer: fine, asked: make(map[string]int)}
	server := &http3.Server{
		TLSConfig:  http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{made}}),
		QUICConfig: &quic.Config{},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			p.asked[r.Host]++
			answer := p.answer
			p.mu.Unlock()
			answer(w, r)
		}),
	}
	go server.Serve(udp)
	t.Cleanup(func() {
		server.Close()
		udp.Close()
	})
	return p
}

func (p *puppet) will(answer func(http.ResponseWriter, *http.Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *puppet) times(target string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[target]
}

// A bench manages sessions with puppets.
type bench struct {
	*gateways
	t       *testing.T
	now     atomic.Pointer[settings]
	config  Config
	changes atomic.Int32
}

func newBench(t *testing.T, upstreams []Upstream, puppets ...*puppet) *bench {
	t.Helper()
	return newBenchOf(t, 1, upstreams, puppets...)
}

// newBenchOf returns a bench with this number of connections to each gateway.
func newBenchOf(t *testing.T, connections int, upstreams []Upstream, puppets ...*puppet) *bench {
	t.Helper()
	b := &bench{t: t, config: Config{
		Gateways: upstreams, Token: "correct-horse", Interfaces: []string{"br-lan"}, Fixed: Fixed{Connections: connections},
	}}
	for _, p := range puppets {
		b.config.Pins = append(b.config.Pins, p.pin)
	}
	b.apply(upstreams)
	b.gateways = newGateways(&b.now, new(clients), slog.New(slog.DiscardHandler), func() { b.changes.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return b
}

func (b *bench) apply(upstreams []Upstream) {
	b.t.Helper()
	b.config.Gateways = upstreams
	set, err := newSettings(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.now.Store(set)
}

func (b *bench) await(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain for %s: %+v", what, b.states())
		}
	}
}

// awaitUse waits until the puppet carries new connections; nil: no puppet.
func (b *bench) awaitUse(p *puppet) (s *session) {
	b.t.Helper()
	b.await("another gateway", func() bool {
		s = b.pick(nil)
		return p == nil && s == nil || p != nil && s != nil && s.gateway == p.address
	})
	return s
}

func (b *bench) states() (states []string) {
	var st Status
	b.status(&st)
	for _, g := range st.Gateways {
		states = append(states, g.State)
	}
	return states
}

// connect requests a tunnel as for a client's connection.
func (s *session) connect() error {
	s.enter()
	defer s.release()
	str, err := s.request(context.Background(), "192.0.2.1:80", nil)
	if err != nil {
		return err
	}
	return s.answer(str)
}

// answered is connect until the answer is in time, which it may not be on a busy machine. It returns how often the gateway was asked, too.
func (s *session) answered() (asked int, err error) {
	for asked < 10 {
		asked++
		if err = s.connect(); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return asked, err
}

// TestUplink checks that a gateway whose uplink is down is not used while another one
// works, and is used again when its uplink is back.
func TestUplink(t *testing.T) {
	t.Parallel()
	one, two := newPuppet(t), newPuppet(t)
	b := newBench(t, InOrder(one.address, two.address), one, two)
	first := b.awaitUse(one)
	one.will(noUplink)
	two.will(noUplink)
	var refusal *tunnel.Refusal
	asked, err := first.answered()
	if !errors.As(err, &refusal) || refusal.Type != tunnel.UplinkDown {
		t.Fatalf("the answer is %v", err)
	}
	// No further connection has to find out.
	if s := b.pick(nil); s == first {
		t.Error("the gateway is used all the same")
	}
	b.await("both to say so", func() bool {
		return slices.Equal(b.states(), []string{StateNoUplink, StateNoUplink})
	})
	var st Status
	b.status(&st)
	if st.State != StateAway || b.pick(nil) != nil || !strings.Contains(st.LastError, "as told") {
		t.Errorf("without any uplink: %+v", st)
	}
	two.will(fine)
	b.awaitUse(two)
	if got := b.states(); !slices.Equal(got, []string{StateNoUplink, StateUp}) {
		t.Errorf("states %q", got)
	}
	one.will(fine)
	if b.awaitUse(one) != first {
		t.Error("another session for the gateway that is back")
	}
	b.await("the other one to be left", func() bool { return slices.Equal(b.states(), []string{StateUp, StateUnused}) })
	if n := one.times("192.0.2.1:80"); n != asked {
		t.Errorf("%d connections have found out", n)
	}
}

// TestUplinkPath has a path that fails for some seconds, again and again, while its gateway has no uplink. The relay keeps one session, not one for
// each time.
func TestUplinkPath(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	p.will(noUplink)
	w := newWire(t, p.address)
	b := newBench(t, InOrder(w.address), p)
	var s *session
	renewed := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		is := b.places[0].session
		if is == nil || is == s || is.state() != upstream.NoUplink {
			return false
		}
		s = is
		return true
	}
	b.await("a session", renewed)
	for range 3 {
		w.stall(s.conn.LocalAddr())
		s.tell(func(h *upstream.Session, now time.Time) (do upstream.Do) {
			for h.State() != upstream.Silent { // until it has asked for the uplink in vain
				now = now.Add(upstream.Interval)
				do |= h.Tick(now, 0, false)
			}
			return do
		})
		b.await("another session", renewed)
		w.stall(nil)
	}
	b.await("the end of the others", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.all()) == 1
	})
}

// TestItself checks that a gateway on the relay's own router is noticed, once.
func TestItself(t *testing.T) {
	log := make(lines, 10)
	now := new(atomic.Pointer[settings])
	now.Store(&settings{Config: Config{Gateways: InOrder("a:1")}})
	g := newGateways(now, new(clients), slog.New(slog.NewTextHandler(log, nil)), func() {})
	prefix := func(a netip.Addr) []netip.Prefix { return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())} }
	g.found("a:1", prefix(netip.MustParseAddr("192.0.2.1")))
	if len(log) > 0 {
		t.Errorf("another machine's: %s", <-log)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		for range 2 {
			g.found(a.String(), prefix(netip.MustParsePrefix(a.String()).Addr()))
		}
		if len(log) != 1 || !strings.Contains(<-log, itselfReason) {
			t.Fatalf("%v is noticed not once", a)
		}
	}
}

// TestFurtherSessionsOfBusyClients checks that a gateway in use has more sessions, and that clients use them.
func TestFurtherSessionsOfBusyClients(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	b := newBenchOf(t, 0, InOrder(one.address), one)
	b.awaitUse(one)
	cl := b.clients.enter(netip.AddrFrom4([4]byte{10, 0, 0, 1}), new(tunnel.Bytes), new(tunnel.Bytes))
	used := make(map[*session]bool)
	use := func() {
		s := b.pick(cl)
		s.enter()
		used[s] = true
	}
	use()
	b.await("further sessions", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.best()) == MaxConnections
	})
	for range MaxConnections {
		use()
	}
	if len(used) != MaxConnections-1 { // one is left for the next client
		t.Errorf("a client uses %d sessions", len(used))
	}
}

// TestGatewayOfBusyClient checks that a client's connections do not spread to a gateway that should deliver later.
func TestGatewayOfBusyClient(t *testing.T) {
	t.Parallel()
	one, two := newPuppet(t), newPuppet(t)
	b := newBenchOf(t, 0, []Upstream{{one.address, 100}, {two.address, 100}}, one, two)
	b.await("both", func() bool { return slices.Equal(b.states(), []string{StateUp, StateUp}) })
	cl := b.clients.enter(netip.AddrFrom4([4]byte{10, 0, 0, 1}), new(tunnel.Bytes), new(tunnel.Bytes))
	b.pick(cl)
	var slow []*session
	b.await("further sessions with both", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		slow = slices.DeleteFunc(b.best(), func(s *session) bool { return s.gateway == two.address })
		return len(slow) == MaxConnections && len(b.best()) == 2*MaxConnections
	})
	for _, s := range slow {
		for range 1000 {
			s.enter()
		}
	}
	for range MaxConnections {
		if s := b.pick(cl); s.gateway != two.address {
			t.Errorf("a connection goes to the gateway of %d others", len(slow)*1000)
		}
	}
}

// TestShare checks that gateways of equal weight share connections, and that gateways of
// smaller weight wait.
func TestShare(t *testing.T) {
	t.Parallel()
	one, two, three := newPuppet(t), newPuppet(t), newPuppet(t)
	b := newBench(t, []Upstream{{three.address, 50}, {one.address, 0}, {two.address, 100}}, one, two, three)
	b.await("both", func() bool { return slices.Equal(b.states(), []string{StateUp, StateUp, StateUnused}) })
	uses := make(map[string]int)
	use := func() {
		s := b.pick(nil)
		s.enter()
		uses[s.gateway]++
	}
	// A gateway with more and more connections is not chosen any more, however small its
	// RTT (upstream.TestFirst).
	for range 20 {
		use()
	}
	for n := 0; n < 1000 && (uses[one.address] == 0 || uses[two.address] == 0); n++ {
		use()
	}
	if uses[one.address] == 0 || uses[two.address] == 0 || uses[three.address] > 0 {
		t.Errorf("connections by gateway: %v", uses)
	}
	var st Status
	b.status(&st)
	want := []GatewayStatus{
		{Address: one.address, Weight: 100, State: StateUp, Error: itselfReason, Streams: uses[one.address]},
		{Address: two.address, Weight: 100, State: StateUp, Error: itselfReason, Streams: uses[two.address]},
		{Address: three.address, Weight: 50, State: StateUnused},
	}
	if !slices.Equal(st.Gateways, want) || len(st.Connections) != 2 {
		t.Errorf("gateways %+v, %d connections", st.Gateways, len(st.Connections))
	}
	// One gateway reports that it has no uplink: all connections go to the other one, not
	// to the third.
	one.will(noUplink)
	for n := 0; n < 1000 && one.times("192.0.2.1:80") == 0; n++ {
		if s := b.pick(nil); s.gateway != one.address {
			s.enter()
		} else if s.connect() == nil {
			t.Error("it has connected")
		}
	}
	if s := b.awaitUse(two); s.gateway == one.address {
		t.Error("it is used")
	}
	if n := one.times("192.0.2.1:80"); n != 1 {
		t.Errorf("%d connections have found out", n)
	}
	if n := three.times(tunnel.ProbeTarget); n != 0 {
		t.Errorf("the third one was asked %d times", n)
	}
	// A changed weight needs no new session.
	old := b.awaitUse(two)
	b.apply([]Upstream{{two.address, 7}, {three.address, 8}})
	b.awaitUse(three)
	b.await("the old one to be left", func() bool { return old.state() == upstream.Retired })
	b.apply([]Upstream{{two.address, 9}, {three.address, 8}})
	if s := b.awaitUse(two); s == old {
		t.Error("a retired session is used again") // it was replaced by the third gateway's
	}
	three.will(mute)
	last := b.awaitUse(two)
	b.apply([]Upstream{{two.address, 1}})
	b.await("the weight", func() bool {
		var st Status
		b.status(&st)
		return st.Gateways[0].Weight == 1
	})
	if b.awaitUse(two) != last {
		t.Error("another session for another weight")
	}
}

// TestWrongNewToken has a relay that gets a wrong token by a reload. It goes on with its session, and the status says both.
func TestWrongNewToken(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	p.will(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") == "Bearer correct-horse" {
			fine(w, r)
		} else {
			refuse(w, http.StatusProxyAuthRequired, tunnel.RequestDenied)
		}
	})
	b := newBench(t, InOrder(p.address), p)
	s := b.awaitUse(p)
	b.config.Token = "wrong-horse"
	b.apply(b.config.Gateways)
	var is GatewayStatus
	b.await("the status to say that the token is refused", func() bool {
		var st Status
		b.status(&st)
		is = st.Gateways[0]
		return strings.Contains(is.Error, "the gateway refuses: as told")
	})
	if is.State != StateUp || !strings.Contains(is.Error, formerReason) || b.pick(nil) != s {
		t.Errorf("%+v", is)
	}
}

// TestFull checks that a gateway without places is not asked for each connection while another one has places.
func TestFull(t *testing.T) {
	t.Parallel()
	one, two := newPuppet(t), newPuppet(t)
	b := newBench(t, []Upstream{{one.address, 100}, {two.address, 100}}, one, two)
	b.await("both", func() bool { return slices.Equal(b.states(), []string{StateUp, StateUp}) })
	full := func(w http.ResponseWriter, r *http.Request) {
		if r.Host == tunnel.ProbeTarget {
			fine(w, r)
			return
		}
		refuse(w, http.StatusServiceUnavailable, tunnel.LimitReached)
	}
	one.will(full)
	const connections = 100
	for range connections {
		if s := b.pick(nil); s.gateway == one.address {
			s.connect()
		} else {
			s.enter()
		}
	}
	if n := one.times("192.0.2.1:80"); n == 0 || n > connections/10 {
		t.Errorf("%d of %d connections have asked it", n, connections)
	}
	// If all are full, new connections go direct for a while. Then one of them is asked: it may have a place by now.
	if !b.room() {
		t.Error("there is no room although one gateway has places")
	}
	two.will(full)
	b.pick(nil).connect()
	if b.pick(nil) == nil {
		t.Error("none is asked")
	}
	since := func(when time.Time) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, s := range b.all() {
			s.known.mu.Lock()
			s.known.refused = when
			s.known.mu.Unlock()
		}
	}
	if since(time.Now()); b.room() {
		t.Error("there is room although all have refused a connection")
	}
	if since(time.Now().Add(-fullTime)); !b.room() {
		t.Error("they are full for good")
	}
}

// TestTurn checks that a connection that may still go direct does not take a gateway's turn: with two gateways, it would always be the same
// one's turn when one is carried.
func TestTurn(t *testing.T) {
	t.Parallel()
	one, two := newPuppet(t), newPuppet(t)
	b := newBench(t, []Upstream{{one.address, 100}, {two.address, 100}}, one, two)
	b.await("both", func() bool { return slices.Equal(b.states(), []string{StateUp, StateUp}) })
	r, err := New(validConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.gateways, r.diverter = b.gateways, new(divert.Diverter)
	before := b.turn
	p := &divert.Packet{Client: netip.MustParseAddrPort("10.0.0.2:1024"), Target: netip.MustParseAddrPort("192.0.2.1:80")}
	if r.decide(t.Context(), p, nil) != divert.Take {
		t.Fatal("not taken")
	}
	if b.turn != before {
		t.Errorf("%d turns were taken", b.turn-before)
	}
}

// TestMute checks that a session whose gateway no longer answers requests, although packets
// arrive, is replaced by a new session whose probe was answered.
func TestMute(t *testing.T) {
	for _, tc := range []struct {
		name   string
		notice func(*testing.T, *session)
		reason string
	}{
		{"by a connection", func(t *testing.T, s *session) {
			if err := s.connect(); err == nil {
				t.Error("it has connected")
			}
		}, upstream.NoAnswers},
		{"after a silence", func(t *testing.T, s *session) {
			s.tell(func(h *upstream.Session, now time.Time) upstream.Do {
				for range (upstream.AskAfter + upstream.SilentAfter) / upstream.Interval {
					now = now.Add(upstream.Interval)
					h.Tick(now, 0, false)
				}
				if h.State() != upstream.Silent {
					t.Errorf("it is %s", h.State())
				}
				return 0
			})
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			one := newPuppet(t)
			b := newBench(t, InOrder(one.address), one)
			old := b.awaitUse(one)
			client := old.conn.LocalAddr().(*net.UDPAddr).Port
			one.will(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.RemoteAddr, fmt.Sprint(":", client)) {
					mute(w, r)
				} else {
					fine(w, r)
				}
			})
			// It carries a connection, and small packets pass all the time.
			old.enter()
			defer old.release()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for tick := time.NewTicker(20 * time.Millisecond); ; {
					select {
					case <-tick.C:
						old.conn.Ping()
					case <-stop:
						return
					}
				}
			})
			defer wg.Wait()
			defer close(stop)
			tc.notice(t, old)
			b.await("a new session", func() bool { s := b.pick(nil); return s != nil && s != old })
			b.await("the old one to be left", func() bool { return old.state() == upstream.Retired })
			if _, reason, _ := old.look(); tc.reason != "" && reason != tc.reason {
				t.Errorf("the reason is %q", reason)
			}
			// Its carried connections continue, though.
			if old.conn.Context().Err() != nil {
				t.Error("the old one has ended with what it carries")
			}
			if s := b.pick(nil); s.connect() == nil || s.state() != upstream.Up {
				t.Errorf("the new one is %s", s.state())
			}
		})
	}
}

// TestLateAnswer has a server that answers late, for example because a packet to it was lost. Where only a gateway reaches it, its client waits as
// without a relay.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	b := newBench(t, InOrder(one.address), one)
	s := b.awaitUse(one)
	one.will(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == tunnel.ProbeTarget {
			fine(w, r)
			return
		}
		time.Sleep(2 * answerTimeout)
		w.WriteHeader(http.StatusOK)
		if str, err := w.(http3.HTTPStreamer).HTTPStream(); err == nil {
			_, _ = io.WriteString(str, "late")
			str.Close()
		}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	phone, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(phone)
		phone.Close()
		got <- string(text)
	}()
	var from client
	set := &settings{Config: Config{Fixed: Fixed{Bridge: BridgeAll}}}
	r := &Relay{logger: slog.New(slog.DiscardHandler), comparison: newComparison(set, slog.New(slog.DiscardHandler))}
	r.now.Store(set)
	here := netip.MustParseAddrPort("127.0.0.1:9") // to which no route leads by a device
	to := way{here, expectation{bridged: true}}
	if _, done := r.carry(t.Context(), s, accepted.(*net.TCPConn), nil, to, &from, new(comparing)); !done {
		t.Error("the relay did not wait")
	}
	accepted.Close()
	if text := <-got; text != "late" {
		t.Errorf("the client got %q", text)
	}
}

// TestLeft checks that whatever ends the QUIC connection ends the session, and that a new
// session replaces it.
func TestLeft(t *testing.T) {
	t.Parallel()
	one := newPuppet(t)
	b := newBench(t, InOrder(one.address), one)
	for range 3 {
		s := b.awaitUse(one)
		s.conn.CloseWithError(0, "the test")
		b.await("another session", func() bool { n := b.pick(nil); return n != nil && n != s })
	}
	b.await("somebody to be told", func() bool { return b.changes.Load() > 0 })
	one.will(func(w http.ResponseWriter, _ *http.Request) { refuse(w, 407, tunnel.RequestDenied) })
	s := b.pick(nil)
	s.enter()
	if err := s.connect(); err == nil {
		t.Error("it has connected")
	}
	b.awaitUse(nil)
	if state, reason, _ := s.look(); state != upstream.Retired || reason != "the gateway refuses: as told" {
		t.Errorf("%s: %s", state, reason)
	}
	s.release()
	b.await("the session to end", func() bool { return s.conn.Context().Err() != nil })
	one.will(fine)
	b.awaitUse(one)
}

// TestSinceClockSet checks that the status is right after the clock of a router without a battery has been set.
func TestSinceClockSet(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	b := newBench(t, []Upstream{{p.address, 100}}, p)
	s := b.awaitUse(p)
	b.await("the state", func() bool { return b.states()[0] == StateUp })
	// Takes 60 days from the clock's part of a time (type Time of package time), not from the monotonic part.
	earlier := func(t *time.Time) { *(*uint64)(unsafe.Pointer(t)) -= 60 * 86400 << 30 }
	b.mu.Lock()
	earlier(&b.since)
	earlier(&s.since)
	b.mu.Unlock()
	var st Status
	b.status(&st)
	for _, since := range []time.Time{st.Since, st.Connections[0].Since} {
		if age := time.Now().Round(0).Sub(since.Round(0)); age < 0 || age > patience {
			t.Errorf("for %v", age)
		}
	}
}

// expired returns the error of a certificate that is not valid now. It contains the time.
func expired() error {
	_, err := (&x509.Certificate{
		Raw: []byte{0}, NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(1999, 2, 3, 0, 0, 0, 0, time.UTC),
	}).Verify(x509.VerifyOptions{Roots: x509.NewCertPool()})
	return &tls.CertificateVerificationError{Err: err}
}

func TestWhy(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", Name: "gateway.example", Server: "127.0.0.1:53", IsTimeout: true}}, "no answer from DNS for gateway.example"},
		{&net.DNSError{Err: "no such host", Name: "gateway.example", IsNotFound: true}, "DNS has no address for gateway.example"},
		{&net.DNSError{Err: "server misbehaving", Name: "gateway.example", Server: "127.0.0.1:53"}, "lookup gateway.example on 127.0.0.1:53: server misbehaving"},
		{&net.DNSError{Err: "read udp 127.0.0.1:40420->127.0.0.1:53: read: connection refused", Name: "gateway.example", Server: "127.0.0.1:53"}, "lookup gateway.example on 127.0.0.1:53: connection refused"},
		{expired(), "the gateway's certificate is valid only from 1999-01-01 to 1999-02-03, and here it is " + time.Now().UTC().Format(time.DateOnly)},
		{&quic.IdleTimeoutError{}, upstream.Silence},
		{&quic.HandshakeTimeoutError{}, upstream.Silence},
		{context.DeadlineExceeded, upstream.Silence},
		{fmt.Errorf("http3: parsing frame failed: %w", &quic.StatelessResetError{}), "the gateway no longer knows the session, as after a restart"},
		{&quic.TransportError{ErrorCode: 0x12a, ErrorMessage: "wrong pin: the server's key is sha256/A"}, "wrong pin: the server's key is sha256/A"},
		{&quic.TransportError{ErrorCode: 0x12a, ErrorMessage: "tls: failed to verify certificate: x509: certificate signed by unknown authority"}, "certificate signed by unknown authority"},
		{&quic.TransportError{ErrorCode: 0x128, Remote: true, ErrorMessage: "what it says"}, "CRYPTO_ERROR 0x128 (remote): what it says"},
		{errors.New("what else"), "what else"},
	} {
		if got := why(fmt.Errorf("wrapped: %w", tc.err)); strings.TrimPrefix(got, "wrapped: ") != tc.want {
			t.Errorf("%v: %q, not %q", tc.err, got, tc.want)
		}
	}
}

// TestStalledPath has two connections to a gateway over different paths, one of which
// stalls. New connections must leave it long before it counts as silent, even though it
// carries fewer connections.
func TestStalledPath(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	w := newWire(t, p.address)
	b := newBenchOf(t, 2, []Upstream{{w.address, 100}}, p)
	var stalls, other *session
	b.await("both connections", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		stalls, other = b.places[0].session, b.places[1].session
		return stalls != nil && stalls.state() == upstream.Up && other != nil && other.state() == upstream.Up
	})
	// The handshake's sample of a busy machine would count until the next one.
	b.await("samples of the RTT as the path has it", func() bool {
		usual := true
		for _, s := range []*session{stalls, other} {
			s.connect()
			usual = usual && s.path().RTT < upstream.SilentAfter/20
		}
		return usual
	})
	for range 5 {
		other.enter()
	}
	w.stall(stalls.conn.LocalAddr())
	// What had passed the wire before would count as heard.
	received, since := uint64(0), time.Now()
	b.await("the last packet to arrive", func() bool {
		if n := stalls.conn.ConnectionStats().PacketsReceived; n != received {
			received, since = n, time.Now()
		}
		return time.Since(since) > 50*time.Millisecond
	})
	stalls.enter()
	b.await("the stalled path to be left", func() bool { return b.pick(nil) == other })
	state := stalls.state()
	w.stall(nil)
	switch rtt := other.path().RTT; {
	case state == upstream.Up:
		b.await("the path to be used again", func() bool { return b.pick(nil) == stalls })
	case 3*rtt < upstream.SilentAfter: // for three RTTs of the other's, six streams there are slower than two here
		t.Errorf("only once it is %s; the other's RTT is %v", state, rtt)
	}
}

// TestQuickestPort: flows are spread over two paths, and one of them is slow. A session of several takes the quick one, and one that
// carries nothing is replaced by one that may have a better path.
func TestQuickestPort(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	w := newWire(t, p.address)
	w.slow = 2
	b := newBenchOf(t, 2, []Upstream{{w.address, 100}}, p)
	sessions := func() (all []*session) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.places {
			if p.session != nil && p.session.state() == upstream.Up {
				all = append(all, p.session)
			}
		}
		return all
	}
	b.await("both sessions", func() bool { return len(sessions()) == 2 })
	before := sessions()
	for _, s := range before {
		if w.isSlow(s.conn.LocalAddr()) {
			t.Errorf("port %s has the slow path", portOf(s.conn.LocalAddr()))
		}
	}
	age := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.places {
			p.session.since = p.session.since.Add(-renewAfter)
			p.renewed = p.renewed.Add(-renewAfter)
		}
		b.kick()
	}
	age() // nothing is carried: nothing to gain
	before[0].enter()
	age()
	b.await("another session in the place of the idle one", func() bool {
		now := sessions()
		return len(now) == 2 && now[0] == before[0] && now[1] != before[1]
	})
	b.await("the end of the idle one", func() bool { return before[1].conn.Context().Err() != nil })
	if before[0].state() != upstream.Up {
		t.Errorf("the session that carries something is %s", before[0].state())
	}
}

// A wire is a path to a gateway on which packets to and from one address can stall.
type wire struct {
	address string
	slow    int // so many ports, the first ones seen, have a slow path

	mu      sync.Mutex
	stalled string
	ports   []string
}

// slowness is what a slow path adds to an RTT.
const slowness = time.Second

// isSlow reports whether an address has a slow path.
func (w *wire) isSlow(addr net.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	port := portOf(addr)
	if !slices.Contains(w.ports, port) {
		w.ports = append(w.ports, port)
	}
	return slices.Index(w.ports, port) < w.slow
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listen := func() *net.UDPConn {
		udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { udp.Close() })
		return udp
	}
	gateway, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	in := listen()
	w := &wire{address: in.LocalAddr().String()}
	passes := func(from *net.UDPAddr) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return portOf(from) != w.stalled
	}
	go func() {
		outs := make(map[string]*net.UDPConn)
		for packet := make([]byte, 2048); ; {
			n, from, err := in.ReadFromUDP(packet)
			if err != nil {
				return
			}
			out := outs[from.String()]
			if out == nil {
				out = listen()
				outs[from.String()] = out
				go func() {
					for packet := make([]byte, 2048); ; {
						n, err := out.Read(packet)
						if err != nil {
							return
						}
						if passes(from) {
							in.WriteToUDP(packet[:n], from)
						}
					}
				}()
			}
			if passes(from) {
				data := slices.Clone(packet[:n])
				send := func() { out.WriteToUDP(data, gateway) }
				if w.isSlow(from) {
					time.AfterFunc(slowness, send)
				} else {
					send()
				}
			}
		}
	}()
	return w
}

// stall stops all packets to and from an address. With nil, all packets pass again.
func (w *wire) stall(addr net.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = ""
	if addr != nil {
		w.stalled = portOf(addr)
	}
}

// portOf returns the port of an address. An unbound socket reports another host than its
// packets have.
func portOf(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	return port
}
