// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"bquic/internal/peer"
)

// FuzzPolicy checks any address with any permission: addresses that cannot be
// destinations are never allowed, and special ones only by a prefix within their range.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1}, []byte{127, 0, 0, 0}, byte(8))
	f.Add([]byte{192, 0, 2, 1}, []byte{0, 0, 0, 0}, byte(0))
	f.Add(netip.MustParseAddr("64:ff9b::7f00:1").AsSlice(), netip.MustParseAddr("64:ff9b::").AsSlice(), byte(96))
	f.Add(netip.MustParseAddr("2002:7f00:1::").AsSlice(), netip.MustParseAddr("2002::").AsSlice(), byte(16))
	f.Add(netip.MustParseAddr("::ffff:10.0.0.1").AsSlice(), []byte{10, 0, 0, 0}, byte(8))
	own := []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")}
	table := ownTable{"198.51.100.1": "local", "2001:db8::1": "local"}
	f.Fuzz(func(t *testing.T, address, allow []byte, bits byte) {
		addr, ok := netip.AddrFromSlice(address)
		if !ok {
			return
		}
		p := Policy{Own: table.kind}
		if a, ok := netip.AddrFromSlice(allow); ok {
			if prefix, err := a.Prefix(int(bits) % (a.BitLen() + 1)); err == nil {
				p.Allow = []netip.Prefix{prefix}
			}
		}
		if p.Allowed(addr) != nil {
			return
		}
		if addr.Is4In6() || addr.IsUnspecified() || addr.Is4() && addr.As4()[0] == 0 {
			t.Fatalf("%s is allowed by %v", addr, p.Allow)
		}
		inside := len(p.Allow) == 0
		for _, a := range p.Allow {
			inside = inside || a.Contains(addr)
		}
		if !inside {
			t.Fatalf("%s is allowed, and not in %v", addr, p.Allow)
		}
		isSpecial := addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr == own[0] || addr == own[1]
		if isSpecial && (len(p.Allow) == 0 || p.Allow[0].Bits() == 0) {
			t.Fatalf("%s is allowed, though %v does not name it", addr, p.Allow)
		}
	})
}

// streamer is a response whose stream is never used.
type streamer struct{ *httptest.ResponseRecorder }

func (streamer) HTTPStream() (*http3.Stream, error) { return nil, errors.New("no stream") }

// FuzzConnect sends CONNECT with any target, token and client to a gateway without
// a free place. Each request must be refused for the right reason, on one line.
func FuzzConnect(f *testing.F) {
	f.Add("192.0.2.1:80", "Bearer correct-horse", "10.0.0.1:5000", "HTTP/3.0")
	f.Add("[::1]:22", "bearer correct-horse", "[fd00::1%br-lan]:5000", "HTTP/3.0")
	f.Add("host", "Basic Y29ycmVjdC1ob3JzZQ==", "203.0.113.1:1", "HTTP/1.1")
	f.Add("a:65536", "Bearer  correct-horse", "", "HTTP/3.0")
	f.Add("a:b:c", "", "x", "")
	f.Fuzz(func(t *testing.T, target, authorization, client, proto string) {
		h := handlerFor(Access{Places: 1, Peers: []peer.Config{
			{Name: "north", Tokens: []peer.Hash{peer.HashOf("correct-horse")}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		}})
		if _, err := h.enter(h.members[0], h.members[0].cfg.Tokens[0], netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		w := streamer{httptest.NewRecorder()}
		h.ServeHTTP(w, &http.Request{Method: http.MethodConnect, Host: target, Proto: proto, RemoteAddr: client,
			Header: http.Header{"Proxy-Authorization": {authorization}}})
		res := w.Result()
		if h.Stats().Open != 1 {
			t.Fatalf("%d tunnels are counted", h.Stats().Open)
		}
		if strings.ContainsAny(res.Header.Get("Proxy-Status"), "\r\n") {
			t.Fatalf("a header of two lines: %q", res.Header.Get("Proxy-Status"))
		}
		refusal := ReadRefusal(res)
		scheme, token, _ := strings.Cut(authorization, " ")
		host, port, err := net.SplitHostPort(target)
		switch want := refusal.Status; {
		case !strings.EqualFold(scheme, "Bearer") || token != "correct-horse":
			if want != http.StatusProxyAuthRequired {
				t.Fatalf("%q: status %d", authorization, want)
			}
		case !strings.HasPrefix(client, "10.") && !strings.Contains(client, "ffff:"):
			if want != http.StatusForbidden {
				t.Fatalf("client %q: status %d", client, want)
			}
		case want == http.StatusServiceUnavailable && (err != nil || host == "" || strings.Trim(port, "0123456789") != ""):
			t.Fatalf("target %q would be connected to", target)
		case want/100 == 2:
			t.Fatalf("status %d", want)
		}
	})
}

// FuzzRefusal sends any reason and parses it as a relay does.
func FuzzRefusal(f *testing.F) {
	f.Add("wrong or missing token", `bquic; error=dns_error; details="x"`)
	f.Add("a \"quoted\"\r\nInjected: x; error=none", "bquic; details=")
	f.Fuzz(func(t *testing.T, detail, status string) {
		w := httptest.NewRecorder()
		(&Refusal{http.StatusForbidden, TargetProhibited, detail}).write(w)
		got := ReadRefusal(w.Result())
		if got.Status != http.StatusForbidden || got.Type != TargetProhibited && !strings.Contains(detail, "; ") {
			t.Fatalf("%q became %+v", detail, got)
		}
		// A header that another proxy may send.
		ReadRefusal(&http.Response{StatusCode: 502, Header: http.Header{"Proxy-Status": {status}}})
	})
}

// FuzzUDPTarget requests UDP tunnels with any path. An accepted target must match
// RFC 9298's template, and a relay must request it with the same path.
func FuzzUDPTarget(f *testing.F) {
	f.Add("/.well-known/masque/udp/192.0.2.1/53/")
	f.Add("/.well-known/masque/udp/2001%3Adb8%3A%3A1/53/")
	f.Add("/.well-known/masque/udp/%5B::1%5D/53/")
	f.Add("/.well-known/masque/udp/a%2Fb/53/?x")
	f.Add("/.well-known/masque/udp/..//")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		target, err := udpTarget(&http.Request{URL: u})
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(target)
		if err != nil || host == "" || strings.ContainsAny(host, "/[]%") {
			t.Fatalf("%q is taken for %q (%v)", path, target, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			t.Fatalf("%q is taken for port %q", path, port)
		}
		if _, err := netip.ParseAddr(host); err != nil {
			return // relays request addresses only
		}
		r, err := UDPRequest("gateway:8443", target, http.Header{})
		if err != nil {
			t.Fatalf("%q: %v", target, err)
		}
		if again, err := udpTarget(r); err != nil || again != target {
			t.Fatalf("%q becomes %q (%v)", target, again, err)
		}
	})
}

// FuzzCapsules reads any stream of capsules (RFC 9297, section 3.2).
func FuzzCapsules(f *testing.F) {
	f.Add([]byte{0, 3, 0, 'a', 'b', 1, 0, 0, 0})
	f.Add([]byte{0, 0xc0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		err := capsules(bytes.NewReader(data), func(b []byte) {
			if total += len(b); total > len(data) || len(b) > 8+maxUDP {
				t.Fatalf("a datagram of %d bytes in a stream of %d", len(b), len(data))
			}
		})
		if err == nil {
			t.Fatal("a stream of capsules never ends well by itself")
		}
	})
}
