// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/testutils/simnet"
)

const (
	fullSize = 1452 // the largest packet that quic-go sends, in bytes of UDP payload
	baseSize = 1200
)

// path is a medium with the same bottleneck in both directions. Its MTU can change, and it
// can lose packets by any rule.
type path struct {
	simnet.PerfectRouter
	medium

	mu   sync.Mutex
	rng  *rand.Rand
	free map[string]time.Time // by receiver, when the bottleneck's buffer is empty
	mtu  int                  // bytes of UDP payload; larger packets are lost silently
	lose func() bool
}

func (p *path) set(mtu int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mtu = mtu
}

func (p *path) SendPacket(packet simnet.Packet) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, to, size := time.Now(), packet.To.String(), len(packet.Data)
	if size > p.mtu || p.lose != nil && p.lose() || p.rng.Float64() < p.loss {
		return nil
	}
	free := p.free[to]
	if free.Before(now) {
		free = now
	}
	if free.Sub(now).Seconds()*p.rate/8 > float64(p.queue*size) {
		return nil
	}
	free = free.Add(time.Duration(float64(size*8) / p.rate * 1e9))
	p.free[to] = free
	time.AfterFunc(free.Sub(now)+p.delay, func() { p.PerfectRouter.SendPacket(packet) })
	return nil
}

// A probingConn makes quic-go search for the MTU, which it does only if it can set the DF
// bit: here, on another socket.
type probingConn struct {
	*simnet.SimConn
	udp *net.UDPConn
}

func (c probingConn) SyscallConn() (syscall.RawConn, error) { return c.udp.SyscallConn() }

// sizes records the packet sizes that a connection uses.
type sizes struct {
	mu  sync.Mutex
	all []size
}

type size struct {
	after time.Duration
	bytes int
}

func (s *sizes) tracer(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
	return sizeRecorder{s, time.Now()}
}

type sizeRecorder struct {
	*sizes
	start time.Time
}

func (r sizeRecorder) AddProducer() qlogwriter.Recorder { return r }
func (r sizeRecorder) SupportsSchemas(string) bool      { return true }
func (r sizeRecorder) Close() error                     { return nil }
func (r sizeRecorder) RecordEvent(event qlogwriter.Event) {
	if e, ok := event.(qlog.MTUUpdated); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, size{time.Since(r.start), e.Value})
	}
}

// now is the current packet size.
func (s *sizes) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return baseSize
	}
	return s.all[len(s.all)-1].bytes
}

// falls is how often packets fell to the smallest size.
func (s *sizes) falls() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, size := range s.all {
		if size.bytes == baseSize {
			n++
		}
	}
	return n
}

var wired = medium{name: "wired", rate: 2e6, delay: 10 * time.Millisecond, queue: 40}

// profiles are profiles that differ in MTU search, bursts and acknowledgements.
func profiles() (ps []Profile) {
	for _, name := range []string{Standard, BQUIC, "bquic-2019"} {
		ps = append(ps, profileNamed(name))
	}
	return ps
}

// ends are both ends of a connection over a path.
type ends struct {
	t              *testing.T
	path           *path
	client, server *quic.Conn
	clientSizes    *sizes
	serverSizes    *sizes
}

