// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"io"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// A sharedStream is one of a connection that carries many tunnels.
type sharedStream struct{ *quic.Stream }

func (s sharedStream) QUICStream() *quic.Stream { return s.Stream }

// Clients that read nothing must not hold all of the window of a relay's connection, however many they are.
func TestUnread(t *testing.T) {
	const unread, window = 32, 1 << 20 // the window is full with 16 of them, or a few more
	tlsConfig := &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"test"}}
	ln, err := quic.ListenAddr("127.0.0.1:0", tlsConfig, &quic.Config{MaxIncomingStreams: MaxStreams, MaxIdleTimeout: 2 * patience})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	relay, err := quic.DialAddr(t.Context(), ln.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"test"}},
		&quic.Config{MaxIdleTimeout: 2 * patience, InitialStreamReceiveWindow: window / 16, MaxStreamReceiveWindow: window / 16,
			InitialConnectionReceiveWindow: window, MaxConnectionReceiveWindow: window})
	if err != nil {
		t.Fatal(err)
	}
	defer relay.CloseWithError(0, "")
	gateway, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			str, err := gateway.AcceptStream(t.Context())
			if err != nil {
				return
			}
			str.SetClient(0)
			go io.Copy(str, endless{})
		}
	}()
	open := func() *quic.Stream {
		str, err := relay.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		str.SetClient(0)
		send(t, str, []byte("x"))
		return str
	}
	ended := make(chan error, unread)
	for range unread {
		client, conn := tcpEnds(t)
		if err := client.SetReadBuffer(1); err != nil {
			t.Fatal(err)
		}
		str := open()
		go func() { ended <- Splice(conn, sharedStream{str}, new(Bytes)) }()
	}
	for before, full := uint64(0), false; !full; time.Sleep(200 * time.Millisecond) {
		_, held := relay.Held()
		full, before = held > window*7/8 && held == before, held // the gateway may send no more
	}
	last := open()
	last.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.CopyN(io.Discard, last, 4*window); err != nil {
		t.Fatalf("a tunnel that is read: %v", err)
	}
	if n := len(ended); n == 0 || n == unread {
		t.Errorf("%d of %d tunnels that nobody reads ended", n, unread)
	} else if err := <-ended; err != errUnread {
		t.Errorf("one ended by %v", err)
	}
}
