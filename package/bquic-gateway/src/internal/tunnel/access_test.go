// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/peer"
)

// hashes returns the hashes of tokens.
func hashes(tokens ...string) (hs []peer.Hash) {
	for _, t := range tokens {
		hs = append(hs, peer.HashOf(t))
	}
	return hs
}

// echoTCP returns an origin that sends back what it receives.
func echoTCP(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func alive(t *testing.T, str *http3.RequestStream) {
	t.Helper()
	send(t, str, []byte("hello"))
	expect(t, str, []byte("hello"))
}

// dead waits for a tunnel's end.
func dead(t *testing.T, str *http3.RequestStream) {
	t.Helper()
	if _, err := str.Read(make([]byte, 1)); !isConnectError(err) {
		t.Errorf("a tunnel that was to end: %v", err)
	}
}

// counted waits until the counters are right. An echo may arrive before its data has
// been counted.
func counted(t *testing.T, h *Handler, right func(Stats) bool) {
	t.Helper()
	for end := time.Now().Add(patience); !right(h.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", h.Stats())
		}
	}
}

// TestRevoke checks that tunnels of a removed token or peer end, and all others continue.
func TestRevoke(t *testing.T) {
	north := peer.Config{Name: "north", Tokens: hashes("north-old", "north-new")}
	south := peer.Config{Name: "south", Tokens: hashes("south-token")}
	shared := peer.Config{Name: peer.Shared, Tokens: hashes("shared-token")}
	access := func(peers ...peer.Config) Access { return Access{Peers: peers, Allow: loopback} }
	h := handlerFor(access(north, south, shared))
	conn := serve(t, h)
	origin, udp := echoTCP(t), echoUDP(t)
	open := func(token string) *http3.RequestStream {
		t.Helper()
		str, res := connect(t, conn, origin, "Bearer "+token)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d", token, res.StatusCode)
		}
		alive(t, str)
		return str
	}
	strs := make(map[string]*http3.RequestStream)
	for _, token := range []string{"north-old", "north-new", "south-token", "shared-token"} {
		strs[token] = open(token)
	}
	datagrams, res := connectUDP(t, conn, fmt.Sprintf("%s%s/%d/", udpPath, udp.Addr(), udp.Port()), "Bearer north-old")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	counted(t, h, func(st Stats) bool {
		return st.Open == 5 && len(st.Peers) == 3 && *st.Peers[0] == Peer{Name: "north", Open: 3, Total: 3, Up: 10, Down: 10}
	})

	// A token is removed; north presents its new one.
	north.Tokens = hashes("north-new")
	h.SetAccess(access(south, shared, north)) // in any order
	dead(t, strs["north-old"])
	_ = datagrams.SetReadDeadline(time.Now().Add(patience))
	if _, err := datagrams.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the tunnel for UDP: %v", err)
	}
	for _, token := range []string{"north-new", "south-token", "shared-token"} {
		alive(t, strs[token])
	}
	if _, res := connect(t, conn, origin, "Bearer north-old"); res.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("with the old token: %d", res.StatusCode)
	}
	// A peer and the shared token are removed.
	h.SetAccess(access(south))
	dead(t, strs["north-new"])
	dead(t, strs["shared-token"])
	alive(t, strs["south-token"])
	counted(t, h, func(st Stats) bool { return st.Open == 1 })
	// The peer is back, with new counters.
	h.SetAccess(access(south, north))
	open("north-new")
	counted(t, h, func(st Stats) bool {
		return st.Denied == 1 && st.Total == 6 && len(st.Peers) == 2 && st.Peers[0].Total == 1 &&
			*st.Peers[1] == (Peer{Name: "south", Open: 1, Total: 1, Up: 15, Down: 15})
	})
}

// TestPeers checks that each peer is limited to its prefixes and its number of tunnels,
// and named in the log.
func TestPeers(t *testing.T) {
	h := handlerFor(Access{Allow: loopback, Peers: []peer.Config{
		{Name: "north", Tokens: hashes("north-token"), Tunnels: 2},
		{Name: "south", Tokens: hashes("south-token"), Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	}})
	var log logBuffer // the handler logs before it responds
	h.Logger = slog.New(slog.NewTextHandler(&log, nil))
	conn, origin := serve(t, h), echoTCP(t)
	for i := range 3 {
		str, res := connect(t, conn, origin, "Bearer north-token")
		if i < 2 {
			alive(t, str)
		} else if refusal := ReadRefusal(res); refusal.Status != 503 || refusal.Type != LimitReached {
			t.Errorf("a third tunnel: %+v", *refusal)
		}
	}
	if _, res := connect(t, conn, origin, "Bearer south-token"); res.StatusCode != http.StatusForbidden {
		t.Errorf("from elsewhere: %d", res.StatusCode)
	}
	st := h.Stats()
	if st.Peers[0].Refused != 1 || st.Peers[1].Refused != 1 || st.Denied != 0 {
		t.Errorf("%+v", st)
	}
	for _, want := range []string{"peer=north", "peer=south"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log: %s", want, log.String())
		}
	}
}