// overPath calls f in virtual time with a connection over m.
func overPath(t *testing.T, tlsConf *tls.Config, m medium, b quic.Burst, mtu int, f func(*ends)) {
	t.Helper()
	// The sockets are opened outside the bubble, so that nothing inside waits for them.
	var udp []*net.UDPConn
	for range 2 {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		udp = append(udp, conn)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		clientAddr := &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1), Port: 1}
		p := &path{medium: m, rng: rand.New(rand.NewPCG(1, 0)), free: map[string]time.Time{}, mtu: mtu}
		n := &simnet.Simnet{Router: p}
		settings := simnet.NodeBiDiLinkSettings{Uplink: simnet.LinkSettings{MTU: 1500}, Downlink: simnet.LinkSettings{MTU: 1500}}
		client := n.NewEndpoint(clientAddr, settings)
		server := n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(1, 0, 0, 2), Port: 2}, settings)
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		defer client.Close()
		defer server.Close()

		e := &ends{t: t, path: p, clientSizes: &sizes{}, serverSizes: &sizes{}}
		conf := func(s *sizes) *quic.Config {
			return &quic.Config{
				Burst: b, InitialStreamReceiveWindow: 8 << 20, InitialConnectionReceiveWindow: 8 << 20,
				EnableDatagrams: true, Tracer: s.tracer, MaxIdleTimeout: time.Hour,
			}
		}
		serverTransport := &quic.Transport{Conn: probingConn{server, udp[0]}}
		defer serverTransport.Close()
		clientTransport := &quic.Transport{Conn: probingConn{client, udp[1]}}
		defer clientTransport.Close()
		ln, err := serverTransport.Listen(tlsConf, conf(e.serverSizes))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if e.client, err = clientTransport.Dial(ctx, server.LocalAddr(), tlsConf, conf(e.clientSizes)); err != nil {
			t.Fatal(err)
		}
		defer e.client.CloseWithError(0, "")
		if e.server, err = ln.Accept(ctx); err != nil {
			t.Fatal(err)
		}
		defer e.server.CloseWithError(0, "")
		f(e)
	})
}

// A flow sends pieces over its own stream until it is stopped, and notes each arrival.
type flow struct {
	str  *quic.SendStream
	mu   sync.Mutex
	last time.Time
	gap  time.Duration // the longest without an arrival since the last call of longest
	got  int
	err  error
}

