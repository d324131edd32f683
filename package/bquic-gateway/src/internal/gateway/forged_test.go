// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/config"
)

// patience is the timeout for events that must happen even on a busy machine.
const patience = time.Minute

var anyCertificate = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}

// dialFrom connects from an address of this host, with a separate socket.
func dialFrom(t *testing.T, s *Server, from string, conf *tls.Config) (*quic.Conn, error) {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)})
	if err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: udp}
	t.Cleanup(func() {
		transport.Close()
		udp.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(s.addr), conf, &quic.Config{HandshakeIdleTimeout: patience, MaxIdleTimeout: patience})
	if err == nil {
		t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	}
	return conn, err
}

func getOn(t *testing.T, conn *quic.Conn, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http3.Transport{}).NewClientConn(conn).RoundTrip(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// A sentConn receives nothing, and calls sent when something was sent.
type sentConn struct {
	deafConn
	sent func()
}

func (c sentConn) WriteTo(b []byte, to net.Addr) (int, error) {
	defer c.sent()
	return c.deafConn.WriteTo(b, to)
}

// forge sends Initials from an address that receives none of the answers, like a
// forged one. It returns when n have been sent, and keeps sending until the test ends.
func forge(t *testing.T, s *Server, from string, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var sent, ended sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	for range n {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)})
		if err != nil {
			t.Fatal(err)
		}
		sent.Add(1)
		transport := &quic.Transport{Conn: sentConn{deafConn{udp}, sync.OnceFunc(sent.Done)}}
		ended.Go(func() {
			defer udp.Close()
			defer transport.Close()
			_, _ = transport.Dial(ctx, net.UDPAddrFromAddrPort(s.addr), anyCertificate, &quic.Config{HandshakeIdleTimeout: patience})
		})
	}
	sent.Wait()
}

// TestForgedInitials checks that forged handshakes do not harm the owner of the address:
// its open connections continue, and it can connect again, like all other clients.
func TestForgedInitials(t *testing.T) {
	const connections = 40
	s := start(t, config.Gateway{
		Connections: connections,
		Mesh:        []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Sites:       []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"f": "x"})}},
	})
	old, err := dialFrom(t, s, "127.0.0.1", anyCertificate)
	if err != nil {
		t.Fatal(err)
	}
	forge(t, s, "127.0.0.1", 4*connections)
	if err := getOn(t, old, s.url("/f")); err != nil {
		t.Errorf("the victim's connection: %v", err)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		conn, err := dialFrom(t, s, from, anyCertificate)
		if err != nil {
			t.Errorf("a new connection from %s: %v", from, err)
			continue
		}
		if err := getOn(t, conn, s.url("/f")); err != nil {
			t.Errorf("a request from %s: %v", from, err)
		}
	}
	c, err := tls.Dial("tcp", s.addr.String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Errorf("a TCP connection of the victim: %v", err)
	} else {
		c.Close()
	}
	if st := readStatus(t, s); st.Refused.Retry == 0 || st.Refused.Full+st.Refused.Source+st.Refused.Rate > 0 {
		t.Errorf("refusals %+v", st.Refused)
	}
}
