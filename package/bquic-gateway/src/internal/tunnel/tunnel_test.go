// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"

	"bquic/internal/peer"
)

const token = "correct-horse"

// patience is the timeout for events that must happen eventually.
const patience = 30 * time.Second

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"gateway"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serve runs the handler in a gateway on loopback, and returns a connection to the gateway.
func serve(t *testing.T, h *Handler) *http3.ClientConn {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server := &http3.Server{
		Handler:         h,
		TLSConfig:       http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate(t)}}),
		QUICConfig:      &quic.Config{MaxIncomingStreams: MaxStreams, EnableDatagrams: true},
		EnableDatagrams: true,
	}
	done := make(chan struct{})
	go func() {
		server.Serve(udp)
		close(done)
	}()
	t.Cleanup(func() {
		server.Close()
		udp.Close()
		<-done
	})
	conn, err := quic.DialAddr(context.Background(), udp.LocalAddr().String(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{http3.NextProtoH3}}, &quic.Config{EnableDatagrams: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseWithError(0, "") })
	return (&http3.Transport{EnableDatagrams: true}).NewClientConn(conn)
}

// connect sends CONNECT and returns the stream and the response.
func connect(t *testing.T, conn *http3.ClientConn, target, authorization string) (*http3.RequestStream, *http.Response) {
	t.Helper()
	str, err := conn.OpenRequestStream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	str.SetDeadline(time.Now().Add(patience))
	req := &http.Request{Method: http.MethodConnect, Host: target, URL: &url.URL{Host: target}, Header: http.Header{}}
	if authorization != "" {
		req.Header.Set("Proxy-Authorization", authorization)
	}
	if err := str.SendRequestHeader(req); err != nil {
		t.Fatal(err)
	}
	res, err := str.ReadResponse()
	if err != nil {
		t.Fatal(err)
	}
	return str, res
}

// open opens a tunnel to an origin in the test, and returns both ends.
func open(t *testing.T) (*http3.RequestStream, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	str, res := connect(t, serve(t, newHandler(loopback)), l.Addr().String(), "Bearer "+token)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	origin, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { origin.Close() })
	origin.SetDeadline(time.Now().Add(patience))
	return str, origin.(*net.TCPConn)
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func send(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Errorf("write: %v", err)
	}
}

func expect(t *testing.T, r io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		t.Fatalf("read: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("what arrived is not what was sent")
	}
}

func expectEOF(t *testing.T, r io.Reader) {
	t.Helper()
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("read %d bytes and error %v, not the end", n, err)
	}
}

func TestHalfClose(t *testing.T) {
	for _, first := range []string{"relay", "origin"} {
		t.Run(first+" first", func(t *testing.T) {
			str, origin := open(t)
			up, down := random(300_000), random(500_000)
			sendUp := func() { send(t, str, up); str.Close() }
			sendDown := func() { send(t, origin, down); origin.CloseWrite() }
			if first == "relay" {
				go sendUp()
				expect(t, origin, up)
				expectEOF(t, origin)
				go sendDown()
				expect(t, str, down)
				expectEOF(t, str)
			} else {
				go sendDown()
				expect(t, str, down)
				expectEOF(t, str)
				go sendUp()
				expect(t, origin, up)
				expectEOF(t, origin)
			}
		})
	}
}

// isConnectError reports whether the peer reset the stream as in RFC 9114, section 4.4.
func isConnectError(err error) bool {
	var e *http3.Error
	return errors.As(err, &e) && e.Remote && e.ErrorCode == http3.ErrCodeConnectError
}

func TestResetByOrigin(t *testing.T) {
	str, origin := open(t)
	send(t, origin, []byte("hello"))
	expect(t, str, []byte("hello"))
	Reset(origin)
	if _, err := str.Read(make([]byte, 1)); !isConnectError(err) {
		t.Errorf("read: %v", err)
	}
	// STOP_SENDING may arrive later than RESET_STREAM.
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_, err = str.Write([]byte("x"))
	}
	if !isConnectError(err) {
		t.Errorf("write: %v", err)
	}
}

func TestResetByRelay(t *testing.T) {
	for name, reset := range map[string]func(*http3.RequestStream){
		"RESET_STREAM": func(s *http3.RequestStream) { s.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError)) },
		// Noticed when data is sent to the relay.
		"STOP_SENDING": func(s *http3.RequestStream) { s.CancelRead(quic.StreamErrorCode(http3.ErrCodeConnectError)) },
	} {
		t.Run(name, func(t *testing.T) {
			str, origin := open(t)
			send(t, str, []byte("hello"))
			expect(t, origin, []byte("hello"))
			reset(str)
			var err error
			if name == "STOP_SENDING" {
				for ; err == nil; time.Sleep(time.Millisecond) {
					_, err = origin.Write([]byte("x"))
				}
			} else {
				_, err = origin.Read(make([]byte, 1))
			}
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("the origin sees %v", err)
			}
		})
	}
}