func startFlow(t *testing.T, from, to *quic.Conn, pause time.Duration, piece int) *flow {
	t.Helper()
	str, err := from.OpenUniStream()
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{str: str, last: time.Now()}
	go func() {
		for b := make([]byte, piece); ; {
			if _, err := str.Write(b); err != nil {
				return
			}
			select {
			case <-from.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	}()
	go func() {
		in, err := to.AcceptUniStream(context.Background())
		for b := make([]byte, 64<<10); err == nil; {
			var n int
			n, err = in.Read(b)
			f.mu.Lock()
			f.gap = max(f.gap, time.Since(f.last))
			f.last = time.Now()
			f.got += n
			f.mu.Unlock()
		}
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
	}()
	return f
}

// longest returns the longest time without an arrival since its last call, and the bytes
// received since then.
func (f *flow) longest() (gap time.Duration, got int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gap, got, err = max(f.gap, time.Since(f.last)), f.got, f.err
	f.gap, f.got, f.last = 0, 0, time.Now()
	return gap, got, err
}

func (f *flow) stop() { f.str.CancelWrite(0) }

// within is how soon data must flow again after the MTU has shrunk.
const within = 3 * time.Second

func TestBlackHole(t *testing.T) {
	tlsConf := tlsConfig(t)
	// Slow, because what a test takes is for packets; the buffers are as long in time as those of 4 Mbit/s with twice as many.
	near := medium{name: "near", rate: 2e6, delay: 2 * time.Millisecond, queue: 25}
	mesh := medium{name: "mesh", rate: 2e6, delay: 20 * time.Millisecond, queue: 50}
	far := medium{name: "far", rate: 2e6, delay: 150 * time.Millisecond, queue: 50}
	lossy := medium{name: "lossy", rate: 2e6, delay: 20 * time.Millisecond, queue: 50, loss: 0.03}
	mtus := []int{1420, 1320, 1230}
	for n, p := range profiles() {
		for i, m := range []medium{near, mesh, far, lossy} {
			for j, under := range []string{"download", "upload", "idle", "requests"} {
				// Each profile, medium and use meets each MTU, but not every combination runs.
				mtu := mtus[(n+i+j)%len(mtus)]
				t.Run(fmt.Sprintf("%s/%s/%d/%s", p.Name, m.name, mtu, under), func(t *testing.T) {
					mtu := mtu - 28 // IPv4 and UDP
					overPath(t, tlsConf, m, p.Burst, fullSize, func(e *ends) {
						from, to, changed := e.server, e.client, e.serverSizes
						if under == "upload" {
							from, to, changed = e.client, e.server, e.clientSizes
						}
						pause, piece := time.Duration(0), 64<<10
						if under == "requests" { // a packet or two at a time
							pause, piece = 200*time.Millisecond, 1500
						}
						f := startFlow(t, from, to, pause, piece)
						time.Sleep(15 * time.Second)
						if changed.now() < fullSize-maxMTUSlack {
							t.Fatalf("packets of %d bytes after 15s on a path for %d", changed.now(), fullSize)
						}
						if under == "idle" {
							f.stop()
							time.Sleep(10 * time.Second)
						}
						f.longest()
						e.path.set(mtu)
						if under == "idle" {
							f = startFlow(t, from, to, 0, 64<<10)
						}
						time.Sleep(15 * time.Second)
						gap, got, err := f.longest()
						if err != nil || gap > within || got < 10*1500 {
							t.Errorf("longest gap %s, %d bytes, %v", gap, got, err)
						}
						if now := changed.now(); now > mtu || now < mtu-maxMTUSlack && under != "requests" {
							t.Errorf("packets of %d bytes on a path for %d: %v", now, mtu, changed.all)
						}
						f.stop()

						for _, way := range [][2]*quic.Conn{{e.server, e.client}, {e.client, e.server}} {
							g := startFlow(t, way[0], way[1], 0, 64<<10)
							time.Sleep(2 * within) // the other direction may have to find the black hole first
							if gap, got, err := g.longest(); err != nil || gap > within || got < 30_000 {
								t.Errorf("a new stream: longest gap %s, %d bytes, %v", gap, got, err)
							}
							g.stop()
						}
					})
				})
			}
		}
	}
}

// maxMTUSlack is how far below the MTU the search may end, with a loss or two.
const maxMTUSlack = 48

// A connection works on a path that carries no more than the least MTU of QUIC.
func TestSmallPath(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, p := range profiles() {
		t.Run(p.Name, func(t *testing.T) {
			overPath(t, tlsConf, wired, p.Burst, 1230-28, func(e *ends) {
				for _, way := range [][2]*quic.Conn{{e.server, e.client}, {e.client, e.server}} {
					f := startFlow(t, way[0], way[1], 0, 64<<10)
					time.Sleep(within)
					if gap, got, err := f.longest(); err != nil || gap > time.Second || got < 400<<10 { // half of what the path carries
						t.Errorf("longest gap %s, %d bytes, %v", gap, got, err)
					}
					f.stop()
				}
			})
		})
	}
}

// Ordinary loss is no black hole: packets keep their size.
func TestNoBlackHole(t *testing.T) {
	tlsConf := tlsConfig(t)
	shallow := medium{name: "10-packet buffer", rate: 5e6, delay: 10 * time.Millisecond, queue: 10}
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(share float64) func() bool {
		return func() bool { return rng.Float64() < share }
	}
	// All packets are lost for 100 ms, about every 2 s.
	var next time.Time
	bursts := func() bool {
		now := time.Now()
		if now.Sub(next) > 100*time.Millisecond {
			next = now.Add(time.Duration(rng.Int64N(int64(4 * time.Second))))
		}
		return now.After(next)
	}
	for _, test := range []struct {
		name  string
		m     medium
		lose  func() bool
		pause time.Duration
		piece int
		most  int // black holes in two minutes
		least int // size of packets afterwards
	}{
		{"nothing", wired, nil, 0, 64 << 10, 0, fullSize - maxMTUSlack},
		{"3 % random", wired, random(0.03), 0, 64 << 10, 0, fullSize - maxMTUSlack},
		{"3 % random, small requests", wired, random(0.03), 50 * time.Millisecond, 3000, 0, fullSize - maxMTUSlack},
		// Of the search after a black hole, too, three probes may be lost by chance, which ends it: once in 300 runs.
		{"10 % random", wired, random(0.1), 0, 64 << 10, 2, baseSize},
		// Among some sixty outages, one may lose only large packets by chance. That costs a
		// search for the size.
		{"bursts", wired, bursts, 0, 64 << 10, 2, fullSize - maxMTUSlack},
		{"bursts, small requests", wired, bursts, 50 * time.Millisecond, 3000, 3, fullSize - maxMTUSlack},
		{"10-packet buffer", shallow, nil, 0, 64 << 10, 0, fullSize - maxMTUSlack},
	} {
		for _, p := range profiles() {
			t.Run(test.name+"/"+p.Name, func(t *testing.T) {
				next = time.Time{}
				overPath(t, tlsConf, test.m, p.Burst, fullSize, func(e *ends) {
					e.path.mu.Lock()
					e.path.lose = test.lose
					e.path.mu.Unlock()
					f := startFlow(t, e.server, e.client, test.pause, test.piece)
					time.Sleep(2 * time.Minute)
					_, got, err := f.longest()
					if err != nil {
						t.Error(err)
					}
					if falls := e.serverSizes.falls(); falls > test.most {
						t.Errorf("%d black holes were found in %d bytes", falls, got)
					}
					if now := e.serverSizes.now(); now < test.least {
						t.Errorf("packets of %d bytes", now)
					}
					f.stop()
				})
			})
		}
	}
}

// An outage says nothing about the size that a path carries. If chance made it look like a
// black hole, the size soon recovers.
func TestOutage(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, p := range profiles() {
		for _, outage := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
			for _, pause := range []time.Duration{0, 50 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s/%s/%s", p.Name, outage, pause), func(t *testing.T) {
					overPath(t, tlsConf, wired, p.Burst, fullSize, func(e *ends) {
						f := startFlow(t, e.server, e.client, pause, 16<<10)
						time.Sleep(10 * time.Second)
						before := e.serverSizes.now()
						for range 10 {
							e.path.set(0)
							time.Sleep(outage)
							e.path.set(fullSize)
							// The first probe after the outage comes at most as long again later.
							time.Sleep(outage + 2*time.Second)
							if now := e.serverSizes.now(); now < before {
								t.Errorf("packets of %d bytes after the outage, %d before", now, before)
							}
						}
						t.Logf("%d black holes were found", e.serverSizes.falls())
						if _, _, err := f.longest(); err != nil {
							t.Error(err)
						}
						f.stop()
					})
				})
			}
		}
	}
}

// However long an outage lasts, there is at most a pair of probes per minute, and the
// connection continues when the path is back.
func TestLongOutage(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, p := range profiles() {
		t.Run(p.Name, func(t *testing.T) {
			overPath(t, tlsConf, wired, p.Burst, fullSize, func(e *ends) {
				f := startFlow(t, e.server, e.client, 0, 16<<10)
				time.Sleep(10 * time.Second)
				e.path.set(0)
				time.Sleep(10 * time.Second)
				before := e.server.ConnectionStats().PacketsSent
				const minutes = 20
				time.Sleep(minutes * time.Minute)
				// A pair per minute, and the probes before the timeout has grown to that.
				if sent := e.server.ConnectionStats().PacketsSent - before; sent > 3*minutes {
					t.Errorf("%d packets in %d minutes without a path", sent, minutes)
				}
				e.path.set(fullSize)
				f.longest()
				time.Sleep(70 * time.Second)
				if _, got, err := f.longest(); got == 0 || err != nil {
					t.Errorf("%d bytes after it: %v", got, err)
				}
				f.stop()
			})
		})
	}
}

// Loss that looked like a black hole costs little: the size soon recovers.
func TestShortBlackHole(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, p := range profiles() {
		t.Run(p.Name, func(t *testing.T) {
			overPath(t, tlsConf, wired, p.Burst, fullSize, func(e *ends) {
				f := startFlow(t, e.server, e.client, 0, 64<<10)
				time.Sleep(10 * time.Second)
				e.path.set(1300)
				for e.serverSizes.falls() == 0 {
					time.Sleep(time.Millisecond)
				}
				e.path.set(fullSize)
				time.Sleep(within)
				if now := e.serverSizes.now(); now < fullSize-maxMTUSlack {
					t.Errorf("packets of %d bytes: %v", now, e.serverSizes.all)
				}
				f.stop()
			})
		})
	}
}

