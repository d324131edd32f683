// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestRebinding checks that a name server whose answers alternate gets no
// connection to an address that is not allowed.
func TestRebinding(t *testing.T) {
	var answers atomic.Uint64
	dns, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer dns.Close()
	go func() {
		for b := make([]byte, 512); ; {
			n, from, err := dns.ReadFromUDP(b)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if q.Unpack(b[:n]) != nil || len(q.Questions) != 1 {
				continue
			}
			q.Response = true
			q.Additionals = nil
			if q.Questions[0].Type == dnsmessage.TypeA {
				addr := [4]byte{127, 0, 0, byte(1 + answers.Add(1)%2)}
				q.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
					Body:   &dnsmessage.AResource{A: addr},
				}}
			}
			reply, err := q.Pack()
			if err == nil {
				_, _ = dns.WriteToUDP(reply, from)
			}
		}
	}()
	old := net.DefaultResolver
	defer func() { net.DefaultResolver = old }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", dns.LocalAddr().String())
	}}

	// 127.0.0.2 is allowed, 127.0.0.1 is not; both listen.
	allowed, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	_, port, _ := net.SplitHostPort(allowed.Addr().String())
	forbidden, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Skipf("the port is taken on 127.0.0.1: %v", err)
	}
	defer forbidden.Close()
	go func() {
		for {
			c, err := forbidden.Accept()
			if err != nil {
				return
			}
			t.Error("the forbidden address was connected to")
			c.Close()
		}
	}()
	h := newHandler(nil)
	allow := []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	opened, refused := 0, 0
	for range 100 {
		for _, network := range []string{"tcp", "udp"} {
			conn, err := h.dial(t.Context(), network, "rebinding.example:"+port, allow)
			var refusal *Refusal
			switch {
			case err == nil:
				opened++
				if got := conn.RemoteAddr().String(); got != "127.0.0.2:"+port {
					t.Errorf("connected to %s", got)
				}
				conn.Close()
			case errors.As(err, &refusal) && refusal.Type == TargetProhibited:
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
	if opened == 0 || refused == 0 {
		t.Errorf("%d opened, %d refused: the name server did not alternate", opened, refused)
	}
}
