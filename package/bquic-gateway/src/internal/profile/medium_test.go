// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"
)

// A network is a simnet.Router of queues that share channels, in virtual time.
type network struct {
	simnet.PerfectRouter

	mu       sync.Mutex
	rng      *rand.Rand
	toClient *queue // the first queue of each direction
	toServer *queue
	beyond   []time.Duration // extra delay of each flow behind the network, each way; may be nil
}

// A channel carries one transmission at a time. A direction of a wire is a channel with one
// queue; an 802.11 channel has many.
type channel struct {
	net     *network
	rate    float64       // bit/s while packets are sent
	access  time.Duration // per transmission: preamble, SIFS, block ACK, DIFS
	slots   int           // random backoff of up to this many slots; 0: none
	gather  int           // packets per transmission at most
	longest time.Duration // limit of a transmission
	queues  []*queue
	busy    bool
}

// slot is the slot time of OFDM (IEEE 802.11-2020, table 17-21).
const slot = 9 * time.Microsecond

// A queue holds the packets of one sender to one receiver.
type queue struct {
	channel *channel
	room    int // packets
	codel   *codel
	police  *policer // before the queue, may be nil
	packets []queued

	delay   func() time.Duration // to the receiver, after the transmission
	lose    func() bool          // may be nil
	reorder func() time.Duration // extra delay of a packet, may be nil
	next    func(simnet.Packet)
}

type queued struct {
	simnet.Packet
	since time.Time
}

// SendPacket takes a packet that an endpoint sends.
func (n *network) SendPacket(p simnet.Packet) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.toServer
	if p.To.(*net.UDPAddr).IP[0] == clientNet {
		q = n.toClient
	}
	q.push(p)
	return nil
}

func (q *queue) push(p simnet.Packet) {
	if q.police != nil && !q.police.passes(time.Now(), len(p.Data)) || len(q.packets) >= q.room {
		return
	}
	q.packets = append(q.packets, queued{p, time.Now()})
	if !q.channel.busy {
		q.channel.transmit()
	}
}

// transmit gives the channel to a random queue with packets, and to the next one afterwards.
// Contending queues collide now and then (minimum contention window 15).
func (c *channel) transmit() {
	var backlogged []*queue
	for _, q := range c.queues {
		if len(q.packets) > 0 {
			backlogged = append(backlogged, q)
		}
	}
	if len(backlogged) == 0 {
		c.busy = false
		return
	}
	c.busy = true
	q, collision := backlogged[0], false
	took := c.access
	if c.slots > 0 {
		q = backlogged[c.net.rng.IntN(len(backlogged))]
		took += time.Duration(c.net.rng.IntN(c.slots/len(backlogged)+1)) * slot
		collision = c.net.rng.IntN(c.slots+1) < len(backlogged)-1
	}
	var sent []simnet.Packet
	limit := took + c.longest
	for len(q.packets) > 0 && len(sent) < c.gather {
		p := q.packets[0]
		air := time.Duration(float64(len(p.Data)+60)*8/c.rate*1e9) + 1
		if len(sent) > 0 && c.longest > 0 && took+air > limit {
			break
		}
		q.packets = q.packets[1:]
		if q.codel != nil && q.codel.drop(time.Now(), p.since, len(q.packets)) {
			continue
		}
		took += air
		sent = append(sent, p.Packet)
	}
	time.AfterFunc(took, func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		if collision {
			// Nothing arrives, and everything is sent again.
			again := make([]queued, len(sent), len(sent)+len(q.packets))
			for i, p := range sent {
				again[i] = queued{p, time.Now()}
			}
			q.packets = append(again, q.packets...)
		} else {
			q.deliver(sent)
		}
		c.transmit()
	})
}

// deliver delivers the packets of a transmission, in order except for delayed ones.
func (q *queue) deliver(packets []simnet.Packet) {
	var usual time.Duration
	if q.delay != nil {
		usual = q.delay()
		if beyond := q.channel.net.beyond; beyond != nil {
			// Together, because the order of timers with the same deadline is undefined.
			flows := make([][]simnet.Packet, len(beyond))
			for _, p := range packets {
				flow := p.To.(*net.UDPAddr).IP[3] - 1
				flows[flow] = append(flows[flow], p)
			}
			for flow, packets := range flows {
				q.after(usual+beyond[flow], packets...)
			}
			return
		}
	}
	var now []simnet.Packet
	for _, p := range packets {
		if q.lose != nil && q.lose() {
			continue
		}
		if q.reorder != nil {
			if late := q.reorder(); late > 0 {
				q.after(usual+late, p)
				continue
			}
		}
		now = append(now, p)
	}
	q.after(usual, now...)
}

