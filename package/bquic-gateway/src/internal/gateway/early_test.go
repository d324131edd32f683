// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/config"
)

// A heldConn receives nothing until let is closed.
type heldConn struct {
	net.PacketConn
	let <-chan struct{}
}

func (c heldConn) ReadFrom(b []byte) (int, net.Addr, error) {
	<-c.let
	return c.PacketConn.ReadFrom(b)
}

// earlyConn resumes a session of s and sends 0-RTT packets. The handshake does
// not end before release closes let.
func earlyConn(t *testing.T, s *Server, let <-chan struct{}, release func()) *http3.ClientConn {
	t.Helper()
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	first, err := dialFrom(t, s, "127.0.0.1", conf)
	if err != nil {
		t.Fatal(err)
	}
	// Once the response has arrived, so has the session ticket.
	if err := getOn(t, first, s.url("/warm-up")); err != nil {
		t.Fatal(err)
	}
	_ = first.CloseWithError(0, "")
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: heldConn{udp, let}}
	t.Cleanup(func() {
		udp.Close()
		release() // Close waits for the transport's reader
		transport.Close()
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	conn, err := transport.DialEarly(ctx, net.UDPAddrFromAddrPort(s.addr), conf, &quic.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !conn.ConnectionState().Used0RTT {
			t.Error("no 0-RTT")
		}
		_ = conn.CloseWithError(0, "")
	})
	return (&http3.Transport{}).NewClientConn(conn)
}

// waiting reports whether n requests are waiting for the end of their handshake.
func (s *Server) waiting(n int64) bool {
	s.admit.mu.Lock()
	defer s.admit.mu.Unlock()
	return s.admit.unverified.requests == n
}

// TestEarlyDataOrigin checks what an origin sees of requests in 0-RTT packets,
// and who receives its 425 (RFC 8470, sections 5.1, 5.2 and 6.2).
func TestEarlyDataOrigin(t *testing.T) {
	for _, test := range []struct {
		name       string
		understood bool   // by the origin: option early_data
		header     string // Early-Data sent by the client
		seen       string // by the origin, during the handshake and after it
		status     int
	}{
		{"origin does not know of it", false, "", "after -", 200},
		{"origin knows", true, "", "during 1, after -", 200},
		{"client knows, too", true, "1", "during 1", 425},
		{"client knows, origin not", false, "1", "after 1", 425},
	} {
		t.Run(test.name, func(t *testing.T) {
			let := make(chan struct{})
			release := sync.OnceFunc(func() { close(let) })
			var mu sync.Mutex
			var seen []string
			// The origin answers 425 to all requests that are marked as early.
			origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/warm-up" {
					return
				}
				when, early := "during", strings.Join(r.Header["Early-Data"], "+")
				select {
				case <-let:
					when = "after"
				default:
				}
				if early == "" {
					early = "-"
				} else {
					w.WriteHeader(http.StatusTooEarly)
				}
				mu.Lock()
				seen = append(seen, when+" "+early)
				mu.Unlock()
				fmt.Fprint(w, early)
			}))
			defer origin.Close()
			u, _ := url.Parse(origin.URL)
			s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}, EarlyData: test.understood}}})
			c := earlyConn(t, s, let, release)
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/"), nil)
			if test.header != "" {
				req.Header.Set("Early-Data", test.header)
			}
			str, err := c.OpenRequestStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := str.SendRequestHeader(req); err != nil {
				t.Fatal(err)
			}
			_ = str.Close()
			waitFor(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return !strings.HasPrefix(test.seen, "during") && s.waiting(1) || len(seen) > 0
			})
			release()
			res, err := str.ReadResponse()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(seen, ", "); got != test.seen || res.StatusCode != test.status {
				t.Errorf("the origin saw %q, the client %d; want %q, %d", got, res.StatusCode, test.seen, test.status)
			}
		})
	}
}

// TestEarlyDataField checks that the field of a request that is not early is
// forwarded in its only valid form, because an intermediary may have set it, and
// that the response is forwarded, too.
func TestEarlyDataField(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if early := r.Header["Early-Data"]; len(early) > 0 {
			w.WriteHeader(http.StatusTooEarly)
			fmt.Fprintf(w, "%q", early)
		}
	}))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}, EarlyData: true}}})
	for proto, c := range clients(t, s) {
		for _, test := range []struct {
			fields     []string
			connection string
			status     int
			body       string
		}{
			{nil, "", 200, ""},
			{[]string{"1"}, "", 425, `["1"]`},
			{[]string{"2", "x"}, "", 425, `["1"]`},
			{[]string{"1"}, "Early-Data", 425, `["1"]`}, // which must not list it
		} {
			if test.connection != "" && proto != "HTTP/1.1" {
				continue
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/"), nil)
			req.Header["Early-Data"] = test.fields
			if test.connection != "" {
				req.Header.Set("Connection", test.connection)
			}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != test.status || string(body) != test.body {
				t.Errorf("%s, %q: %d %s", proto, test.fields, res.StatusCode, body)
			}
		}
	}
}

// TestEarlyDataLimit checks that requests before the end of a handshake have a
// separate limit. Above it, the client is told to retry, and can.
func TestEarlyDataLimit(t *testing.T) {
	let := make(chan struct{})
	release := sync.OnceFunc(func() { close(let) })
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	s := start(t, config.Gateway{Connections: 16, Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
	c := earlyConn(t, s, let, release)
	places := int64(2) // an eighth of 16
	var streams []*http3.RequestStream
	for range 2 * places {
		str, err := c.OpenRequestStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// Methods that always wait, and methods that wait only because of their origin.
		req, _ := http.NewRequestWithContext(t.Context(), []string{http.MethodPost, http.MethodGet}[len(streams)%2], s.url("/"), nil)
		if err := str.SendRequestHeader(req); err != nil {
			t.Fatal(err)
		}
		_ = str.Close()
		streams = append(streams, str)
	}
	waitFor(t, func() bool { return s.waiting(places) && s.admit.refusals().Requests == uint64(places) })
	release()
	codes := make(map[int]int64)
	for _, str := range streams {
		res, err := str.ReadResponse()
		if err != nil {
			t.Fatal(err)
		}
		codes[res.StatusCode]++
	}
	if codes[http.StatusOK] != places || codes[http.StatusTooEarly] != places {
		t.Errorf("answers %v", codes)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url("/"), nil)
	if res, err := c.RoundTrip(req); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("again: %v", err)
	}
}
