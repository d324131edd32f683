// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/config"
)

// TestMigration checks that a download continues on the same connection when the
// client's address changes, because the client migrates (a phone that leaves the WiFi)
// or because a NAT rebinds. The NAT does so while the client has nothing to send, so the
// gateway learns of the new address from the client's PING.
func TestMigration(t *testing.T) {
	root := t.TempDir()
	want := make([]byte, 8<<20)
	_, _ = rand.Read(want)
	if err := os.WriteFile(filepath.Join(root, "big"), want, 0o644); err != nil {
		t.Fatal(err)
	}
	socket := func(t *testing.T) *net.UDPConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for _, name := range []string{"client", "NAT"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Root: root}}})
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			remote := net.Addr(net.UDPAddrFromAddrPort(s.addr))
			var n *nat
			if name == "NAT" {
				n = &nat{inside: socket(t), to: remote, outside: socket(t)}
				go n.out()
				go n.in(n.outside)
				remote = n.inside.LocalAddr()
			}
			transport := &quic.Transport{Conn: socket(t)}
			defer transport.Close()
			conn, err := transport.Dial(ctx, remote, pinned(s, http3.NextProtoH3),
				&quic.Config{KeepAlivePeriod: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseWithError(0, "")
			h := (&http3.Transport{}).NewClientConn(conn)
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/big"), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := h.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got := make([]byte, 1<<20)
			if _, err := io.ReadFull(resp.Body, got); err != nil {
				t.Fatal(err)
			}
			before := s.Status().Connections[0].Remote
			if n != nil {
				n.silence()
				n.rebind(socket(t))
			} else {
				other := &quic.Transport{Conn: socket(t)}
				defer other.Close()
				path, err := conn.AddPath(other)
				if err != nil {
					t.Fatal(err)
				}
				if err := path.Probe(ctx); err != nil {
					t.Fatal(err)
				}
				if err := path.Switch(); err != nil {
					t.Fatal(err)
				}
			}
			rest, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(append(got, rest...), want) {
				t.Error("the wrong bytes")
			}
			st := s.Status()
			if len(st.Connections) != 1 || st.Total != 1 || st.Connections[0].Remote == before {
				t.Errorf("%d connections; was from %v, now %v", len(st.Connections), before, st.Connections[0].Remote)
			}
		})
	}
}

// A nat forwards one client's datagrams through an outer socket that can change.
type nat struct {
	inside *net.UDPConn
	to     net.Addr

	mu      sync.Mutex
	outside *net.UDPConn
	client  net.Addr
	silent  bool // what comes from outside is lost
}

// silence loses what comes from outside, until the client has nothing left to answer.
func (n *nat) silence() {
	n.mu.Lock()
	n.silent = true
	n.mu.Unlock()
	time.Sleep(300 * time.Millisecond) // ten delays of an ACK
}

func (n *nat) rebind(c *net.UDPConn) {
	n.mu.Lock()
	n.outside.Close() // later datagrams to the old port are lost
	n.outside = c
	n.silent = false
	n.mu.Unlock()
	go n.in(c)
}

func (n *nat) out() {
	for b := make([]byte, 2048); ; {
		size, from, err := n.inside.ReadFrom(b)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.client = from
		_, _ = n.outside.WriteTo(b[:size], n.to)
		n.mu.Unlock()
	}
}

func (n *nat) in(c *net.UDPConn) {
	for b := make([]byte, 2048); ; {
		size, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		n.mu.Lock()
		if !n.silent {
			_, _ = n.inside.WriteTo(b[:size], n.client)
		}
		n.mu.Unlock()
	}
}

// TestRefusedRequestIsLogged checks that a request refused for lack of room is logged.
func TestRefusedRequestIsLogged(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := start(t, config.Gateway{AccessLog: log, Sites: []config.Site{{Hosts: []string{"*"}, Root: t.TempDir()}}})
	s.admit.mu.Lock()
	s.admit.requests = 1 << 40
	s.admit.mu.Unlock()
	for proto, c := range clients(t, s) {
		resp, err := c.Get(s.url("/refused/" + proto))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s", proto, resp.Status)
		}
		line := "/refused/" + proto + " " + proto + `" 503 `
		waitFor(t, func() bool {
			data, _ := os.ReadFile(log)
			return strings.Contains(string(data), line)
		})
	}
}
