// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/tunnel"
)

// TestNeverAnOpenProxy requests tunnels to all addresses of the router itself
// and of its links, over TCP and UDP, in all notations.
func TestNeverAnOpenProxy(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.startGatewayAt(443)
	m.startGatewayAt(445, "\tlist connect_from '192.0.2.0/24'")
	// Targets that must not be reached would answer if they were.
	for _, addr := range []string{":22", ":80"} {
		var l net.Listener
		if err := m.in("gateway", func() (err error) { l, err = net.Listen("tcp", addr); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Errorf("%s was reached from %s", addr, c.RemoteAddr())
				c.Close()
			}
		}()
	}
	dial := func(port uint16) *http3.ClientConn {
		t.Helper()
		var udp *net.UDPConn
		if err := m.in("node", func() (err error) { udp, err = net.ListenUDP("udp", nil); return err }); err != nil {
			t.Fatal(err)
		}
		tr := &quic.Transport{Conn: udp}
		t.Cleanup(func() { tr.Close(); udp.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, err := tr.Dial(ctx, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(gateway4), port)),
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}, &quic.Config{EnableDatagrams: true})
		if err != nil {
			t.Fatal(err)
		}
		return (&http3.Transport{EnableDatagrams: true}).NewClientConn(conn)
	}
	welcome, elsewhere := dial(443), dial(445)
	ask := func(conn *http3.ClientConn, network, target, authorization string) *tunnel.Refusal {
		t.Helper()
		str, err := conn.OpenRequestStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		r := &http.Request{Method: http.MethodConnect, Host: target, URL: &url.URL{Host: target}, Header: http.Header{}}
		if network == "udp" {
			if r, err = tunnel.UDPRequest("gateway", target, http.Header{}); err != nil {
				t.Fatal(err)
			}
		}
		if authorization != "" {
			r.Header.Set("Proxy-Authorization", authorization)
		}
		if err := str.SendRequestHeader(r); err != nil {
			t.Fatal(err)
		}
		_ = str.SetReadDeadline(time.Now().Add(patience))
		res, err := str.ReadResponse()
		if err != nil {
			t.Fatalf("%s %s: %v", network, target, err)
		}
		if res.StatusCode/100 == 2 {
			return nil
		}
		return tunnel.ReadRefusal(res)
	}
	linkLocal := ""
	for _, line := range strings.Split(m.run("gateway", "ip", "-o", "-6", "addr", "show", "scope", "link", "dev", "mesh"), "\n") {
		if f := strings.Fields(line); len(f) > 3 {
			linkLocal, _, _ = strings.Cut(f[3], "/")
		}
	}
	hosts := []string{
		"127.0.0.1", "127.8.8.8", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
		gateway4, exit4, "[" + gateway6 + "]", "[" + exit6 + "]",
		"[::ffff:" + exit4 + "]", "[::" + exit4 + "]", "[64:ff9b::" + exit4 + "]", "[64:ff9b::127.0.0.1]", "[2002:cb00:7101::1]", "[2002:7f00:1::]",
		"169.254.169.254", "[fe80::1]", "[" + linkLocal + "]",
		"224.0.0.1", "239.255.255.250", "255.255.255.255", "[ff02::1]", "[ff05::2]",
		"10.78.0.255", "203.0.113.255", "10.78.0.0", "203.0.113.0", // the links' broadcast addresses
		"[fd78::]", "[2001:db8:77::]", // their subnet-router anycast addresses
		"localhost",
	}
	asked := 0
	for _, network := range []string{"tcp", "udp"} {
		for _, host := range hosts {
			for _, port := range []string{"22", "80", "443", "53"} {
				target := host + ":" + port
				for _, who := range []struct {
					name          string
					conn          *http3.ClientConn
					authorization string
					status        int
					kind          string
				}{
					{"no token", welcome, "", 407, tunnel.RequestDenied},
					{"wrong token", welcome, "Bearer " + token + "x", 407, tunnel.RequestDenied},
					{"token as user and password", welcome, "Basic " + token, 407, tunnel.RequestDenied},
					{"right token from a wrong prefix", elsewhere, "Bearer " + token, 403, tunnel.RequestDenied},
					{"right token", welcome, "Bearer " + token, 403, tunnel.TargetProhibited},
				} {
					asked++
					refusal := ask(who.conn, network, target, who.authorization)
					if refusal == nil {
						t.Errorf("%s %s, %s: a tunnel was opened", network, target, who.name)
					} else if refusal.Status != who.status || refusal.Type != who.kind {
						t.Errorf("%s %s, %s: %+v", network, target, who.name, *refusal)
					}
				}
			}
		}
	}
	t.Logf("%d requests refused", asked)
	// And permitted targets are reached.
	m.greet(":80")
	if refusal := ask(welcome, "tcp", origin4+":80", "Bearer "+token); refusal != nil {
		t.Errorf("the origin: %+v", *refusal)
	}
	if refusal := ask(welcome, "udp", "["+origin6+"]:80", "Bearer "+token); refusal != nil {
		t.Errorf("the origin by UDP: %+v", *refusal)
	}
}
