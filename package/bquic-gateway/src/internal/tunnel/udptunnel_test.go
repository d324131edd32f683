// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// connectUDP requests a UDP tunnel with a path.
func connectUDP(t *testing.T, conn *http3.ClientConn, path, authorization string) (*http3.RequestStream, *http.Response) {
	t.Helper()
	str, err := conn.OpenRequestStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse("https://gateway" + path)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	if authorization != "" {
		h.Set("Proxy-Authorization", authorization)
	}
	if err := str.SendRequestHeader(&http.Request{Method: http.MethodConnect, Proto: UDP, Host: "gateway", URL: u, Header: h}); err != nil {
		t.Fatal(err)
	}
	_ = str.SetReadDeadline(time.Now().Add(patience))
	res, err := str.ReadResponse()
	if err != nil {
		t.Fatal(err)
	}
	return str, res
}

func echoUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return pc.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestUDP(t *testing.T) {
	h := newHandler(loopback)
	conn := serve(t, h)
	echo := echoUDP(t)
	str, res := connectUDP(t, conn, fmt.Sprintf("%s%s/%d/", udpPath, echo.Addr(), echo.Port()), "Bearer "+token)
	if res.StatusCode != http.StatusOK || res.Header.Get("Capsule-Protocol") != "?1" {
		t.Fatalf("%d, %v", res.StatusCode, res.Header)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect := func(want string) {
		t.Helper()
		got, err := str.ReceiveDatagram(ctx)
		if err != nil || string(got) != "\x00"+want {
			t.Fatalf("got %q, want %q, %v", got, want, err)
		}
	}
	for _, text := range []string{"one", "", strings.Repeat("x", 1100)} {
		if err := str.SendDatagram([]byte("\x00" + text)); err != nil {
			t.Fatal(err)
		}
		expect(text)
	}
	// Another context ID belongs to an extension, and is dropped.
	if err := str.SendDatagram([]byte("\x02other")); err != nil {
		t.Fatal(err)
	}
	// In a capsule, after one of an unknown type.
	capsule := quicvarint.Append(nil, 0x1fffff)
	capsule = append(quicvarint.Append(capsule, 3), "abc"...)
	capsule = append(quicvarint.Append(quicvarint.Append(capsule, 0), 8), "\x00capsule"...)
	if _, err := str.Write(capsule); err != nil {
		t.Fatal(err)
	}
	expect("capsule")
	// A datagram is counted after it has been sent, which may be after it has arrived.
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s := h.Stats()
		if s.Open == 1 && s.Up == 3+1100+7 && s.Down == s.Up {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("stats %+v", s)
		}
	}
	str.Close()
	for deadline := time.Now().Add(patience); h.Stats().Open > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the tunnel stays open after its stream has ended")
		}
	}
}

// TestUDPLarge sends datagrams through both ends of a tunnel that do not fit into a packet. Without a tunnel, they would be fragmented.
func TestUDPLarge(t *testing.T) {
	h := newHandler(loopback)
	echo := echoUDP(t)
	str, _ := connectUDP(t, serve(t, h), fmt.Sprintf("%s%s/%d/", udpPath, echo.Addr(), echo.Port()), "Bearer "+token)
	client, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	near, err := net.DialUDP("udp4", nil, client.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	var count Bytes
	go func() { ended <- NewFlow(ctx, near, str, &count).Run(time.Minute) }()
	b := make([]byte, maxUDP)
	sum := uint64(0)
	for _, size := range []int{0, 1, 1100, 1400, 1472, packetBuffer - 1, packetBuffer, packetBuffer + 1, 9000, maxWaiting - 100, 65507} {
		datagram := make([]byte, size)
		for i := range datagram {
			datagram[i] = byte(i >> 4)
		}
		if _, err := client.WriteTo(datagram, near.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		_ = client.SetReadDeadline(time.Now().Add(patience))
		if n, err := client.Read(b); err != nil || !bytes.Equal(b[:n], datagram) {
			t.Errorf("of %d bytes, %d came back, %v", size, n, err)
		}
		sum += uint64(size)
	}
	// A datagram is counted after it has been sent, which may be after it has arrived.
	for deadline := time.Now().Add(patience); count.ToStream.Load() != sum || count.FromStream.Load() != sum; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes up and %d down, not %d", count.ToStream.Load(), count.FromStream.Load(), sum)
		}
	}
	end()
	if err := <-ended; err != context.Canceled {
		t.Errorf("ended with %v", err)
	}
}

