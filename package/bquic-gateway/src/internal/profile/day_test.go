// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/tunnel"
)

// A day is the events in the life of a relay's session, evenly spaced in random order.
type day struct {
	length  time.Duration
	routes  int // route changes: rate, RTT and buffer change, half of the time during a transfer
	outages int // all during a transfer
}

const (
	longestOutage = tunnel.IdleTimeout * 9 / 10
	// The approximate duration of a transfer. It is long compared with the path's RTT, because a
	// new session needs some time to find out how fast the path is.
	dayTransfer = 4 * time.Second
)

// dayConfig is the configuration of both ends.
func dayConfig() *quic.Config {
	return &quic.Config{
		Burst: profileNamed(BQUIC).Burst, HandshakeIdleTimeout: 10 * time.Second,
		MaxIdleTimeout: tunnel.IdleTimeout, KeepAlivePeriod: 15 * time.Second,
		InitialStreamReceiveWindow: 8 << 20, InitialConnectionReceiveWindow: 8 << 20,
		MaxStreamReceiveWindow: 8 << 20, MaxConnectionReceiveWindow: 8 << 20,
	}
}

// A request asks for a number of bytes made from a seed, in either direction.
type request struct {
	Upload bool
	Size   int64
	Seed   uint64
}

// content generates the bytes of a request.
func (r request) content() io.Reader {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], r.Seed)
	return io.LimitReader(rand.NewChaCha8(key), r.Size)
}

// check reads from to its end, and compares it with the bytes of the request.
func (r request) check(from io.Reader) error {
	want := r.content()
	a, b := make([]byte, 32<<10), make([]byte, 32<<10)
	for at := 0; ; {
		n, err := from.Read(a)
		if _, short := io.ReadFull(want, b[:n]); short != nil || !bytes.Equal(a[:n], b[:n]) {
			return fmt.Errorf("other bytes than those sent, in %d behind %d", n, at)
		}
		at += n
		if err == io.EOF && int64(at) == r.Size {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", at, r.Size, err)
		}
	}
}

// serveDay answers the requests of a connection until the connection or the day ends.
func serveDay(ctx context.Context, conn *quic.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.CloseWithError(0, "") })
	defer stop()
	for {
		str, err := conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			defer str.Close()
			var r request
			if err := binary.Read(str, binary.BigEndian, &r); err != nil {
				return
			}
			if !r.Upload {
				io.Copy(str, r.content())
			} else if err := r.check(str); err == nil {
				str.Write([]byte{1})
			} else {
				str.CancelWrite(1)
			}
		}()
	}
}

// do carries out a request and returns how long it took.
func (r request) do(ctx context.Context, conn *quic.Conn) (time.Duration, error) {
	start := time.Now()
	str, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return 0, err
	}
	if err := binary.Write(str, binary.BigEndian, r); err != nil {
		return 0, err
	}
	if !r.Upload {
		str.Close()
		err := r.check(str)
		return time.Since(start), err
	}
	if _, err := io.Copy(str, r.content()); err != nil {
		return 0, err
	}
	str.Close()
	got, err := io.ReadAll(str)
	if err == nil && len(got) != 1 {
		err = errors.New("no answer")
	}
	return time.Since(start), err
}

// held returns what a process holds after garbage collection. It collects often enough to run
// finalizers, and to empty pools, which keep their items for one round.
func held() (goroutines int, bytes uint64) {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

// live runs the day in virtual time, with one session all day, and a new session for comparison
// on each path. It returns the ratios of the old session's throughput to the new ones'.
func (d day) live(t *testing.T, tlsConf *tls.Config, seed uint64) (ratios []float64) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := rand.New(rand.NewPCG(seed, 2))
		logUniform := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }

		n := &network{rng: rand.New(rand.NewPCG(seed, 0))}
		rate, rtt, gone := 10e6, 20*time.Millisecond, false
		a, b := n.wire(rate, func() time.Duration { return rtt / 2 }, 100, false)
		for _, q := range []*queue{n.toClient, n.toServer} {
			q.lose = func() bool { return gone }
		}
		reroute := func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			rate, rtt = logUniform(2e6, 20e6), time.Duration(logUniform(2, 200)*1e6)
			a.rate, b.rate = rate, rate
			room := int(logUniform(20, 300))
			n.toClient.room, n.toServer.room = room, room
		}
		outage := func(gap time.Duration) {
			set := func(to bool) {
				n.mu.Lock()
				defer n.mu.Unlock()
				gone = to
			}
			set(true)
			time.AfterFunc(gap, func() { set(false) })
		}

		client, server := n.ends(t)
		ln, err := quic.Listen(server, tlsConf, dayConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				conn, err := ln.Accept(ctx)
				if err != nil {
					return
				}
				go serveDay(ctx, conn)
			}
		}()
		tr := &quic.Transport{Conn: client}
		defer tr.Close()
		dial := func() *quic.Conn {
			conn, err := tr.Dial(ctx, server.LocalAddr(), tlsConf, dayConfig())
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		session := dial()
		defer session.CloseWithError(0, "")

		events := make([]bool, d.routes+d.outages) // is it an outage?
		for i := range d.outages {
			events[i] = true
		}
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		every := d.length / time.Duration(len(events))
		var goroutines int
		var memory uint64
		var bytes int64
		begin := time.Now()
		for i, isOutage := range events {
			time.Sleep(time.Until(begin.Add(time.Duration(i)*every + time.Duration(r.Int64N(int64(every/4))))))
			ask := func(conn *quic.Conn) time.Duration {
				q := request{Upload: i%2 == 0, Size: int64(rate / 8 * dayTransfer.Seconds()), Seed: r.Uint64()}
				took, err := q.do(ctx, conn)
				if err != nil {
					t.Fatalf("%s, %d of %d: %v", time.Since(begin).Round(time.Second), i, len(events), err)
				}
				bytes += q.Size
				return took
			}
			switch under := time.Duration(r.Float64() * float64(dayTransfer)); {
			case isOutage:
				gap := time.Duration(logUniform(0.1, longestOutage.Seconds()) * 1e9)
				time.AfterFunc(under, func() { outage(gap) })
				ask(session)
				time.Sleep(gap + dayTransfer)
			case r.IntN(2) == 0:
				time.AfterFunc(under, reroute)
				ask(session)
				time.Sleep(dayTransfer)
			default:
				reroute()
			}
			took := ask(session)
			conn := dial()
			fresh := ask(conn)
			conn.CloseWithError(0, "")
			ratios = append(ratios, fresh.Seconds()/took.Seconds())
			t.Logf("%s: %.3f of a new session's throughput; %.1f Mbit/s, %s, buffer %d", time.Since(begin).Round(time.Second), ratios[i], rate/1e6, rtt, n.toClient.room)

			time.Sleep(time.Minute) // closed connections are gone by then
			// By the first tenth, events of all kinds have happened.
			switch i {
			case len(events) / 10:
				goroutines, memory = held()
			case len(events) - 1:
				time.Sleep(time.Until(begin.Add(d.length)))
				g, m := held()
				t.Logf("%s, %d MB: %d goroutines, %d after the first tenth; %d KB in use, then %d", time.Since(begin), bytes>>20, g, goroutines, m>>10, memory>>10)
				if g > goroutines {
					t.Errorf("%d goroutines, %d after the first tenth", g, goroutines)
				}
				if m > memory+512<<10 {
					t.Errorf("%d KB in use, %d after the first tenth", m>>10, memory>>10)
				}
			}
		}
	})
	return ratios
}

// TestDay runs a session through the events of a relay's day: by default an eighth of a day,
// with BQUIC_DAY set to a seed all of it.
func TestDay(t *testing.T) {
	d, seed := day{3 * time.Hour, 25, 6}, uint64(1)
	if os.Getenv("BQUIC_DAY") != "" {
		d = day{24 * time.Hour, 200, 50}
		seed, _ = seedRange(t, "BQUIC_DAY")
	}
	ratios := d.live(t, tlsConfig(t), seed)
	mean := geomean(ratios)
	t.Logf("geometric mean of %d: %.3f of new sessions' throughput", len(ratios), mean)
	if mean < 0.95 {
		t.Errorf("an old session has %.3f of a new one's throughput", mean)
	}
}
