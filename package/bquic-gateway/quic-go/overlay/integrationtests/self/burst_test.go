// SPDX-License-Identifier: Apache-2.0

package self_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
	"github.com/quic-go/quic-go/testutils/events"
	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/stretchr/testify/require"
)

// A bottleneck computes the latency of packets that leave one after the other at rate bit/s.
type bottleneck struct {
	mu      sync.Mutex
	rate    float64
	latency time.Duration
	free    time.Time
}

func (b *bottleneck) delay(p simnet.Packet) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(time.Duration(float64(len(p.Data)*8) / b.rate * 1e9))
	return b.free.Sub(now) + b.latency
}

type tracer = func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace

// burstDownload downloads 4 MB at 30 Mbit/s over 20 ms and returns both ends' statistics.
func burstDownload(t *testing.T, client, server quic.Burst, trace ...tracer) (c, s quic.BurstStats) {
	t.Helper()
	client.Stats, server.Stats = true, true
	data := GeneratePRData(4 << 20)
	down := &bottleneck{rate: 30e6, latency: 10 * time.Millisecond}
	n := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
	// LatencyFunc applies to packets towards the endpoint.
	clientConn := n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(1, 0, 0, 1), Port: 9001}, simnet.NodeBiDiLinkSettings{LatencyFunc: down.delay})
	serverConn := n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(1, 0, 0, 2), Port: 9002}, simnet.NodeBiDiLinkSettings{Latency: 10 * time.Millisecond})
	require.NoError(t, n.Start())
	defer n.Close()
	defer clientConn.Close()
	defer serverConn.Close()

	ln, err := quic.Listen(serverConn, getTLSConfig(), getQuicConfig(&quic.Config{Burst: server}))
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	conf := &quic.Config{Burst: client}
	for _, f := range trace {
		conf.Tracer = f
	}
	conn, err := quic.Dial(ctx, clientConn, serverConn.LocalAddr(), getTLSClientConfig(), getQuicConfig(conf))
	require.NoError(t, err)
	defer conn.CloseWithError(0, "")
	sconn, err := ln.Accept(ctx)
	require.NoError(t, err)
	defer sconn.CloseWithError(0, "")
	go func() {
		str, err := sconn.OpenUniStream()
		if err != nil {
			return
		}
		str.Write(data)
		str.Close()
	}()
	str, err := conn.AcceptUniStream(ctx)
	require.NoError(t, err)
	got, err := io.ReadAll(str)
	require.NoError(t, err)
	require.Equal(t, data, got)
	return conn.BurstStats(), sconn.BurstStats()
}

func TestBurstDataPerAck(t *testing.T) {
	papers := quic.Burst{
		AckPackets: 10, AckDelay: 25 * time.Millisecond, AckRTTDivisor: 4, AckRTT: quic.BurstMinRTT, AckAfter: 100,
		BurstPackets: quic.BurstUnlimited,
	}
	asking := quic.Burst{AckPackets: 10, AskPeer: true}
	for _, tc := range []struct {
		name           string
		client, server quic.Burst
		atLeast        float64
		below          float64
	}{
		{"stock", quic.Burst{}, quic.Burst{}, 1.5, 3},
		{"papers", papers, papers, 9, 10.5},
		{"asking a stock policy", quic.Burst{AskPeer: true}, asking, 8.5, 10.5},
		{"asking a peer that does not advertise", quic.Burst{}, asking, 1.5, 3},
		{"no limit, half the smoothed RTT", quic.Burst{AckPackets: quic.BurstUnlimited, AckRTTDivisor: 2, AckAfter: 100}, papers, 12, 500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := burstDownload(t, tc.client, tc.server)
				t.Logf("data per ACK: %.1f sent, %.1f received; below 100us: %.2f", c.DataPerAckSent(), s.DataPerAckReceived(), s.ShareBelow100us())
				dataPerAck := c.DataPerAckSent()
				if tc.client.AckAfter > 0 {
					// The stock policy acknowledges the first ones.
					dataPerAck = float64(int(c.PacketsReceived)-tc.client.AckAfter) / float64(int(c.AcksSent)-tc.client.AckAfter/2)
				}
				require.GreaterOrEqual(t, dataPerAck, tc.atLeast)
				require.Less(t, dataPerAck, tc.below)
				require.InDelta(t, c.DataPerAckSent(), s.DataPerAckReceived(), 0.2*c.DataPerAckSent())
				require.InDelta(t, 20*time.Millisecond, s.MinRTT, float64(2*time.Millisecond))
			})
		})
	}
}

// ackedWindows counts the 1-RTT packets with an ACK that a client sends, those among
// them that carry window updates of the connection and of a stream, and window updates
// without an ACK.
func ackedWindows(events []qlogwriter.Event) (acks, connection, stream, alone int) {
	for _, e := range events {
		sent := e.(qlog.PacketSent)
		if sent.Header.PacketType != qlog.PacketType1RTT {
			continue
		}
		var ack, maxData, maxStreamData bool
		for _, f := range sent.Frames {
			switch f.Frame.(type) {
			case *qlog.AckFrame:
				ack = true
			case *qlog.MaxDataFrame:
				maxData = true
			case *qlog.MaxStreamDataFrame:
				maxStreamData = true
			}
		}
		switch {
		case !ack && (maxData || maxStreamData):
			alone++
		case ack:
			acks++
			if maxData {
				connection++
			}
			if maxStreamData {
				stream++
			}
		}
	}
	return acks, connection, stream, alone
}

// Window updates ride on every ACK (ModQUIC, IJIPT 2019, section 3.3), and only on
// ACKs. Stock updates are sent when a quarter of the window was consumed.
func TestBurstWindowUpdates(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    quic.Burst
		ride bool
	}{
		{"stock", quic.Burst{}, false},
		{"riding", quic.Burst{WindowUpdates: true}, true},
		{"riding on fewer ACKs", quic.Burst{WindowUpdates: true, AckPackets: 10, AckAfter: 10}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var recorder events.Recorder
				burstDownload(t, tc.b, quic.Burst{}, newTracer(&recorder))
				acks, connection, stream, alone := ackedWindows(recorder.Events(qlog.PacketSent{}))
				t.Logf("%d ACKs, %d with MAX_DATA, %d with MAX_STREAM_DATA, %d packets with either and no ACK", acks, connection, stream, alone)
				require.Greater(t, acks, 200)
				if !tc.ride {
					require.Less(t, connection, acks/4)
					require.Less(t, stream, acks/4)
					return
				}
				// Before the first byte and after the last one, there is nothing to update.
				require.Greater(t, connection, acks-20)
				require.Greater(t, stream, acks-20)
				require.Less(t, alone, 20)
			})
		})
	}
}
