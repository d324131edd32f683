// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
	"bquic/internal/client"
	"bquic/internal/config"
	"bquic/internal/peer"
	"bquic/internal/profile"
	"bquic/internal/status"
	"bquic/internal/tunnel"
)

// complete returns cfg with what every gateway needs, on loopback.
func complete(t *testing.T, cfg config.Gateway) config.Gateway {
	t.Helper()
	dir := t.TempDir()
	cfg.Listen = "127.0.0.1:0"
	cfg.StateDir = dir
	cfg.StatusSocket = filepath.Join(dir, "s")
	if cfg.Connections == 0 {
		cfg.Connections = 1000
	}
	profiles := profile.NewSet()
	cfg.MeshProfile, cfg.Standard = profiles[profile.BQUIC], profiles[profile.Standard]
	return cfg
}

// start runs a gateway until the test ends.
func start(t *testing.T, cfg config.Gateway) *Server {
	t.Helper()
	s, err := New(complete(t, cfg), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		before := s.Status().Stopping
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if before || !s.Status().Stopping {
			t.Errorf("its status says that it is stopping: %v, and afterwards %v", before, !before)
		}
	})
	return s
}

func (s *Server) url(path string) string { return fmt.Sprintf("https://%s%s", s.addr, path) }

// pinned returns a configuration for clients of s.
func pinned(s *Server, protocols ...string) *tls.Config {
	c := &tls.Config{NextProtos: protocols}
	cert.Verify(c, s.pin())
	return c
}

// clients returns clients for s that use HTTP/3, HTTP/2 and HTTP/1.1.
func clients(t *testing.T, s *Server) map[string]*http.Client {
	h3 := &http3.Transport{TLSClientConfig: pinned(s, http3.NextProtoH3)}
	h2 := &http.Transport{TLSClientConfig: pinned(s, "h2"), ForceAttemptHTTP2: true}
	h1 := &http.Transport{TLSClientConfig: pinned(s, "http/1.1")}
	t.Cleanup(func() {
		h3.Close()
		h2.CloseIdleConnections()
		h1.CloseIdleConnections()
	})
	all := make(map[string]*http.Client)
	for proto, transport := range map[string]http.RoundTripper{"HTTP/3.0": h3, "HTTP/2.0": h2, "HTTP/1.1": h1} {
		all[proto] = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return all
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	for name, data := range map[string]string{
		"a/index.html": "index of a", "a/page.txt": "0123456789", ".secret": "x", "a/.git/config": "x", "big": string(big),
		"empty/.keep": "", "..odd": "x",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"escape": outside, "up": "../../../../../../etc/passwd", "within": "a/page.txt", "dir": "/etc"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{Sites: []config.Site{
		{Hosts: []string{"files.example"}, Root: root},
	}})
	type want struct {
		status         int
		body, location string
	}
	notFound := want{404, "404 page not found\n", ""}
	for proto, c := range clients(t, s) {
		for _, test := range []struct {
			method, host, path string
			want               want
		}{
			{"GET", "files.example", "/a/page.txt", want{200, "0123456789", ""}},
			{"GET", "FILES.example.:443", "/a/page.txt", want{200, "0123456789", ""}},
			{"HEAD", "files.example", "/a/page.txt", want{200, "", ""}},
			{"GET", "files.example", "/a/", want{200, "index of a", ""}},
			{"GET", "files.example", "/a", want{301, "", "/a/"}},
			{"GET", "files.example", "//a", want{301, "", "/a/"}},
			{"GET", "files.example", "/big", want{200, string(big), ""}},
			{"GET", "files.example", "/within", want{200, "0123456789", ""}},
			{"GET", "files.example", "/a/page.txt/", notFound},
			{"GET", "files.example", "/empty/", notFound},
			{"GET", "files.example", "/", notFound},
			{"GET", "files.example", "/.secret", notFound},
			{"GET", "files.example", "/..odd", notFound},
			{"GET", "files.example", "/a/.git/config", notFound},
			{"GET", "files.example", "/%2e%2e/%2e%2e/etc/passwd", notFound},
			{"GET", "files.example", "/a/..%2f..%2fetc%2fpasswd", notFound},
			{"GET", "files.example", "/escape", notFound},
			{"GET", "files.example", "/up", notFound},
			{"GET", "files.example", "/dir/passwd", notFound},
			{"GET", "files.example", "/fifo", notFound},
			{"GET", "files.example", "/a%00b", notFound},
			{"POST", "files.example", "/a/page.txt", want{405, "only GET and HEAD are served\n", ""}},
			{"GET", "other.example", "/a/page.txt", want{421, "no site has this name\n", ""}},
		} {
			t.Run(proto+test.method+test.host+test.path, func(t *testing.T) {
				req, err := http.NewRequest(test.method, s.url(test.path), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = test.host
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				body, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				if res.Proto != proto {
					t.Errorf("protocol %s", res.Proto)
				}
				if alt := res.Header.Get("Alt-Svc"); proto != "HTTP/3.0" && alt != fmt.Sprintf(`h3=":%d"; ma=86400`, s.addr.Port()) {
					t.Errorf("Alt-Svc %q", alt)
				}
				if test.want.status == 301 {
					body = nil
				}
				if got := (want{res.StatusCode, string(body), res.Header.Get("Location")}); got != test.want {
					t.Errorf("got %d %.80q %q\nwant %d %.80q %q", got.status, got.body, got.location, test.want.status, test.want.body, test.want.location)
				}
			})
		}
	}
}

func TestProxy(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s host=%s for=%q host=%q proto=%q via=%q body=%d", r.Method, r.URL, r.Host,
			r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-Proto"], r.Header["Forwarded"], len(body))
	}))
	defer origin.Close()
	u, err := url.Parse(origin.URL + "/base")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{Sites: []config.Site{
		{Hosts: []string{"*"}, Origins: []*url.URL{u}},
		{Hosts: []string{"gone.example"}, Origins: []*url.URL{gone}},
	}})
	for proto, c := range clients(t, s) {
		do := func(method, host string, body []byte) string {
			req, err := http.NewRequest(method, s.url("/x?y=z"), bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("X-Forwarded-For", "192.0.2.66")
			req.Header.Set("X-Forwarded-Host", "spoofed")
			req.Header.Set("Forwarded", "for=spoofed")
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(res.StatusCode, " ", string(got))
		}
		want := `200 POST /base/x?y=z host=site.example for=["127.0.0.1"] host=["site.example"] proto=["https"] via=[] body=1000000`
		if got := do("POST", "site.example", make([]byte, 1000000)); got != want {
			t.Errorf("%s: got  %s\nwant %s", proto, got, want)
		}
		if got := do("GET", "gone.example", nil); got != "502 the origin server does not answer\n" {
			t.Errorf("%s: %s", proto, got)
		}
	}
}