func (q *queue) after(d time.Duration, packets ...simnet.Packet) {
	if d == 0 {
		for _, p := range packets {
			q.next(p)
		}
		return
	}
	time.AfterFunc(d, func() {
		q.channel.net.mu.Lock()
		defer q.channel.net.mu.Unlock()
		for _, p := range packets {
			q.next(p)
		}
	})
}

// arrive hands a packet to its endpoint, which queues it.
func (n *network) arrive(p simnet.Packet) { n.PerfectRouter.SendPacket(p) }

const (
	codelTarget = 5 * time.Millisecond  // RFC 8289, section 4.2
	wifiTarget  = 20 * time.Millisecond // net/mac80211/sta_info.c
)

// codel implements RFC 8289, with its interval of 100 ms.
type codel struct {
	target      time.Duration
	first, next time.Time
	dropping    bool
	count, last int
}

func (c *codel) drop(now, since time.Time, left int) bool {
	const interval = 100 * time.Millisecond
	if now.Sub(since) < c.target || left == 0 {
		c.first, c.dropping = time.Time{}, false
		return false
	}
	after := func(t time.Time) time.Time {
		return t.Add(time.Duration(float64(interval) / math.Sqrt(float64(c.count))))
	}
	switch {
	case c.first.IsZero():
		c.first = now.Add(interval)
	case c.dropping && !now.Before(c.next):
		c.count++
		c.next = after(c.next)
		return true
	case !c.dropping && !now.Before(c.first):
		c.dropping = true
		delta := c.count - c.last
		if delta > 1 && now.Sub(c.next) < 16*interval {
			c.count = delta
		} else {
			c.count = 1
		}
		c.last = c.count
		c.next = after(now)
		return true
	}
	return false
}

// A policer drops the packets for which its token bucket has no tokens (tc-police).
type policer struct {
	rate   float64 // bytes/s
	burst  float64 // bytes
	tokens float64
	at     time.Time
}

func (p *policer) passes(now time.Time, size int) bool {
	p.tokens = min(p.burst, p.tokens+now.Sub(p.at).Seconds()*p.rate)
	p.at = now
	if p.tokens < float64(size) {
		return false
	}
	p.tokens -= float64(size)
	return true
}

// wire connects clients and servers by a bottleneck. In the direction of the data, it has
// room for room packets, in the other one for plenty.
func (n *network) wire(rate float64, delay func() time.Duration, room int, withCodel bool) (toClient, toServer *channel) {
	for _, to := range []**queue{&n.toClient, &n.toServer} {
		c := &channel{net: n, rate: rate, gather: 1}
		q := &queue{channel: c, room: room, delay: delay, next: n.arrive}
		if withCodel {
			q.codel = &codel{target: codelTarget}
		}
		c.queues = []*queue{q}
		*to = q
	}
	return n.toClient.channel, n.toServer.channel
}

// mesh connects them by hops of 802.11n on one channel: MCS 7 at 20 MHz unless rate is
// given. delay applies to the wired end of the leg.
func (n *network) mesh(hops int, rate float64, delay func() time.Duration, room int, withCodel bool) *channel {
	c := &channel{
		net: n, rate: rate, gather: 64, longest: 5484 * time.Microsecond, // aPPDUMaxTime
		access: 180 * time.Microsecond, slots: 15,
	}
	for _, to := range []**queue{&n.toClient, &n.toServer} {
		next := n.arrive
		for range hops {
			q := &queue{channel: c, room: room, next: next}
			if withCodel {
				q.codel = &codel{target: wifiTarget}
			}
			if *to == nil {
				q.delay = delay
			}
			c.queues = append(c.queues, q)
			next = q.push
			*to = q
		}
	}
	return c
}

const (
	clientNet = 10 // first byte of a client's address
	serverNet = 11
)

// A trial is one connection over a network, and its result.
type trial struct {
	burst  quic.Burst
	upload bool
	start  time.Duration
	window uint64 // receive window, bytes; 0: larger than the path needs

	received atomic.Int64 // bytes so far
	done     time.Duration
	sending  *quic.Conn // set once it sends
	sender   quic.BurstStats
	lost     uint64
}

