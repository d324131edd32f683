// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/testutils/simnet"

	"bquic/internal/cert"
)

const (
	slowSize = 256 << 10 // of the response, in bytes
	// slowWindow is how much a server can send that a slow client has not read, in bytes.
	slowWindow = 8 << 10
)

// TestSlowClient checks that a response goes on while its client reads it slowly, as it does if many responses share a slow path, and
// that it ends if the client reads next to nothing.
func TestSlowClient(t *testing.T) {
	for proto, connect := range map[string]func(*testing.T, http.Handler) http.RoundTripper{"HTTP/2": overTCP, "HTTP/3": overQUIC} {
		for _, test := range []struct {
			perMinute int // bytes that the client reads
			whole     bool
		}{{24 << 10, true}, {2 << 10, false}} {
			t.Run(fmt.Sprint(proto, " ", test.perMinute), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got, end, sent := loadSlowly(t, connect, test.perMinute)
					if (got == slowSize && end == io.EOF && sent == nil) != test.whole {
						t.Errorf("%d bytes, %v; the server: %v", got, end, sent)
					}
				})
			})
		}
	}
}

// loadSlowly has a server write a response at once, whose client reads so many bytes a minute. It returns how much arrived, how it ended
// for the client, and what the server learnt.
func loadSlowly(t *testing.T, connect func(*testing.T, http.Handler) http.RoundTripper, perMinute int) (got int, end, sent error) {
	const step = 1 << 10
	written := make(chan error, 1)
	client := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := newPatientWriter(w, r).Write(make([]byte, slowSize))
		written <- err
	}))
	r, _ := http.NewRequest("GET", "https://slow.example/", nil)
	res, end := client.RoundTrip(r)
	if end != nil {
		t.Fatal(end)
	}
	defer res.Body.Close()
	for n := 0; end == nil; got += n {
		n, end = io.ReadFull(res.Body, make([]byte, step))
		time.Sleep(time.Minute * step / time.Duration(perMinute))
	}
	return got, end, <-written
}

func serverTLS(t *testing.T) *tls.Config {
	own, _, err := cert.LoadOrCreate(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}}
}

// overQUIC returns a slow client of a server over HTTP/3.
func overQUIC(t *testing.T, h http.Handler) http.RoundTripper {
	sim := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
	endpoint := func(last byte) *simnet.SimConn {
		c := sim.NewEndpoint(&net.UDPAddr{IP: net.IP{192, 0, 2, last}, Port: 1}, simnet.NodeBiDiLinkSettings{})
		t.Cleanup(func() { c.Close() })
		return c
	}
	client, server := endpoint(1), endpoint(2)
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	ln, err := quic.ListenEarly(server, http3.ConfigureTLSConfig(serverTLS(t)), &quic.Config{MaxIdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept(t.Context())
		if err != nil {
			return
		}
		context.AfterFunc(t.Context(), func() { conn.CloseWithError(0, "") })
		_ = (&http3.Server{Handler: h}).ServeQUICConn(conn)
	}()
	conn, err := quic.Dial(t.Context(), client, server.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}},
		&quic.Config{InitialStreamReceiveWindow: slowWindow, MaxStreamReceiveWindow: slowWindow, MaxIdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseWithError(0, "") })
	return (&http3.Transport{}).NewClientConn(conn)
}

// overTCP returns a slow client of a server over HTTP/2.
func overTCP(t *testing.T, h http.Handler) http.RoundTripper {
	ln := &pipes{conns: make(chan net.Conn)}
	srv := &http.Server{Handler: h, TLSConfig: serverTLS(t)}
	go func() { _ = srv.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { srv.Close() })
	client := &http.Transport{
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{MaxReceiveBufferPerStream: slowWindow},
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			ln.conns <- far
			conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			return conn, conn.HandshakeContext(ctx)
		},
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// pipes is a listener within the process.
type pipes struct {
	conns chan net.Conn
	close sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *pipes) Close() error   { l.close.Do(func() { close(l.conns) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }
