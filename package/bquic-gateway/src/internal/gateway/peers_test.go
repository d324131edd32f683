// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/config"
	"bquic/internal/metrics"
	"bquic/internal/peer"
	"bquic/internal/tunnel"
)

// openTunnel opens a tunnel to target.
func openTunnel(t *testing.T, h3 *http3.ClientConn, target, token string) *http3.RequestStream {
	t.Helper()
	str, err := h3.OpenRequestStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = str.SetDeadline(time.Now().Add(time.Minute))
	err = str.SendRequestHeader(&http.Request{
		Method: http.MethodConnect, Host: target, URL: &url.URL{Host: target}, Header: http.Header{"Proxy-Authorization": {"Bearer " + token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := str.ReadResponse(); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", token, res, err)
	}
	return str
}

// echoes checks that a tunnel to an echo server works.
func echoes(t *testing.T, str *http3.RequestStream) {
	t.Helper()
	if _, err := str.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(str, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestRevoke checks that a reload that removes a peer ends its tunnels and its
// metrics, and no others.
func TestRevoke(t *testing.T) {
	target := startEcho(t)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	north := peer.Config{Name: "north", Tokens: []peer.Hash{peer.HashOf("north-token")}}
	south := peer.Config{Name: "south", Tokens: []peer.Hash{peer.HashOf("south-token")}, Prefixes: loopback}
	s := start(t, config.Gateway{ConnectFrom: loopback, ConnectTo: loopback, Peers: []peer.Config{north, south}, Token: "shared-token"})
	conn, err := dialFrom(t, s, "127.0.0.1", pinned(s, http3.NextProtoH3))
	if err != nil {
		t.Fatal(err)
	}
	h3 := (&http3.Transport{}).NewClientConn(conn)
	open := func(token string) *http3.RequestStream { return openTunnel(t, h3, target, token) }
	alive := func(str *http3.RequestStream) { echoes(t, str) }
	figures := func() string {
		w := new(metrics.Writer)
		s.metrics(w)
		return string(w.Text())
	}
	first, second, third := open("north-token"), open("south-token"), open("shared-token")
	for _, str := range []*http3.RequestStream{first, second, third} {
		alive(str)
	}
	for _, want := range []string{
		`bquic_peer_tunnels{peer="north"} 1`, `bquic_peer_tunnels_total{peer="shared"} 1`, `bquic_peer_sent_bytes_total{peer="south"} 5`,
		`bquic_peer_received_bytes_total{peer="north"} 5`, `bquic_peer_refused_total{peer="north"} 0`, `bquic_uplink_up 1`,
	} {
		// Bytes are counted after they have been forwarded.
		waitFor(t, func() bool { return strings.Contains(figures(), "\n"+want+"\n") })
	}
	if st := readStatus(t, s); st.Tunnels == nil || len(st.Tunnels.Peers) != 3 || st.Tunnels.Open != 3 || st.Tunnels.Places < 1 {
		t.Errorf("%+v", st.Tunnels)
	}

	next := s.now.Load().cfg
	next.Peers = []peer.Config{south}
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel of a peer that is no more goes on")
	}
	alive(second)
	alive(third)
	if strings.Contains(figures(), "north") {
		t.Error("a peer that is no more is in the metrics")
	}
	// Remove the last ones.
	next.Peers, next.Token = nil, ""
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	for _, str := range []*http3.RequestStream{second, third} {
		if _, err := str.Read(make([]byte, 1)); err == nil {
			t.Error("a tunnel of a peer that is no more goes on")
		}
	}
}

// TestSilent checks that a silent relay keeps its tunnels while there is room, and that others that are silent, and relays whose power has
// failed while others need their places, keep nothing.
func TestSilent(t *testing.T) {
	target := startEcho(t)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := start(t, config.Gateway{ConnectFrom: loopback, ConnectTo: loopback, Token: "right-token"})
	dial := func() *quic.Conn {
		conn, err := dialFrom(t, s, "127.0.0.1", pinned(s, http3.NextProtoH3))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ends := func(what string, conn *quic.Conn) {
		t.Helper()
		for deadline := time.Now().Add(patience); conn.Context().Err() == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s stays", what)
			}
			s.endSilent(0)
		}
	}
	relay, visitor, leaver := dial(), dial(), dial()
	str := openTunnel(t, (&http3.Transport{}).NewClientConn(relay), target, "right-token")
	request, err := leaver.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := request.Write([]byte{1}); err != nil { // a frame of HTTP/3 begins
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		for _, conn := range s.conns.silent(time.Now(), 0) {
			if streams, _ := conn.Held(); streams > 0 && conn.RemoteAddr().String() == leaver.LocalAddr().String() {
				return true
			}
		}
		return false
	})
	ends("a connection without tunnels", visitor)
	ends("a visitor's connection with a request that has not ended", leaver)
	echoes(t, str)
	s.tunnel.SetAccess(tunnel.Access{Peers: s.now.Load().relays, Allow: loopback, Places: 1})
	s.endSilent(idleTimeout) // it has just been heard
	echoes(t, str)
	ends("a silent connection with the last place", relay)
}