// transfer makes each flow carry size bytes over the network that build makes, or as many as
// possible until end. It runs in virtual time.
func transfer(t *testing.T, tlsConf *tls.Config, seed uint64, build func(*network), flows []*trial, size int, end time.Duration, watch func(now time.Duration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{rng: rand.New(rand.NewPCG(seed, 0))}
		build(n)
		sim := &simnet.Simnet{Router: n}
		type ends struct{ client, server *simnet.SimConn }
		var pairs []ends
		for i := range flows {
			addr := func(side byte) *net.UDPAddr { return &net.UDPAddr{IP: net.IP{side, 0, 0, byte(i + 1)}, Port: 1} }
			pairs = append(pairs, ends{
				sim.NewEndpoint(addr(clientNet), simnet.NodeBiDiLinkSettings{}),
				sim.NewEndpoint(addr(serverNet), simnet.NodeBiDiLinkSettings{}),
			})
		}
		if err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		ctx, cancel := context.WithTimeout(t.Context(), end)
		defer cancel()
		begin := time.Now()
		if watch != nil {
			go func() {
				for tick := time.NewTicker(100 * time.Millisecond); ; {
					select {
					case <-ctx.Done():
						tick.Stop()
						return
					case <-tick.C:
						watch(time.Since(begin))
					}
				}
			}()
		}
		var wg sync.WaitGroup
		for i, f := range flows {
			wg.Go(func() {
				select {
				case <-time.After(f.start):
				case <-ctx.Done():
					return
				}
				f.run(ctx, t, tlsConf, pairs[i].client, pairs[i].server, size)
				f.done = time.Since(begin) - f.start
			})
		}
		wg.Wait()
		for _, p := range pairs {
			p.client.Close()
			p.server.Close()
		}
	})
}

// ends returns the two ends of a network, until the end of the test.
func (n *network) ends(t *testing.T) (client, server *simnet.SimConn) {
	t.Helper()
	sim := &simnet.Simnet{Router: n}
	client = sim.NewEndpoint(&net.UDPAddr{IP: net.IP{clientNet, 0, 0, 1}, Port: 1}, simnet.NodeBiDiLinkSettings{})
	server = sim.NewEndpoint(&net.UDPAddr{IP: net.IP{serverNet, 0, 0, 1}, Port: 1}, simnet.NodeBiDiLinkSettings{})
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		client.Close()
		sim.Close()
	})
	return client, server
}

func (f *trial) run(ctx context.Context, t *testing.T, tlsConf *tls.Config, client, server *simnet.SimConn, size int) {
	// The windows never limit, because congestion control is measured.
	window := cmp.Or(f.window, 64<<20)
	conf := &quic.Config{
		Burst: f.burst, HandshakeIdleTimeout: time.Minute, MaxIdleTimeout: time.Hour,
		InitialStreamReceiveWindow: window, InitialConnectionReceiveWindow: window,
		MaxStreamReceiveWindow: window, MaxConnectionReceiveWindow: window,
	}
	ln, err := quic.Listen(server, tlsConf, conf)
	if err != nil {
		t.Error(err)
		return
	}
	defer ln.Close()
	dialled, err := quic.Dial(ctx, client, server.LocalAddr(), tlsConf, conf)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	defer dialled.CloseWithError(0, "")
	accepted, err := ln.Accept(ctx)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return
	}
	defer accepted.CloseWithError(0, "")
	from, to := accepted, dialled
	if f.upload {
		from, to = dialled, accepted
	}
	f.sending = from
	var wg sync.WaitGroup
	defer wg.Wait()
	defer from.CloseWithError(0, "")
	wg.Go(func() {
		str, err := from.OpenUniStream()
		if err != nil {
			return
		}
		chunk := make([]byte, 64<<10)
		for left := size; left > 0; left -= len(chunk) {
			if _, err := str.Write(chunk[:min(left, len(chunk))]); err != nil {
				return
			}
		}
		str.Close()
	})
	stop := context.AfterFunc(ctx, func() { to.CloseWithError(0, "") })
	defer stop()
	str, err := to.AcceptUniStream(ctx)
	if err != nil {
		return
	}
	buf := make([]byte, 64<<10)
	for {
		got, err := str.Read(buf)
		f.received.Add(int64(got))
		if err != nil {
			if err != io.EOF && ctx.Err() == nil {
				t.Error(err)
			}
			break
		}
	}
	f.sender = from.BurstStats()
	f.lost = from.ConnectionStats().PacketsLost
}

func (f *trial) mbps() float64 { return float64(f.received.Load()) * 8 / 1e6 / f.done.Seconds() }
