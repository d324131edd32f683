// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func tcpEnds(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a = c.(*net.TCPConn)
	if b, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func newRaw(t *testing.T, c *net.TCPConn) *rawTCP {
	t.Helper()
	r, err := newRawTCP(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A segment is read with one read, and so carried in one packet.
func TestRawTCPWhole(t *testing.T) {
	a, b := tcpEnds(t)
	r := newRaw(t, b)
	for _, size := range []int{1, 1448, largeBuffer} {
		sent := bytes.Repeat([]byte{byte(size)}, size)
		if _, err := a.Write(sent); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return unread(b) == size })
		got, err := r.Next()
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes: read %d, %v", size, len(got), err)
		}
	}
	r.release()
}

func unread(c *net.TCPConn) (n int) {
	raw, _ := c.SyscallConn()
	_ = raw.Read(func(fd uintptr) bool {
		n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 2*largeBuffer), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return n
}

func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	for range 3000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain")
}

// A waiting tunnel holds no buffer.
func TestRawTCPWaits(t *testing.T) {
	a, b := tcpEnds(t)
	r := newRaw(t, b)
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if err := b.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := r.Next()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if r.in != nil {
		t.Error("a buffer is held")
	}
}

func TestRawTCPEnds(t *testing.T) {
	a, b := tcpEnds(t)
	r := newRaw(t, b)
	a.CloseWrite()
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("FIN: %v", err)
	}
	Reset(a)
	waitFor(t, func() bool { return ClosedByReset(b) })
	if _, err := r.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after a reset: %v", err)
	}

	a, b = tcpEnds(t)
	r = newRaw(t, b)
	Reset(a)
	if _, err := r.Next(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read after a reset: %v", err)
	}
	b.Close()
	if _, err := r.Next(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed connection: %v", err)
	}
	if _, err := r.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write of a closed connection: %v", err)
	}
}

// A write of more than the kernel accepts at once is completed, and all of it arrives.
func TestRawTCPMuch(t *testing.T) {
	a, b := tcpEnds(t)
	sent := make([]byte, 8<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	done := make(chan error, 1)
	go func() {
		n, err := newRaw(t, a).Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		a.CloseWrite()
		done <- err
	}()
	time.Sleep(50 * time.Millisecond) // until the kernel accepts no more
	r := newRaw(t, b)
	var got []byte
	for {
		p, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p...)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other bytes arrived")
	}
}
