// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawTCP reads and writes a TCP connection. Its system calls do not block, so it
// does not announce them to Go's scheduler, as in quic-go's sys_conn_raw_linux.go.
// One goroutine may read while another one writes.
type rawTCP struct {
	conn syscall.RawConn

	waits  func()                // called before Next waits for data
	read   func(fd uintptr) bool // a method value, allocated once
	in     *[largeBuffer]byte    // nil while waiting
	n      int
	rerrno syscall.Errno

	write  func(fd uintptr) bool
	out    []byte // not yet written
	werrno syscall.Errno
}

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

func newRawTCP(conn *net.TCPConn) (*rawTCP, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &rawTCP{conn: raw, waits: func() {}}
	c.read, c.write = c.tryRead, c.tryWrite
	return c, nil
}

// Next returns the next data from the connection. The slice is valid until the
// next call. Next holds no buffer while it waits.
func (c *rawTCP) Next() ([]byte, error) {
	c.release()
	if err := c.conn.Read(c.read); err != nil {
		return nil, err
	}
	if c.rerrno != 0 {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", c.rerrno)}
	}
	if c.n == 0 {
		return nil, io.EOF
	}
	return c.in[:c.n], nil
}

// release returns the buffer of the last Next to the pool.
func (c *rawTCP) release() {
	if c.in != nil {
		largeBuffers.Put(c.in)
		c.in = nil
	}
}

func (c *rawTCP) tryRead(fd uintptr) (done bool) {
	if c.in == nil {
		c.in = largeBuffers.Get().(*[largeBuffer]byte)
	}
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(c.in)), largeBuffer)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			c.release()
			c.waits()
			return false
		}
		c.n, c.rerrno = int(n), errno
		return true
	}
}

// Write implements io.Writer.
func (c *rawTCP) Write(b []byte) (int, error) {
	c.out, c.werrno = b, 0
	err := c.conn.Write(c.write)
	n := len(b) - len(c.out)
	c.out = nil
	if err == nil && c.werrno != 0 {
		err = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", c.werrno)}
	}
	return n, err
}

func (c *rawTCP) tryWrite(fd uintptr) (done bool) {
	for len(c.out) > 0 {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&c.out[0])), uintptr(len(c.out)))
		switch errno {
		case 0:
			c.out = c.out[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			c.werrno = errno
			return true
		}
	}
	return true
}

// AwaitEnd waits until conn's peer has ended its direction, and returns io.EOF, or until it has reset conn. It reads nothing. A read
// deadline ends it.
func AwaitEnd(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var end error
	err = raw.Read(func(uintptr) bool {
		if info := tcpInfo(raw); info != nil {
			switch info.State {
			case unix.BPF_TCP_CLOSE:
				end = syscall.ECONNRESET
			case unix.BPF_TCP_CLOSE_WAIT:
				end = io.EOF
			}
		}
		return end != nil
	})
	if err != nil {
		return err
	}
	return end
}
