// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
)

func TestParseURL(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"https://gateway.example/10M", "https://gateway.example/10M"},
		{"https://192.0.2.1:8443/", "https://192.0.2.1:8443/"},
		{"https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/"},
		// As in browsers: RFC 5891, RFC 3492.
		{"https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"},
		{"https://BÜCHER.Example:8443/", "https://xn--bcher-kva.example:8443/"},
		{"https://b%C3%BCcher.example/", "https://xn--bcher-kva.example/"},
		{"https://例え.テスト:443/", "https://xn--r8jz45g.xn--zckzah:443/"},
		{"https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"},
		{"http://gateway.example/", ""},
		{"gateway.example", ""},
		{"https:///10M", ""},
		{"https://a\xff.example/", ""},
	} {
		u, err := ParseURL(test.url)
		switch {
		case test.want == "" && err == nil:
			t.Errorf("%s: got %s", test.url, u)
		case test.want != "" && err != nil:
			t.Errorf("%s: %v", test.url, err)
		case test.want != "" && u.String() != test.want:
			t.Errorf("%s: got %s, want %s", test.url, u, test.want)
		}
	}
}

// serve starts an HTTP/3 server on a loopback address, and returns the address with the port.
func serve(t *testing.T, ip string, conf *quic.Config, handler http.HandlerFunc) string {
	t.Helper()
	own, _, err := cert.LoadOrCreate(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	server := &http3.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}}, QUICConfig: conf, Handler: handler}
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(func() { server.Close() })
	return socket.LocalAddr().String()
}

// TestZone checks that a server's own address in a request has no zone, which means something to this machine only.
func TestZone(t *testing.T) {
	asked := make(chan string, 1)
	address := serve(t, "::1", nil, func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host })
	if _, err := Fetch(t.Context(), "https://"+strings.Replace(address, "]", "%25lo]", 1)+"/", io.Discard, Options{Insecure: true}); err != nil {
		t.Fatal(err)
	}
	if host := <-asked; host != address {
		t.Errorf("asked for %q instead of %q", host, address)
	}
}

// TestSlowResponse has a response that takes longer than a connection may be idle.
func TestSlowResponse(t *testing.T) {
	t.Parallel()
	const idle = 5 * time.Second // quic-go expects no peer to want less
	address := serve(t, "127.0.0.1", &quic.Config{MaxIdleTimeout: idle}, func(http.ResponseWriter, *http.Request) { time.Sleep(2*idle + 2*time.Second) })
	if res, err := Fetch(t.Context(), "https://"+address+"/", io.Discard, Options{Insecure: true}); err != nil || res.Status != http.StatusOK {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestRefusedUpload checks that what a server does not take of an upload does not count as sent.
func TestRefusedUpload(t *testing.T) {
	address := serve(t, "127.0.0.1", nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) })
	const size = 100 << 20
	file := filepath.Join(t.TempDir(), "up")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
	res, err := Fetch(t.Context(), "https://"+address+"/", io.Discard, Options{Insecure: true, Upload: file})
	if err != nil || res.Status != http.StatusMethodNotAllowed || res.Bytes > size/10 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestAddresses checks that a host is reached at the first of its addresses that answers, and that one that has
// answered, even by a wrong key, is not given up.
func TestAddresses(t *testing.T) {
	own, _, err := cert.LoadOrCreate(t.TempDir(), []string{"gateway.example"})
	if err != nil {
		t.Fatal(err)
	}
	server := func() netip.AddrPort {
		l, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"test"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l.Addr().(*net.UDPAddr).AddrPort()
	}
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	transport := &quic.Transport{Conn: socket}
	t.Cleanup(func() { transport.Close() })

	const silence = 10 * time.Second                     // after which an address is given up: an answer takes less on a busy machine, too
	impossible := netip.MustParseAddrPort("127.0.0.1:0") // sending fails
	dead, a, b := silent.LocalAddr().(*net.UDPAddr).AddrPort(), server(), server()
	good, bad := &tls.Config{NextProtos: []string{"test"}, InsecureSkipVerify: true}, &tls.Config{NextProtos: []string{"test"}, ServerName: "gateway.example"}
	for _, test := range []struct {
		name   string
		addrs  []netip.AddrPort
		conf   *tls.Config
		wanted netip.AddrPort
		failed any // a pointer to the error's type
	}{
		{"the first answers", []netip.AddrPort{a, b}, good, a, nil},
		{"the first is silent", []netip.AddrPort{dead, b}, good, b, nil},
		{"nothing can be sent to the first", []netip.AddrPort{impossible, b}, good, b, nil},
		{"the first is silent, nothing can be sent to the other", []netip.AddrPort{dead, impossible}, good, netip.AddrPort{}, new(*quic.IdleTimeoutError)},
		{"nothing can be sent", []netip.AddrPort{impossible, dead}, good, netip.AddrPort{}, new(*quic.TransportError)},
		{"the only one is silent", []netip.AddrPort{dead}, good, netip.AddrPort{}, new(*quic.IdleTimeoutError)},
		{"all are silent", []netip.AddrPort{dead, dead}, good, netip.AddrPort{}, new(*quic.IdleTimeoutError)},
		{"an unknown key", []netip.AddrPort{a, dead}, bad, netip.AddrPort{}, new(*tls.CertificateVerificationError)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			asked := time.Now()
			conn, start, err := dial(t.Context(), transport, test.addrs, test.conf, &quic.Config{HandshakeIdleTimeout: silence})
			if test.failed != nil {
				if !errors.As(err, test.failed) {
					t.Errorf("got %v, want a %T", err, test.failed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseWithError(0, "")
			if got := conn.RemoteAddr().(*net.UDPAddr).AddrPort(); got != test.wanted {
				t.Errorf("connected to %v, not to %v", got, test.wanted)
			}
			if test.addrs[0] == dead && start.Sub(asked) < silence {
				t.Errorf("the connection's time begins %v after the first attempt, and so includes it", start.Sub(asked))
			}
		})
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := dial(ended, transport, []netip.AddrPort{dead, a}, good, &quic.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

// TestNameWithoutZone has an address whose zone is this machine's own name for a device.
func TestNameWithoutZone(t *testing.T) {
	conf, err := (&Options{}).tlsConfig("fe80::9%mesh")
	if err != nil || conf.ServerName != "fe80::9" {
		t.Errorf("%q, %v", conf.ServerName, err)
	}
}