// TestUDPReceiveBuffer has a burst that comes before this process has read any of it.
func TestUDPReceiveBuffer(t *testing.T) {
	target, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	conn, err := net.DialUDP("udp4", nil, target.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	NewFlow(t.Context(), conn, new(stuckStream), new(Bytes))
	b := make([]byte, 1000)
	const burst = 150 // as many as there is room for without CAP_NET_ADMIN
	for range burst {
		if _, err := target.WriteTo(b, conn.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	for i := range burst {
		if _, err := conn.Read(b); err != nil {
			t.Fatalf("%d of %d: %v", i, burst, err)
		}
	}
}

// TestUDPLargeWaits has a peer that lets nothing large through. What fits into packets goes on, and what waits is limited.
func TestUDPLargeWaits(t *testing.T) {
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	str := &stuckStream{written: make(chan int, 1), through: make(chan struct{})}
	var count Bytes
	f := NewFlow(t.Context(), conn, str, &count)
	for range 100 {
		f.Send(make([]byte, 9000))
		f.Send(make([]byte, 100))
	}
	if str.small != 100 {
		t.Errorf("%d small datagrams were sent, not 100", str.small)
	}
	large := (count.ToStream.Load() - 100*100) / 9000
	if large < 2 || large*9000 > maxAllWaiting/3 {
		t.Errorf("%d large datagrams wait", large)
	}
	close(str.through)
	for range large {
		if n := <-str.written; n < 9000 {
			t.Errorf("a write of %d bytes", n)
		}
	}
}

// TestUDPLargeBurst has a picture of a video, of which no datagram fits into a packet. When nothing else waits, all of it does. A stream that
// breaks leaves nothing behind.
func TestUDPLargeBurst(t *testing.T) {
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const burst, size = 150, 1400
	for _, breaks := range []bool{false, true} {
		str := &stuckStream{written: make(chan int, burst), through: make(chan struct{}), breaks: breaks}
		var count Bytes
		f := NewFlow(t.Context(), conn, str, &count)
		for range burst {
			f.Send(make([]byte, size))
		}
		if n := count.ToStream.Load(); n != burst*size {
			t.Errorf("%d of %d bytes wait", n, burst*size)
		}
		close(str.through)
		for deadline := time.Now().Add(patience); allWaiting.Load() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes still wait", allWaiting.Load())
			}
		}
		if n := len(str.written); !breaks && n != burst {
			t.Errorf("%d datagrams were written", n)
		}
	}
}

// A stuckStream takes small datagrams at once, and data when through is closed.
type stuckStream struct {
	DatagramStream
	small   int
	written chan int
	through chan struct{}
	breaks  bool
}

func (s *stuckStream) SendDatagram(b []byte) error {
	if len(b) > 1200 {
		return &quic.DatagramTooLargeError{}
	}
	s.small++
	return nil
}

func (s *stuckStream) Write(b []byte) (int, error) {
	<-s.through
	if s.breaks {
		return 0, net.ErrClosed
	}
	s.written <- len(b)
	return len(b), nil
}

func TestUDPIdle(t *testing.T) {
	a, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	str := &silentStream{closed: make(chan struct{})}
	begin := time.Now()
	if err := NewFlow(t.Context(), a, str, new(Bytes)).Run(100 * time.Millisecond); err != errIdle {
		t.Errorf("ended with %v", err)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("ended after %v", took)
	}
	if _, err := a.Write(nil); err == nil {
		t.Error("the socket is open")
	}
	if idle := IdleOf("5060"); idle < 180*time.Second { // as long as OpenWrt's NAT keeps a flow
		t.Errorf("a flow ends after %v", idle)
	}
}

// TestUDPAnswered has questions to DNS. A tunnel for one that is answered does not take a gateway's place for long: it ends before one that was
// opened first, and still waits for its second answer.
func TestUDPAnswered(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77), Port: 53})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for b := make([]byte, 2048); ; {
			n, from, err := server.ReadFromUDP(b)
			if err != nil {
				return
			}
			if string(b[:n]) != "unknown" {
				_, _ = server.WriteToUDP(b[:n], from)
			}
		}
	}()
	h := newHandler(loopback)
	conn := serve(t, h)
	ask := func(str *http3.RequestStream, question string) {
		t.Helper()
		if err := str.SendDatagram([]byte("\x00" + question)); err != nil {
			t.Fatal(err)
		}
		if question != "unknown" {
			if b, err := str.ReceiveDatagram(t.Context()); err != nil || string(b) != "\x00"+question {
				t.Fatalf("%q, %v", b, err)
			}
		}
	}
	waits, _ := connectUDP(t, conn, udpPath+"127.0.0.77/53/", "Bearer "+token)
	ask(waits, "known")
	ask(waits, "unknown")
	answered, _ := connectUDP(t, conn, udpPath+"127.0.0.77/53/", "Bearer "+token)
	ask(answered, "known")
	waitFor(t, func() bool { return h.Stats().Open < 2 })
	ask(waits, "later")
	if open := h.Stats().Open; open != 1 {
		t.Errorf("%d tunnels are open", open)
	}
}

// A silentStream never delivers data.
type silentStream struct {
	http3.Stream
	closed chan struct{}
}

func (s *silentStream) Read([]byte) (int, error)         { <-s.closed; return 0, net.ErrClosed }
func (s *silentStream) SendDatagram([]byte) error        { return nil }
func (s *silentStream) CancelRead(quic.StreamErrorCode)  { close(s.closed) }
func (s *silentStream) CancelWrite(quic.StreamErrorCode) {}
func (s *silentStream) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestUDPTarget(t *testing.T) {
	for path, want := range map[string]string{
		udpPath + "192.0.2.1/53/":         "192.0.2.1:53",
		udpPath + "a.example/53/":         "a.example:53",
		udpPath + "2001%3Adb8%3A%3A1/53/": "[2001:db8::1]:53",
		udpPath + "192.0.2.1/53":          "",
		udpPath + "192.0.2.1/53/x":        "",
		udpPath + "192.0.2.1/53/?q":       "",
		udpPath + "/53/":                  "",
		udpPath + "a%2Fb/53/":             "",
		udpPath + "fe80%3A%3A1%25eth0/5/": "",
		udpPath + "%5B%3A%3A1%5D/53/":     "",
		"/other/192.0.2.1/53/":            "",
		"/":                               "",
	} {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := udpTarget(&http.Request{URL: u})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	r, err := UDPRequest("gateway:8443", "[2001:db8::1]:53", http.Header{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := udpTarget(r); got != "[2001:db8::1]:53" || err != nil || !bytes.Contains([]byte(r.URL.String()), []byte("2001%3Adb8%3A%3A1")) {
		t.Errorf("%s: %q, %v", r.URL, got, err)
	}
}
