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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
	"bquic/internal/config"
)

func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestReload checks that a request in progress finishes under the old
// configuration, while new requests on the same connections use the new one.
func TestReload(t *testing.T) {
	proceed := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first half, ")
		_ = http.NewResponseController(w).Flush()
		<-proceed
		_, _ = io.WriteString(w, "second half")
	}))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
	cs := clients(t, s)
	bodies := make(map[string]io.ReadCloser)
	for proto, c := range cs {
		res, err := c.Get(s.url("/"))
		if err != nil {
			t.Fatalf("%s: %v", proto, err)
		}
		bodies[proto] = res.Body
	}
	_, before, _ := s.conns.reports()

	next := s.now.Load().cfg
	next.Sites = []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"index.html": "files now"})}}
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	bad := next
	bad.Certificate, bad.Key = "/nonexistent", "/nonexistent"
	if err := s.Apply(bad); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("a bad one: %v", err)
	} else {
		s.Reloaded(err)
	}
	for proto, c := range cs {
		if got := get(t, c, s.url("/")); got != "files now" {
			t.Errorf("%s after reload: %q", proto, got)
		}
	}
	close(proceed)
	for proto, body := range bodies {
		got, err := io.ReadAll(body)
		if err != nil || string(got) != "first half, second half" {
			t.Errorf("%s from before: %q, %v", proto, got, err)
		}
		body.Close()
	}
	if _, after, total := s.conns.reports(); after != before || total != 1 {
		t.Errorf("QUIC connections: %d before, %d after, %d in all", before, after, total)
	}
	if st := readStatus(t, s); st.Reload == nil || !strings.Contains(st.Reload.Error, "/nonexistent") || time.Since(st.Reload.At) > time.Minute {
		t.Errorf("status of the reload: %+v", st.Reload)
	}
}

// TestReloadFixed checks that a reload names what differs from what the gateway runs with, not from the last reload.
func TestReloadFixed(t *testing.T) {
	var log bytes.Buffer
	first := complete(t, config.Gateway{})
	s, err := New(first, "test", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	moved := first
	moved.Listen = "127.0.0.1:1"
	for i, test := range []struct {
		cfg   config.Gateway
		wrong bool
	}{{moved, true}, {moved, true}, {first, false}} {
		log.Reset()
		if err := s.Apply(test.cfg); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(log.String(), `needs a restart" option=gateway.listen was=127.0.0.1:0 is=127.0.0.1:1`) != test.wrong || !test.wrong && log.Len() > 0 {
			t.Errorf("reload %d: %q", i+1, log.String())
		}
	}
}

// TestCheck checks that Check finds a missing certificate of a site before the gateway has made its own.
func TestCheck(t *testing.T) {
	cfg := config.Gateway{StateDir: filepath.Join(t.TempDir(), "state")}
	site := config.Site{Hosts: []string{"a.example"}, Root: "/"}
	for _, test := range []struct{ cert, key, want string }{
		{"", "", ""},
		{"/nonexistent/cert.pem", "/nonexistent/key.pem", "site with host a.example: certificate, key: cannot read certificate"},
	} {
		site.Certificate, site.Key = test.cert, test.key
		cfg.Sites = []config.Site{site}
		if err := Check(cfg); (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.cert, err, test.want)
		}
	}
	// All mistakes, not only the first one.
	u, _ := url.Parse("https://192.0.2.1")
	cfg.Sites = append(cfg.Sites, config.Site{Hosts: []string{"b.example"}, Origins: []*url.URL{u}, OriginCA: "/nonexistent/ca.pem"})
	cfg.Certificate, cfg.Key, cfg.AccessLog = "/nonexistent/own.pem", "/nonexistent/own.key", "/dev/null/log"
	err := Check(cfg)
	for _, want := range []string{"/nonexistent/cert.pem", "/nonexistent/ca.pem", "/nonexistent/own.pem", "gateway.access_log"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := os.Stat(cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Check has made something: %v", err)
	}
}

// TestMissingDirectory checks that the gateway starts without a site's directory, says so, and takes a reload.
func TestMissingDirectory(t *testing.T) {
	root := filepath.Join(t.TempDir(), "drive")
	lost := config.Site{Hosts: []string{"lost.example"}, Root: root, RootAt: config.Mistake{File: "conf", Line: 7, Section: "@site[0]", Option: "root"}}
	cfg := config.Gateway{Sites: []config.Site{lost, {Hosts: []string{"*"}, Root: directory(t, map[string]string{"index.html": "of the others"})}}}
	cfg.StateDir = t.TempDir()
	if err := Check(cfg); err != nil {
		t.Errorf("Check: %v", err)
	}
	s := start(t, cfg)
	if err := s.Apply(s.now.Load().cfg); err != nil {
		t.Errorf("reload: %v", err)
	}
	for proto, c := range clients(t, s) {
		if got := get(t, c, s.url("/")); got != "of the others" {
			t.Errorf("%s: %q", proto, got)
		}
	}
	if st := readStatus(t, s); st.Warning != "conf:7: @site[0].root: open "+root+": no such file or directory" {
		t.Errorf("status: %q", st.Warning)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return readStatus(t, s).Warning == "" })
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestCertificates checks that certificates are chosen by name, and can be
// renewed during a download.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	made := make(map[string]cert.Pin)
	for _, name := range []string{"own", "renewed"} {
		c, _, err := cert.LoadOrCreate(filepath.Join(dir, name), []string{"a.example"})
		if err != nil {
			t.Fatal(err)
		}
		made[name] = cert.PinOf(c.Leaf)
	}
	own, renewed := cert.Kept(filepath.Join(dir, "own")), cert.Kept(filepath.Join(dir, "renewed"))
	big := strings.Repeat("0123456789abcdef", 1<<18)
	s := start(t, config.Gateway{Sites: []config.Site{
		{Hosts: []string{"a.example"}, Root: directory(t, map[string]string{"big": big}), Certificate: own.Cert, Key: own.Key},
	}})
	// seen returns the pins that a client sees over TCP and over QUIC.
	seen := func(name string) (pins [2]cert.Pin) {
		t.Helper()
		conf := &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3, "h2"}}
		c, err := tls.Dial("tcp", s.addr.String(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		q, err := quic.DialAddr(t.Context(), s.addr.String(), conf, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = q.CloseWithError(0, "") }()
		return [2]cert.Pin{cert.PinOf(c.ConnectionState().PeerCertificates[0]), cert.PinOf(q.ConnectionState().TLS.PeerCertificates[0])}
	}
	if got := seen("a.example"); got != [2]cert.Pin{made["own"], made["own"]} {
		t.Errorf("by its name: %v", got)
	}
	if got := seen("b.example"); got != [2]cert.Pin{s.pin(), s.pin()} {
		t.Errorf("by another name: %v", got)
	}

	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"}}
	defer transport.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/big"), nil)
	req.Host = "a.example"
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for from, to := range map[string]string{renewed.Cert: own.Cert, renewed.Key: own.Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return seen("a.example")[0] == made["renewed"] })
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != big {
		t.Errorf("the download under way: %d bytes, %v", len(got), err)
	}
}