// TestOriginAltSvc checks that clients learn of the gateway's HTTP/3, not of its origin's, and also where the origin gives hints
// before it answers.
func TestOriginAltSvc(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"`)
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.WriteHeader(http.StatusOK)
	}))
	defer origin.Close()
	u, err := url.Parse(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
	for proto, c := range clients(t, s) {
		want := []string{fmt.Sprintf(`h3=":%d"; ma=86400`, s.addr.Port())}
		if proto == "HTTP/3.0" {
			want = nil
		}
		for _, path := range []string{"/", "/hints"} {
			res, err := c.Get(s.url(path))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := res.Header.Values("Alt-Svc"); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %q, want %q", proto, path, got, want)
			}
		}
	}
}

// TestBrokenOff checks that a response that its origin breaks off does not look complete, even without a length.
func TestBrokenOff(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "1000")
		}
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer origin.Close()
	u, err := url.Parse(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
	for proto, c := range clients(t, s) {
		for _, path := range []string{"/", "/length"} {
			var body []byte
			res, err := c.Get(s.url(path))
			if err == nil {
				body, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if err == nil {
				t.Errorf("%s, %s: complete: %q", proto, path, body)
			}
		}
	}
}

// TestStaleConnection checks that a request without a body is asked again where the origin has closed the connection
// that it kept, and asked of the next origin where the first one breaks it off.
func TestStaleConnection(t *testing.T) {
	listen := func(answers int) *url.URL {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				requests := bufio.NewReader(conn)
				for n := 0; ; n++ {
					if _, err := http.ReadRequest(requests); err != nil || n == answers {
						conn.Close()
						break
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
				}
			}
		}()
		return &url.URL{Scheme: "http", Host: ln.Addr().String()}
	}
	s := start(t, config.Gateway{Sites: []config.Site{
		{Hosts: []string{"stale.example"}, Origins: []*url.URL{listen(1)}},
		{Hosts: []string{"broken.example"}, Origins: []*url.URL{listen(0), listen(1)}},
	}})
	for proto, c := range clients(t, s) {
		for _, host := range []string{"stale.example", "stale.example", "broken.example"} {
			r, _ := http.NewRequest("GET", s.url("/"), nil)
			r.Host = host
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, _ = io.Copy(io.Discard, res.Body); res.StatusCode != 200 {
				t.Errorf("%s, %s: %s", proto, host, res.Status)
			}
			res.Body.Close()
		}
	}
}