// TestGoneHalfClosed has a relay whose connection ends while a target has not answered a client that has ended its direction. The gateway reads
// nothing from that client any more, which would tell.
func TestGoneHalfClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn := serve(t, newHandler(loopback))
	str, _ := connect(t, conn, l.Addr().String(), "Bearer "+token)
	origin, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	send(t, str, []byte("question"))
	if err := str.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(origin); err != nil || string(got) != "question" {
		t.Fatalf("%q, %v", got, err)
	}
	conn.CloseWithError(0, "")
	for end := time.Now().Add(patience); !ClosedByReset(origin.(*net.TCPConn)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the target still has the connection")
		}
	}
}

// A reset must be noticed even while the gateway does not read the connection.
func TestResetUnread(t *testing.T) {
	t.Run("after a half-close", func(t *testing.T) {
		t.Parallel()
		str, origin := open(t)
		origin.CloseWrite()
		expectEOF(t, str)
		Reset(origin)
		var err error
		for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			// Do not write before: a write alone would provoke a reset.
			if str.Context().Err() != nil {
				_, err = str.Write([]byte("x"))
			}
		}
		if !isConnectError(err) {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("while the stream is blocked", func(t *testing.T) {
		t.Parallel()
		str, origin := open(t)
		flood(t, origin)
		Reset(origin)
		time.Sleep(2 * watchInterval)
		// Data in flight may still arrive. Then the reset must follow, not a FIN.
		_, err := io.Copy(io.Discard, str)
		if !isConnectError(err) {
			t.Errorf("read: %v", err)
		}
	})
}

// A tunnel may be idle for days, as a shell is at night, but not once one of its directions has ended.
func TestIdle(t *testing.T) {
	_, conn := tcpEnds(t)
	s := &splice{conn: conn, str: endless{}}
	s.reading.Store(true)
	days := func() (err error) {
		for waited := time.Duration(0); err == nil && waited < 100*24*time.Hour; waited += watchInterval {
			err = s.unhealthy()
		}
		return err
	}
	if err := days(); err != nil {
		t.Errorf("a tunnel with two ends that live: %v", err)
	}
	s.end(nil)
	if err := days(); err != errIdle {
		t.Errorf("one that is half closed: %v", err)
	}
	str, _ := open(t)
	s = &splice{conn: conn, str: str}
	s.reading.Store(true)
	str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError)) // as after the peer's STOP_SENDING
	if err := days(); err != errIdle {
		t.Errorf("one whose peer reads nothing more: %v", err)
	}
}

// TestCrowded checks that a relay looks for dead clients more often where it has little room, and only among idle ones.
func TestCrowded(t *testing.T) {
	for name, tc := range map[string]struct {
		crowded, moves bool
		want           int
	}{
		"room":            {want: Patient.Count},
		"crowded":         {crowded: true, want: Hurried.Count},
		"crowded, in use": {crowded: true, moves: true, want: Patient.Count},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := tcpEnds(t)
			if err := conn.SetKeepAliveConfig(Patient); err != nil {
				t.Fatal(err)
			}
			s := &splice{conn: conn, str: endless{}, crowded: func() bool { return tc.crowded }}
			s.reading.Store(true)
			for waited := time.Duration(0); waited <= halfClosedTimeout; waited += watchInterval {
				if tc.moves {
					s.moved.Add(1)
				}
				if err := s.unhealthy(); err != nil {
					t.Fatal(err)
				}
			}
			raw, err := conn.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var count int
			if cerr := raw.Control(func(fd uintptr) { count, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT) }); cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
			if count != tc.want {
				t.Errorf("%d unanswered probes, want %d", count, tc.want)
			}
		})
	}
}

// flood writes until the connection accepts no more, and returns how much it accepted.
func flood(t *testing.T, conn *net.TCPConn) (total int) {
	t.Helper()
	defer conn.SetDeadline(time.Now().Add(patience))
	for b := make([]byte, 64<<10); ; {
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := conn.Write(b)
		total += n
		if err != nil {
			return total
		}
		if total > 100<<20 {
			t.Fatal("no backpressure: 100 MB were taken and nobody reads them")
		}
	}
}

func TestBackpressure(t *testing.T) {
	str, origin := open(t)
	total := flood(t, origin)
	origin.CloseWrite()
	n, err := io.Copy(io.Discard, str)
	if err != nil || n != int64(total) {
		t.Errorf("%d of %d bytes arrived, error %v", n, total, err)
	}
}

// A TCP peer that reads nothing holds little of the kernel's memory.
func TestUnsent(t *testing.T) {
	peer, conn := tcpEnds(t)
	if err := peer.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Splice(conn, endless{}, new(Bytes))
	}()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// It is full when it no longer grows.
	held, since := 0, time.Now()
	for begun := since; held == 0 && time.Since(begun) < time.Minute || time.Since(since) < 500*time.Millisecond; {
		_ = raw.Control(func(fd uintptr) {
			if now, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil && now != held {
				held, since = now, time.Now()
			}
		})
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("the kernel holds %d bytes", held)
	// A write that begins below the limit may exceed it, and a little is in flight.
	if held == 0 || held > MaxUnsent+2*largeBuffer {
		t.Errorf("the kernel holds %d bytes for a peer that reads nothing", held)
	}
	peer.Close()
	<-ended
}

