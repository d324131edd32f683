// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"
)

// A medium is a bottleneck towards the client, in virtual time: the same on any machine.
type medium struct {
	name  string
	rate  float64       // bit/s
	delay time.Duration // one way
	queue int           // packets of 1280 bytes that the bottleneck's buffer holds
	loss  float64       // random, 0 to 1
}

var media = []medium{
	{name: "wired", rate: 50e6, delay: 10 * time.Millisecond, queue: 100},
	{name: "bloated", rate: 50e6, delay: 10 * time.Millisecond, queue: 400},
	{name: "lossy", rate: 20e6, delay: 50 * time.Millisecond, queue: 100, loss: 0.01},
	{name: "shallow", rate: 30e6, delay: 10 * time.Millisecond, queue: 10},
	{name: "slow", rate: 2e6, delay: 15 * time.Millisecond, queue: 50},
}

// link is the medium of one run.
type link struct {
	simnet.PerfectRouter
	medium
	client string

	mu   sync.Mutex
	rng  *rand.Rand
	free time.Time // when the bottleneck's buffer is empty
}

func (l *link) SendPacket(p simnet.Packet) error {
	if p.To.String() != l.client {
		l.deliver(p, l.delay)
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now).Seconds()*l.rate/8 > float64(l.queue)*1280 {
		return nil
	}
	l.free = l.free.Add(time.Duration(float64(len(p.Data)*8) / l.rate * 1e9))
	if l.rng.Float64() >= l.loss {
		l.deliver(p, l.free.Sub(now)+l.delay)
	}
	return nil
}

func (l *link) deliver(p simnet.Packet, after time.Duration) {
	time.AfterFunc(after, func() { l.PerfectRouter.SendPacket(p) })
}

func tlsConfig(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		InsecureSkipVerify: true, // virtual time is before the certificate's validity
		NextProtos:         []string{"medium"},
	}
}

// download returns the throughput in Mbit/s of a download with both ends tuned by b.
func download(t *testing.T, tlsConf *tls.Config, m medium, b quic.Burst, size int, seed uint64) (mbps float64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		clientAddr := &net.UDPAddr{IP: net.IPv4(1, 0, 0, 1), Port: 1}
		l := &link{medium: m, client: clientAddr.String(), rng: rand.New(rand.NewPCG(seed, 0))}
		n := &simnet.Simnet{Router: l}
		client := n.NewEndpoint(clientAddr, simnet.NodeBiDiLinkSettings{})
		server := n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(1, 0, 0, 2), Port: 2}, simnet.NodeBiDiLinkSettings{})
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		defer client.Close()
		defer server.Close()

		conf := &quic.Config{Burst: b, InitialStreamReceiveWindow: 8 << 20, InitialConnectionReceiveWindow: 8 << 20}
		ln, err := quic.Listen(server, tlsConf, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		start := time.Now()
		conn, err := quic.Dial(ctx, client, server.LocalAddr(), tlsConf, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseWithError(0, "")
		accepted, err := ln.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.CloseWithError(0, "")
		go func() {
			str, err := accepted.OpenUniStream()
			if err != nil {
				return
			}
			str.Write(make([]byte, size))
			str.Close()
		}()
		str, err := conn.AcceptUniStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.Copy(io.Discard, str)
		if err != nil || got != int64(size) {
			t.Fatalf("got %d bytes: %v", got, err)
		}
		mbps = float64(got) * 8 / 1e6 / time.Since(start).Seconds()
	})
	return mbps
}

// The default profile must do no harm where there is nothing to gain. With BQUIC_MEDIA=1,
// the test prints all profiles.
func TestNeverWorseThanStandard(t *testing.T) {
	const seeds = 3
	profiles := Builtin()
	tlsConf := tlsConfig(t)
	for _, m := range media {
		size := 10 << 20
		if m.rate < 5e6 {
			size = 1 << 20
		}
		var standard float64
		for _, p := range profiles {
			judged := p.Name == Standard || p.Name == BQUIC
			if !judged && os.Getenv("BQUIC_MEDIA") == "" {
				continue
			}
			var runs []float64
			for seed := range uint64(seeds) {
				runs = append(runs, download(t, tlsConf, m, p.Burst, size, seed))
			}
			slices.Sort(runs)
			median := runs[seeds/2]
			if p.Name == Standard {
				standard = median
			}
			line := fmt.Sprintf("%-8s %-12s %6.2f Mbit/s (%.2f to %.2f), %.3f x standard", m.name, p.Name, median, runs[0], runs[seeds-1], median/standard)
			t.Log(line)
			if judged && median < 0.98*standard {
				t.Error(line)
			}
		}
	}
}

// TestManyGaps: a path that loses every other packet for a while, as if one of two bonded links were down, leaves one
// gap for each pair of packets in the largest window of a gateway or relay. The gaps must not end the connection.
func TestManyGaps(t *testing.T) {
	const rtt = 400 * time.Millisecond
	const begin = 10 * time.Second // the window has long been full by then
	for _, name := range []string{Standard, BQUIC} {
		f := &trial{burst: profileNamed(name).Burst, window: productWindow}
		var lost int
		build := func(n *network) {
			n.wire(60e6, func() time.Duration { return rtt / 2 }, 10000, false)
			start, count := time.Now(), 0
			n.toClient.lose = func() bool {
				if now := time.Since(start); now < begin || now > begin+rtt {
					return false
				}
				if count++; count%2 == 0 {
					lost++
				}
				return count%2 == 0
			}
		}
		const size = 80 << 20
		transfer(t, tlsConfig(t), 1, build, []*trial{f}, size, time.Hour, nil)
		if got := f.received.Load(); got != size {
			t.Errorf("%s: %d of %d bytes, %d packets were lost", name, got, int64(size), lost)
		}
		if lost < 1000 {
			t.Errorf("%s: %d packets were lost: too few to show anything", name, lost)
		}
	}
}