// TestLengths checks responses without a body: a 204 has no length, whatever its origin says, and a HEAD has no other length
// than a GET.
func TestLengths(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		if r.URL.Path == "/none" {
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")
		} else {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
		}
	}))
	defer origin.Close()
	u, err := url.Parse(origin.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}}})
	for proto, c := range clients(t, s) {
		for _, request := range []string{"GET /none", "HEAD /"} {
			method, path, _ := strings.Cut(request, " ")
			r, _ := http.NewRequest(method, s.url(path), nil)
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if length := res.Header.Get("Content-Length"); length != "" {
				t.Errorf("%s, %s: length %s", proto, request, length)
			}
		}
	}
}

// TestProfiles checks that the client's prefix selects the profile, and that the
// status shows it.
func TestProfiles(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "f"), make([]byte, 500000), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{
		Mesh:  []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
		Sites: []config.Site{{Hosts: []string{"*"}, Root: root}},
	})
	pin := s.pin()
	fetch := func(local string) *client.Result {
		res, err := client.Fetch(t.Context(), s.url("/f"), io.Discard, client.Options{
			Profile: profile.NewSet()[profile.BQUIC], Pin: &pin, LocalAddr: netip.MustParseAddr(local),
		})
		if err != nil {
			t.Fatal(err)
		}
		if res.Bytes != 500000 || res.Status != 200 || res.Stats.PacketsReceived < 300 || res.DataPerAck < 1 || res.HandshakeMS <= 0 {
			t.Errorf("got %+v", res)
		}
		return res
	}
	mesh, other := fetch("127.0.0.2"), fetch("127.0.0.1")

	find := func(remote string) (c Connection) {
		waitFor(t, func() bool {
			for _, c = range readStatus(t, s).Connections {
				if c.Remote == remote && c.Closed {
					return true
				}
			}
			return false
		})
		return c
	}
	for _, test := range []struct {
		remote, profile string
	}{{mesh.LocalAddr, "bquic"}, {other.LocalAddr, "standard"}} {
		c := find(test.remote)
		// The client has closed before it acknowledged the last packets. The window
		// begins with 32 packets and grows by one packet for each acknowledged one.
		if st := c.TransportStats; c.Profile != test.profile || c.Protocol != "h3" || st.PacketsSent < 300 || st.PacketsAcked < (300-32)/2 || c.DataPerAck < 1 {
			t.Errorf("got %+v", c)
		}
	}
	// Check the configuration given to quic-go, not only the name.
	addr := func(a string) net.Addr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(a)) }
	if got := s.quicConfig(addr("127.0.0.2:1")).Burst; got != s.now.Load().cfg.MeshProfile.Burst {
		t.Errorf("mesh: %+v", got)
	}
	if got := s.quicConfig(addr("[::ffff:127.0.0.2]:1")).Burst; got != s.now.Load().cfg.MeshProfile.Burst {
		t.Errorf("mesh, IPv4-mapped: %+v", got)
	}
	if got := s.quicConfig(addr("127.0.0.3:1")).Burst; got != (quic.Burst{Stats: true, BlackHoles: true}) {
		t.Errorf("other: %+v", got)
	}
}

func readStatus(t *testing.T, s *Server) (st Status) {
	t.Helper()
	data, err := status.Read(s.now.Load().cfg.StatusSocket)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not happen")
}