// When the path's MTU grows again, packets follow within the time of RFC 8899.
func TestPathGrows(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, name := range []string{Standard, BQUIC} {
		overPath(t, tlsConf, media[4], profileNamed(name).Burst, fullSize, func(e *ends) {
			f := startFlow(t, e.server, e.client, 20*time.Millisecond, 2000)
			time.Sleep(10 * time.Second)
			e.path.set(1300)
			time.Sleep(time.Minute)
			if now := e.serverSizes.now(); now > 1300 || now < 1300-maxMTUSlack {
				t.Errorf("%s: packets of %d bytes on a path for 1300", name, now)
			}
			e.path.set(fullSize)
			time.Sleep(11 * time.Minute)
			if now := e.serverSizes.now(); now < fullSize-maxMTUSlack {
				t.Errorf("%s: packets of %d bytes on a path for %d", name, now, fullSize)
			}
			f.stop()
		})
	}
}

// Datagrams that the path no longer carries are refused; smaller ones arrive.
func TestBlackHoleDatagrams(t *testing.T) {
	tlsConf := tlsConfig(t)
	for _, p := range profiles() {
		t.Run(p.Name, func(t *testing.T) {
			overPath(t, tlsConf, wired, p.Burst, fullSize, func(e *ends) {
				got := make(chan []byte, 1<<20)
				go func() {
					for {
						b, err := e.client.ReceiveDatagram(context.Background())
						if err != nil {
							return
						}
						got <- b
					}
				}()
				large, small := bytes.Repeat([]byte("l"), 1380), bytes.Repeat([]byte("s"), 1100)
				// Only datagrams: the search must have found a size that carries them.
				for range 300 {
					e.server.SendDatagram(small)
					time.Sleep(20 * time.Millisecond)
				}
				if err := e.server.SendDatagram(large); err != nil {
					t.Fatalf("packets of %d bytes: %v", e.serverSizes.now(), err)
				}
				time.Sleep(time.Second)
				for len(got) > 1 {
					<-got
				}
				if b := <-got; !slices.Equal(b, large) {
					t.Fatalf("%d bytes arrived", len(b))
				}

				e.path.set(1320 - 28)
				start := time.Now()
				var tooLarge *quic.DatagramTooLargeError
				for !errors.As(e.server.SendDatagram(large), &tooLarge) {
					if time.Since(start) > within {
						t.Fatalf("a datagram of %d bytes is still taken: %v", len(large), e.serverSizes.all)
					}
					time.Sleep(20 * time.Millisecond)
				}
				if n := tooLarge.MaxDatagramPayloadSize; n < 1100 || n > 1292 {
					t.Errorf("datagrams of up to %d bytes", n)
				}
				time.Sleep(time.Second)
				for len(got) > 0 {
					<-got
				}
				if err := e.server.SendDatagram(small); err != nil {
					t.Fatal(err)
				}
				if b := <-got; !slices.Equal(b, small) {
					t.Fatalf("%d bytes arrived", len(b))
				}
				if err := context.Cause(e.client.Context()); err != nil && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			})
		})
	}
}