// TestShare checks that a peer that has taken most places keeps its tunnels when others ask, and that others get its places when they end.
func TestShare(t *testing.T) {
	const all = 12
	h := handlerFor(Access{Allow: loopback, Places: all, Peers: []peer.Config{
		{Name: "greedy", Tokens: hashes("greedy-token")},
		{Name: "modest", Tokens: hashes("modest-token")},
	}})
	var short atomic.Bool
	h.Short = short.Load
	conn, origin := serve(t, h), echoTCP(t)
	open := func(token string) (strs []*http3.RequestStream) {
		for range all {
			str, res := connect(t, conn, origin, "Bearer "+token)
			if res.StatusCode != http.StatusOK {
				if refusal := ReadRefusal(res); refusal.Status != 503 || refusal.Type != LimitReached {
					t.Errorf("%+v", *refusal)
				}
				continue
			}
			strs = append(strs, str)
		}
		return strs
	}
	greedy := open("greedy-token")
	if len(greedy) < all/2+1 || len(greedy) >= all {
		t.Fatalf("alone it has %d", len(greedy))
	}
	modest := open("modest-token")
	if len(modest) != all-len(greedy) {
		t.Errorf("the other one has %d", len(modest))
	}
	tunnel := greedy[0]
	greedy = greedy[1:]
	Cancel(tunnel, http3.ErrCodeRequestCanceled)
	counted(t, h, func(st Stats) bool { return st.Open == all-1 })
	if _, res := connect(t, conn, origin, "Bearer greedy-token"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the one with most tunnels gets the last place: %d", res.StatusCode)
	}
	str, res := connect(t, conn, origin, "Bearer modest-token")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the other one does not get the last place: %d", res.StatusCode)
	}
	for _, str := range append(append(greedy, modest...), str) {
		alive(t, str)
	}
	// Short memory takes precedence.
	short.Store(true)
	_, res = connect(t, conn, origin, "Bearer modest-token")
	if refusal := ReadRefusal(res); refusal.Status != 503 || refusal.Type != LimitReached || !strings.Contains(refusal.Detail, "memory") {
		t.Errorf("%+v", *refusal)
	}
}

// An endless stream never blocks, in either direction.
type endless struct{ DatagramStream }

func (endless) Read(b []byte) (int, error)                      { return len(b), nil }
func (endless) Write(b []byte) (int, error)                     { return len(b), nil }
func (endless) SendDatagram([]byte) error                       { return nil }
func (endless) ReceiveDatagram(context.Context) ([]byte, error) { return make([]byte, 1000), nil }
func (endless) CancelRead(quic.StreamErrorCode)                 {}
func (endless) CancelWrite(quic.StreamErrorCode)                {}
func (endless) Close() error                                    { return nil }

// TestRate checks that all streams of a peer together stay within its rate, separately
// for each direction.
func TestRate(t *testing.T) {
	if newLimits(0) != nil {
		t.Error("no rate costs something")
	}
	const bytesPerSecond = 1e6
	for name, move := range map[string]func(*rated) int{
		"read":    func(s *rated) int { n, _ := s.Read(make([]byte, 10_000)); return n },
		"write":   func(s *rated) int { n, _ := s.Write(make([]byte, 100_000)); return n },
		"receive": func(s *rated) int { b, _ := s.ReceiveDatagram(context.Background()); return len(b) },
		"send":    func(s *rated) int { _ = s.SendDatagram(make([]byte, 1000)); return 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimits(bytesPerSecond)
				moved := make(chan int)
				begin := time.Now()
				for range 4 {
					go func() {
						s := newRated(t.Context(), endless{}, l, l.enter(""))
						sum := 0
						for time.Since(begin) < 10*time.Second {
							sum += move(s)
						}
						moved <- sum
					}()
				}
				sum := 0
				for range 4 {
					sum += <-moved
				}
				seconds := time.Since(begin).Seconds()
				if got := float64(sum) / seconds; got < 0.97*bytesPerSecond || got > 1.03*bytesPerSecond {
					t.Errorf("%.0f bytes a second", got)
				}
			})
		})
	}
	// A waiting stream is woken when the tunnel ends.
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(1)
		s := newRated(t.Context(), endless{}, l, l.enter(""))
		ended := make(chan error)
		go func() {
			_, err := s.Write(make([]byte, 1<<20))
			ended <- err
		}()
		synctest.Wait()
		Cancel(s, http3.ErrCodeConnectError)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestRatedAnswer has a stream that is no longer read, as when a server takes no more of an upload. What is written to it still passes.
func TestRatedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(rateChunk)
		s := newRated(t.Context(), endless{}, l, l.enter(""))
		s.CancelRead(quic.StreamErrorCode(http3.ErrCodeConnectError))
		if n, err := s.Write(make([]byte, 4*rateChunk)); n != 4*rateChunk || err != nil {
			t.Errorf("%d bytes were written: %v", n, err)
		}
	})
}