func TestRefusals(t *testing.T) {
	const closed = "127.0.0.1:1" // not a port that the kernel chooses: nobody listens there meanwhile
	for _, tc := range []struct {
		name          string
		handler       *Handler
		target        string
		authorization string
		status        int
		kind          string
		detail        string
	}{
		{"no token sent", newHandler(nil), "192.0.2.1:80", "", 407, RequestDenied, "token"},
		{"wrong token", newHandler(nil), "192.0.2.1:80", "Bearer x", 407, RequestDenied, "token"},
		{"wrong scheme", newHandler(nil), "192.0.2.1:80", "Basic " + token, 407, RequestDenied, "token"},
		{"no token set", handlerFor(Access{}), "192.0.2.1:80", "Bearer ", 407, RequestDenied, "token"},
		{"client", handlerFor(Access{Peers: []peer.Config{{Name: "far", Tokens: []peer.Hash{peer.HashOf(token)}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}}), "192.0.2.1:80", "Bearer " + token, 403, RequestDenied, "client"},
		{"loopback", newHandler(nil), closed, "Bearer " + token, 403, TargetProhibited, "loopback"},
		{"loopback by name", newHandler(nil), "localhost:80", "Bearer " + token, 403, TargetProhibited, "loopback"},
		{"mapped", newHandler(nil), "[::ffff:127.0.0.1]:80", "Bearer " + token, 403, TargetProhibited, ""},
		{"short form", newHandler(nil), "[::]:80", "Bearer " + token, 403, TargetProhibited, "unspecified"},
		{"prefix", newHandler(loopback), "192.0.2.1:80", "Bearer " + token, 403, TargetProhibited, "not in an allowed prefix"},
		{"no port", newHandler(nil), "192.0.2.1", "Bearer " + token, 400, requestError, "host:port"},
		{"port 0", newHandler(nil), "192.0.2.1:0", "Bearer " + token, 400, requestError, "host:port"},
		{"no listener", newHandler(loopback), closed, "bearer " + token, 502, connectionRefused, "refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			str, res := connect(t, serve(t, tc.handler), tc.target, tc.authorization)
			defer Cancel(str, http3.ErrCodeRequestCanceled)
			refusal := ReadRefusal(res)
			if refusal.Status != tc.status || refusal.Type != tc.kind || !strings.Contains(refusal.Detail, tc.detail) {
				t.Errorf("got %+v", *refusal)
			}
		})
	}
}

func TestOwnAddress(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	tested := false
	for _, a := range addrs {
		p := netip.MustParsePrefix(a.String())
		if p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		tested = true
		_, res := connect(t, serve(t, newHandler(nil)), netip.AddrPortFrom(p.Addr(), 22).String(), "Bearer "+token)
		if refusal := ReadRefusal(res); refusal.Type != TargetProhibited || !strings.Contains(refusal.Detail, "gateway itself") {
			t.Errorf("%s: got %+v", p.Addr(), *refusal)
		}
	}
	if !tested {
		t.Log("this machine has loopback addresses only")
	}
}

func TestLimit(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := newHandler(loopback)
	h.SetAccess(Access{Peers: []peer.Config{*h.members[0].cfg}, Allow: loopback, Places: 2})
	conn := serve(t, h)
	var streams []*http3.RequestStream
	for range 2 {
		str, res := connect(t, conn, l.Addr().String(), "Bearer "+token)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("status %d", res.StatusCode)
		}
		streams = append(streams, str)
	}
	_, res := connect(t, conn, l.Addr().String(), "Bearer "+token)
	if refusal := ReadRefusal(res); refusal.Status != 503 || refusal.Type != LimitReached {
		t.Errorf("got %+v", *refusal)
	}
	for _, str := range streams {
		Cancel(str, http3.ErrCodeConnectError)
	}
	for deadline := time.Now().Add(patience); h.Stats().Open > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d tunnels are still open", h.Stats().Open)
		}
	}
	if n := h.Stats().Total; n != 2 {
		t.Errorf("%d tunnels counted, not 2", n)
	}
}

func TestRefusalHeader(t *testing.T) {
	// Whatever the detail, the header stays one line of printable ASCII.
	for _, detail := range []string{`quo"ted`, "two\nlines", `back\slash`, "Ünïcode", ""} {
		w := recorder{}
		(&Refusal{http.StatusBadGateway, internalError, detail}).write(w)
		value := http.Header(w).Get("Proxy-Status")
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				t.Errorf("%q contains %q", value, c)
			}
		}
		got := ReadRefusal(&http.Response{StatusCode: http.StatusBadGateway, Header: http.Header(w)})
		if got.Type != internalError || got.Detail == "" {
			t.Errorf("%q was read as %+v", value, *got)
		}
	}
}

type recorder http.Header

func (r recorder) Header() http.Header         { return http.Header(r) }
func (r recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r recorder) WriteHeader(int)             {}