func TestStatus(t *testing.T) {
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Root: t.TempDir()}}})
	pin := s.pin()
	for range maxClosed + 3 {
		if _, err := client.Fetch(t.Context(), s.url("/"), io.Discard, client.Options{Pin: &pin}); err != nil {
			t.Fatal(err)
		}
	}
	held := clients(t, s)["HTTP/3.0"]
	res, err := held.Get(s.url("/"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	waitFor(t, func() bool {
		st := readStatus(t, s)
		return st.Live == 1 && !st.Connections[0].Closed
	})
	st := readStatus(t, s)
	if st.Role != "gateway" || st.Version != "test" || st.Listen != s.addr.String() ||
		st.Total != maxClosed+4 || len(st.Connections) != maxClosed+1 || st.Tunnels != nil {
		t.Errorf("got %+v", st)
	}
	if pin, err := cert.ParsePin(st.Pin); err != nil || pin != s.pin() {
		t.Errorf("pin %q, %v", st.Pin, err)
	}
	seen := make(map[uint64]bool)
	for i, c := range st.Connections {
		if c.Closed != (i > 0) {
			t.Errorf("connection %d: closed %t", i, c.Closed)
		}
		if seen[c.ID] {
			t.Errorf("connection %d is shown twice", c.ID)
		}
		seen[c.ID] = true
	}
	data, err := status.Ask(s.now.Load().cfg.StatusSocket, status.Summary)
	var sum struct {
		Role        string
		Connections json.RawMessage
		Live        status.Sum
	}
	if err = errors.Join(err, json.Unmarshal(data, &sum)); err != nil || sum.Role != "gateway" || sum.Connections != nil || sum.Live.Connections != 1 || sum.Live.PacketsSent == 0 {
		t.Errorf("summary: %v: %s", err, data)
	}
}

// startEcho starts a server that sends back what it receives, and returns its address.
func startEcho(t *testing.T) string {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	return echo.Addr().String()
}

// TestConnect checks that CONNECT reaches the tunnel over HTTP/3 only, and only
// with a token.
func TestConnect(t *testing.T) {
	echo := startEcho(t)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	origin, err := url.Parse("http://" + echo)
	if err != nil {
		t.Fatal(err)
	}
	sites := []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{origin}}}
	connect := func(s *Server, token string) (int, *http3.RequestStream) {
		conn, err := dialFrom(t, s, "127.0.0.1", pinned(s, http3.NextProtoH3))
		if err != nil {
			t.Fatal(err)
		}
		str, err := (&http3.Transport{}).NewClientConn(conn).OpenRequestStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = str.SendRequestHeader(&http.Request{
			Method: http.MethodConnect, Host: echo, URL: &url.URL{Host: echo},
			Header: http.Header{"Proxy-Authorization": {"Bearer " + token}},
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := str.ReadResponse()
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, str
	}
	for _, test := range []struct {
		name   string
		cfg    config.Gateway
		token  string
		status int
	}{
		{"no token configured", config.Gateway{ConnectFrom: loopback, ConnectTo: loopback}, "", 501},
		{"wrong token", config.Gateway{Token: "right-token", ConnectFrom: loopback, ConnectTo: loopback}, "wrong-token", 407},
		{"client not allowed", config.Gateway{Token: "right-token", ConnectFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "right-token", 403},
		{"target not allowed", config.Gateway{Token: "right-token", ConnectFrom: loopback}, "right-token", 403},
		{"allowed", config.Gateway{Token: "right-token", ConnectFrom: loopback, ConnectTo: loopback}, "right-token", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cfg.Sites = sites
			s := start(t, test.cfg)
			got, str := connect(s, test.token)
			if got != test.status {
				t.Fatalf("status %d, want %d", got, test.status)
			}
			if got == 200 {
				if _, err := str.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				str.Close()
				if data, err := io.ReadAll(str); err != nil || string(data) != "hello" {
					t.Errorf("got %q, %v", data, err)
				}
				if st := readStatus(t, s); st.Tunnels == nil || st.Tunnels.Total != 1 {
					t.Errorf("tunnels %+v", st.Tunnels)
				}
			}
			// Never over TCP, whatever the token, and not through a site's origin.
			conn, err := tls.Dial("tcp", s.addr.String(), pinned(s, "http/1.1"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer right-token\r\n\r\n", echo)
			reply := make([]byte, 12)
			if _, err := io.ReadFull(conn, reply); err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 405") {
				t.Errorf("CONNECT by HTTP/1.1: %q, %v", reply, err)
			}
		})
	}
	// Only relays may be silent for long.
	s := &Server{}
	s.admit.limit(1000, 1<<30, 1<<20)
	for _, relays := range [][]peer.Config{nil, {{}}} {
		s.now.Store(&generation{relays: relays})
		if c := s.quicConfig(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); (c.MaxIdleTimeout == tunnel.IdleTimeout) != (relays != nil) {
			t.Errorf("with %d relays: %s of silence", len(relays), c.MaxIdleTimeout)
		}
	}
}

// TestStreamsOfRelay checks that a client with a relay's address may open no more streams than any other, each of which takes memory before
// its request is complete, and that a relay with a token may open as many as it needs.
func TestStreamsOfRelay(t *testing.T) {
	s := start(t, config.Gateway{Token: "right-token", ConnectFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	for token, most := range map[string]int{"wrong-token": maxStreams, "right-token": tunnel.MaxStreams} {
		conn, err := dialFrom(t, s, "127.0.0.1", pinned(s, http3.NextProtoH3))
		if err != nil {
			t.Fatal(err)
		}
		h3 := (&http3.Transport{}).NewClientConn(conn)
		str, err := h3.OpenRequestStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := str.SendRequestHeader(&http.Request{
			Method: http.MethodConnect, Host: tunnel.ProbeTarget, URL: &url.URL{Host: tunnel.ProbeTarget},
			Header: http.Header{"Proxy-Authorization": {"Bearer " + token}},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := str.ReadResponse(); err != nil {
			t.Fatal(err)
		}
		tunnel.Cancel(str, http3.ErrCodeNoError)
		open := 0
		for try := func() error { _, err := conn.OpenStream(); return err }; open <= most; open++ {
			err := try()
			for end := time.Now().Add(patience); open < most && err != nil && time.Now().Before(end); err = try() {
				time.Sleep(time.Millisecond) // until the gateway has granted them
			}
			if err != nil {
				break
			}
		}
		if open != most {
			t.Errorf("%s: %d streams, want %d", token, open, most)
		}
	}
}