// TestRatedTurns has many downloads at a rate, and a small answer, as to DNS. It waits for a packet of each of them, not for more.
func TestRatedTurns(t *testing.T) {
	const bytesPerSecond, downloads = 1e6, 50
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		l := newLimits(bytesPerSecond)
		for range downloads {
			go func() {
				for s := newRated(ctx, endless{}, l, l.enter("")); ctx.Err() == nil; {
					_, _ = s.Write(make([]byte, largeBuffer))
				}
			}()
		}
		time.Sleep(5 * time.Second)
		begin := time.Now()
		_, _ = newRated(ctx, endless{}, l, l.enter("")).Write(make([]byte, 300))
		if waited, most := time.Since(begin).Seconds(), (downloads+1)*1500/bytesPerSecond; waited > most {
			t.Errorf("it waited for %.3f s, not for at most %.3f s", waited, most)
		}
	})
}

// TestRatedClients checks that a client with many downloads gets no more of a peer's rate than one with a single one, and that nothing is
// left of clients whose tunnels have ended.
func TestRatedClients(t *testing.T) {
	const bytesPerSecond, downloads = 1e6, 50
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		l := newLimits(bytesPerSecond)
		var moved [2]atomic.Int64
		var wg sync.WaitGroup
		for i := range downloads {
			client := min(i, 1)
			wg.Go(func() {
				name := fmt.Sprint("relay ", client)
				defer l.leave(name)
				for s := newRated(ctx, endless{}, l, l.enter(name)); ctx.Err() == nil; {
					n, _ := s.Write(make([]byte, largeBuffer))
					moved[client].Add(int64(n))
				}
			})
		}
		time.Sleep(20 * time.Second)
		end()
		wg.Wait()
		if one, many := moved[0].Load(), moved[1].Load(); one < many*9/10 || many < one*9/10 {
			t.Errorf("one download: %d bytes, %d of another client: %d bytes", one, downloads-1, many)
		}
		if len(l.clients) > 0 {
			t.Errorf("%d clients are left", len(l.clients))
		}
	})
}

// TestRatedTunnel checks that a tunnel of a peer with a rate limit carries all bytes.
func TestRatedTunnel(t *testing.T) {
	h := handlerFor(Access{Allow: loopback, Peers: []peer.Config{{Name: "north", Tokens: hashes(token), Rate: 50e6}}})
	conn := serve(t, h)
	str, res := connect(t, conn, echoTCP(t), "Bearer "+token)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	data := random(1 << 20)
	go func() { send(t, str, data); str.Close() }()
	expect(t, str, data)
	expectEOF(t, str)
	echo := echoUDP(t)
	str, res = connectUDP(t, conn, fmt.Sprintf("%s%s/%d/", udpPath, echo.Addr(), echo.Port()), "Bearer "+token)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	if err := str.SendDatagram([]byte("\x00hello")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got, err := str.ReceiveDatagram(ctx); err != nil || string(got) != "\x00hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRateOfPeer checks that all tunnels of a peer share its limit, also those after a reload that does not change it.
func TestRateOfPeer(t *testing.T) {
	h := new(Handler)
	of := func(rate float64) *limits {
		h.SetAccess(Access{Peers: []peer.Config{{Name: "north", Tokens: hashes(token), Rate: rate}}})
		g, err := h.enter(h.members[0], peer.HashOf(token), netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		defer h.leave(g)
		return g.limits
	}
	first := of(1e6)
	if first == nil || of(1e6) != first || of(2e6) == first || of(0) != nil {
		t.Error("a limit that does not follow the configuration")
	}
}

// TestGrants checks that a tunnel that is being opened when its peer's token is removed ends, and that nothing is left of it.
func TestGrants(t *testing.T) {
	h := handlerFor(Access{Peers: []peer.Config{{Name: "north", Tokens: hashes(token)}}, Allow: loopback, Places: 10})
	m, origin := h.members[0], echoTCP(t)
	g, err := h.enter(m, peer.HashOf(token), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	h.SetAccess(Access{Allow: loopback})
	if conn, err := h.connect(t.Context(), g, false, origin); !errors.Is(err, errRevoked) {
		t.Errorf("its target is reached: %v, %v", conn, err)
	}
	h.leave(g)
	if len(h.granted) > 0 || h.places.Used() > 0 {
		t.Errorf("%d tunnels and %d places are left", len(h.granted), h.places.Used())
	}
	if _, err := h.enter(m, peer.HashOf(token), netip.Addr{}); err == nil {
		t.Error("a peer that is no longer configured has a tunnel")
	}
}

func TestPlacesIn(t *testing.T) {
	// The last quarter of the file descriptors is for requests and their origins.
	const much = otherMemory + 1<<44
	for ceiling, want := range map[uint64]int{
		0: 204, 32 << 20: 204, otherMemory + 500*tunnelMemory: 500, much: int(min((much-otherMemory)/tunnelMemory, Files()/4*3)),
	} {
		if n := PlacesIn(ceiling); n != want {
			t.Errorf("%d places in %d bytes, not %d", n, ceiling, want)
		}
	}
}