// TestEarlyData checks that a repeated visit takes one round trip less.
func TestEarlyData(t *testing.T) {
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"f": "x"})}}})
	conf := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	visit := func(method string) (used bool) {
		t.Helper()
		var conn *quic.Conn
		transport := &http3.Transport{TLSClientConfig: conf, Dial: func(ctx context.Context, addr string, tc *tls.Config, qc *quic.Config) (_ *quic.Conn, err error) {
			conn, err = quic.DialAddrEarly(ctx, addr, tc, qc)
			return conn, err
		}}
		defer transport.Close()
		req, _ := http.NewRequestWithContext(t.Context(), method, s.url("/f"), nil)
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, err := io.ReadAll(res.Body); err != nil || string(got) != "x" {
			t.Errorf("got %q, %v", got, err)
		}
		return conn.ConnectionState().Used0RTT
	}
	if visit(http.MethodGet) {
		t.Error("0-RTT on the first visit")
	}
	if !visit(http3.MethodGet0RTT) {
		t.Error("no 0-RTT on the second visit")
	}
}

// TestUnsafeEarlyData checks how a handler sees a POST in 0-RTT packets, which
// honest clients do not send.
func TestUnsafeEarlyData(t *testing.T) {
	done := make(chan struct{}, 1)
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { done <- struct{}{} }))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	first, err := quic.DialAddr(t.Context(), s.addr.String(), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := (&http3.Transport{}).NewClientConn(first)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/"), nil)
	if res, err := c.RoundTrip(req); err != nil {
		t.Fatal(err)
	} else {
		res.Body.Close()
	}
	<-done
	_ = first.CloseWithError(0, "")

	// The path loses all but the client's first packets: 0-RTT packets arrive,
	// the end of the handshake does not.
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	transport := &quic.Transport{Conn: deafConn{udp}}
	defer transport.Close()
	conn, err := transport.DialEarly(t.Context(), net.UDPAddrFromAddrPort(s.addr), conf, &quic.Config{HandshakeIdleTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	early := (&http3.Transport{}).NewClientConn(conn)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	post, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.url("/"), nil)
	str, err := early.OpenRequestStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := str.SendRequestHeader(post); err != nil {
		t.Fatal(err)
	}
	_ = str.Close()
	waitFor(t, func() bool { return s.waiting(1) || len(done) > 0 })
	if len(done) > 0 {
		t.Error("a POST was handed on that can be a replay")
	}
	_ = conn.CloseWithError(0, "")
}

// A deafConn receives nothing.
type deafConn struct{ net.PacketConn }

func (c deafConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if _, _, err := c.PacketConn.ReadFrom(b); err != nil {
			return 0, nil, err
		}
	}
}

// TestLimits checks that at the limit, further connections are refused at once,
// and existing ones continue.
func TestLimits(t *testing.T) {
	s := start(t, config.Gateway{
		Connections: 4,
		Mesh:        []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Sites:       []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"f": "x"})}},
	})
	conf := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}
	first, err := quic.DialAddr(t.Context(), s.addr.String(), conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.CloseWithError(0, "") }()
	waitFor(t, func() bool { // until the handshake has ended
		s.admit.mu.Lock()
		defer s.admit.mu.Unlock()
		return s.admit.open == 1
	})
	_, err = quic.DialAddr(t.Context(), s.addr.String(), conf, nil)
	var refused *quic.TransportError
	if !errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused {
		t.Errorf("a second connection of one address, which may have a quarter of four: %v", err)
	}
	if c, err := tls.Dial("tcp", s.addr.String(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		c.Close()
		t.Error("a TCP connection was let in")
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/f"), nil)
	if res, err := (&http3.Transport{}).NewClientConn(first).RoundTrip(req); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("on the first connection: %v", err)
	}
	if st := readStatus(t, s); st.Refused.Source < 2 {
		t.Errorf("refusals %+v", st.Refused)
	}
	next := s.now.Load().cfg
	next.Connections = 100
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	again, err := quic.DialAddr(t.Context(), s.addr.String(), conf, nil)
	if err != nil {
		t.Fatalf("with a higher limit: %v", err)
	}
	_ = again.CloseWithError(0, "")
}
