// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve starts a server with h, and logs its requests to the file whose name it returns.
func serve(t *testing.T, h http.Handler, http2 bool) (*httptest.Server, *Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	l := &Log{Logger: slog.New(slog.DiscardHandler)}
	if err := l.Open(path); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(l.Handler(h))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.EnableHTTP2 = http2
	srv.StartTLS()
	t.Cleanup(func() {
		srv.Close()
		_ = l.Open("")
	})
	return srv, l, path
}

// logged waits until the file contains text.
func logged(t *testing.T, path, text string) {
	t.Helper()
	var data []byte
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		data, _ = os.ReadFile(path)
		if strings.Contains(string(data), text) {
			return
		}
	}
	t.Errorf("%q was not logged, but:\n%s", text, data)
}

// TestFlush checks that a partial response reaches the client, as server-sent
// events require, and that full duplex is possible.
func TestFlush(t *testing.T) {
	proceed := make(chan struct{})
	srv, _, path := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.ProtoMajor == 1 {
			if err := rc.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
		}
		if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "event")
		if err := rc.Flush(); err != nil {
			t.Error(err)
		}
		<-proceed
	}), true)
	for _, c := range []*http.Client{srv.Client(), {Transport: &http.Transport{TLSClientConfig: srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}}} {
		res, err := c.Get(srv.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil {
			t.Errorf("%s: %v", res.Proto, err)
		}
		proceed <- struct{}{}
		res.Body.Close()
		logged(t, path, `"GET /events `+res.Proto+`" 200 5 `)
	}
}

// TestUpgrade checks that a connection that switches protocols, as for WebSocket,
// is logged as such, with the bytes of both directions, and that each direction
// ends separately.
func TestUpgrade(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, io.LimitReader(conn, 4)) // then closes its direction
	}))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	srv, l, path := serve(t, httputil.NewSingleHostReverseProxy(u), false)
	c, err := tls.Dial("tcp", srv.Listener.Addr().String(), srv.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /socket HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	_, _ = io.WriteString(c, "ping")
	got, err := io.ReadAll(r)
	if string(got) != "ping" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	c.Close()
	logged(t, path, `"GET /socket HTTP/1.1" 101 4 `)
	if sent, received := l.Bytes(); sent != 4 || received != 4 || l.Requests(0, 1) != 1 {
		t.Errorf("sent %d, received %d, %d requests", sent, received, l.Requests(0, 1))
	}
}

// TestUnanswered checks how requests without a response, and responses without a
// body, are logged.
func TestUnanswered(t *testing.T) {
	srv, l, path := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			panic(http.ErrAbortHandler)
		}
		http.Error(w, "not here", http.StatusNotFound)
	}), false)
	if res, err := srv.Client().Get(srv.URL + "/gone"); err == nil {
		res.Body.Close()
		t.Error("an answer")
	}
	logged(t, path, `"GET /gone HTTP/1.1" 499 0 `)
	res, err := srv.Client().Head(srv.URL + "/head")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	logged(t, path, `"HEAD /head HTTP/1.1" 404 0 `)
	if sent, _ := l.Bytes(); sent != 0 {
		t.Errorf("%d bytes sent", sent)
	}
}
