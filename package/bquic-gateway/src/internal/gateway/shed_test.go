// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/config"
)

// stalled starts a gateway whose origin reads no request bodies.
func stalled(t *testing.T) *Server {
	t.Helper()
	ended := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(origin.Close)
	t.Cleanup(func() { close(ended) })
	u, _ := url.Parse(origin.URL)
	return start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
}

// upload sends n requests whose bodies are never read.
func upload(t *testing.T, conn *quic.Conn, s *Server, n int) {
	t.Helper()
	client := (&http3.Transport{}).NewClientConn(conn)
	for range n {
		str, err := client.OpenRequestStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url("/"), nil)
		if err := str.SendRequestHeader(req); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = str.Write(make([]byte, 1<<20)) // more than the window
		}()
	}
}

// shedOnce closes the connections that are closed when memory is short by one byte.
func (s *Server) shedOnce() {
	_, ends := s.admit.shed(1)
	for _, end := range ends {
		end()
	}
}

func ended(conn *quic.Conn) bool {
	select {
	case <-conn.Context().Done():
		return true
	default:
		return false
	}
}

// TestShedLog has clients that fill the memory again every second: they do not fill the log.
func TestShedLog(t *testing.T) {
	var log bytes.Buffer
	s, err := New(config.Gateway{StateDir: t.TempDir()}, "test", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.admit.limit(1000, 1<<30, 1<<20)
	const seconds = 50
	for range seconds {
		s.admit.used.Store(0)
		for range 2 {
			e, err := s.admit.enter(time.Now(), netip.MustParseAddr("192.0.2.1"), true)
			if err != nil {
				t.Fatal(err)
			}
			e.attach(nil, func() {})
		}
		s.admit.used.Store(1<<30 + 1)
		s.shed()
	}
	lines := strings.Count(log.String(), "memory is short")
	if lines < 1 || lines > 3 || s.admit.refusals().Shed < seconds {
		t.Errorf("%d lines about %d connections", lines, s.admit.refusals().Shed)
	}
}

// TestShedAfterMigration checks that a connection stays charged to its source
// after it migrates.
func TestShedAfterMigration(t *testing.T) {
	s := stalled(t)
	conn, err := dialFrom(t, s, "127.0.0.1", anyCertificate)
	if err != nil {
		t.Fatal(err)
	}
	upload(t, conn, s, 1)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 7)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	other := &quic.Transport{Conn: udp}
	defer other.Close()
	path, err := conn.AddPath(other)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := path.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	if err := path.Switch(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		c := s.Status().Connections
		return len(c) == 1 && c[0].Remote == udp.LocalAddr().String()
	})
	s.shedOnce()
	waitFor(t, func() bool { return ended(conn) })
}

// TestShedLargest checks that connections of the source that holds most memory
// are closed, not of the source with most connections.
func TestShedLargest(t *testing.T) {
	s := stalled(t)
	var many []*quic.Conn
	for range 5 {
		conn, err := dialFrom(t, s, "127.0.0.1", anyCertificate)
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, conn)
	}
	heavy, err := dialFrom(t, s, "127.0.0.2", anyCertificate)
	if err != nil {
		t.Fatal(err)
	}
	upload(t, heavy, s, 20)
	held := func() (streams int, unread uint64) {
		for _, c := range s.live() {
			n, bytes := c.Held()
			streams, unread = streams+n, unread+bytes
		}
		return streams, unread
	}
	waitFor(t, func() bool {
		streams, unread := held()
		return streams == 20 && unread >= 256<<10
	})
	s.shedOnce()
	waitFor(t, func() bool { return ended(heavy) })
	for _, conn := range many {
		if ended(conn) {
			t.Error("an idle connection was ended")
		}
	}
	waitFor(t, func() bool { streams, unread := held(); return streams == 0 && unread == 0 })
}

// live returns the open connections.
func (s *Server) live() (all []*quic.Conn) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for _, c := range s.conns.live {
		all = append(all, c.conn)
	}
	return all
}

// TestShedTCP checks that TCP connections with requests count as larger.
func TestShedTCP(t *testing.T) {
	s := stalled(t)
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	var conns []*tls.Conn
	for range 2 {
		c, err := tls.Dial("tcp", s.addr.String(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if _, err := io.WriteString(conns[1], "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		s.admit.mu.Lock()
		defer s.admit.mu.Unlock()
		return s.admit.requests == 1
	})
	s.shedOnce()
	if err := conns[1].SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conns[1].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection with a request was not ended: %v", err)
	}
	if err := conns[0].SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conns[0].Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the idle connection was ended, too: %v", err)
	}
}
