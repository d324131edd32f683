// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
)

// bothEnd is how long both directions of a connection are full, bothBegin when counting begins.
const (
	bothBegin = 5 * time.Second
	bothEnd   = 25 * time.Second
)

// both fills both directions of one connection. It returns what they deliver together, in Mbit/s, and how long packets
// wait, in ms.
func both(t *testing.T, tlsConf *tls.Config, b quic.Burst, seed uint64, build func(*network)) (mbps, queue float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{rng: rand.New(rand.NewPCG(seed, 0))}
		build(n)
		client, server := n.ends(t)
		conf := &quic.Config{
			Burst:                      b,
			InitialStreamReceiveWindow: productWindow, InitialConnectionReceiveWindow: productWindow,
			MaxStreamReceiveWindow: productWindow, MaxConnectionReceiveWindow: productWindow,
		}
		ln, err := quic.Listen(server, tlsConf, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		near, err := quic.Dial(ctx, client, server.LocalAddr(), tlsConf, conf)
		if err != nil {
			t.Fatal(err)
		}
		far, err := ln.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var received atomic.Int64
		for _, way := range [][2]*quic.Conn{{near, far}, {far, near}} {
			go func() {
				str, err := way[0].OpenUniStream()
				for piece := make([]byte, 64<<10); err == nil; {
					_, err = str.Write(piece)
				}
			}()
			go func() {
				str, err := way[1].AcceptUniStream(ctx)
				for buf := make([]byte, 64<<10); err == nil; {
					var n int
					n, err = str.Read(buf)
					received.Add(int64(n))
				}
			}()
		}
		time.Sleep(bothBegin)
		received.Store(0)
		const samples = 200
		for range samples {
			time.Sleep((bothEnd - bothBegin) / samples)
			for _, c := range []*quic.Conn{near, far} {
				s := c.ConnectionStats()
				queue += (s.SmoothedRTT - s.MinRTT).Seconds() * 1e3 / samples / 2
			}
		}
		mbps = float64(received.Load()) * 8 / 1e6 / (bothEnd - bothBegin).Seconds()
		near.CloseWithError(0, "")
		far.CloseWithError(0, "")
		time.Sleep(time.Second)
	})
	return mbps, queue
}

// In the mean of the six legs, packets wait for 0.72 of the time that they wait with stock quic-go. Where each direction counts only what
// it delivers itself, it is 0.94.
const (
	bothSeeds = 6
	bothQueue = 0.83
)

// TestBothDirections: over 802.11, a direction that takes from the other delivers more, but the air does not.
func TestBothDirections(t *testing.T) {
	tlsConf := tlsConfig(t)
	var ratios []float64
	for _, hops := range []int{3, 5} {
		for _, rtt := range []time.Duration{0, 20 * time.Millisecond, 45 * time.Millisecond} {
			var mbps, queue [2]float64
			for i, name := range []string{Standard, BQUIC} {
				for seed := range uint64(bothSeeds) {
					m, q := both(t, tlsConf, profileNamed(name).Burst, seed+1, func(n *network) {
						n.mesh(hops, 65e6, func() time.Duration { return rtt / 2 }, 8192, true)
					})
					mbps[i] += m / bothSeeds
					queue[i] += q / bothSeeds
				}
			}
			t.Logf("%d hops, %s: stock %.2f Mbit/s, %.0f ms; bquic %.2f Mbit/s, %.0f ms", hops, rtt, mbps[0], queue[0], mbps[1], queue[1])
			if mbps[1] < mbps[0] {
				t.Errorf("%d hops, %s: %.2f of stock's throughput", hops, rtt, mbps[1]/mbps[0])
			}
			ratios = append(ratios, queue[1]/queue[0])
		}
	}
	if r := geomean(ratios); r > bothQueue {
		t.Errorf("packets wait for %.2f of the time that they wait with stock", r)
	}
}
