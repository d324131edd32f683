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

// rawTCP reads and writes a TCP connection. As in quic-go's sys_conn_raw_linux.go,
// the scheduler is not told of system calls, which do not block. One goroutine
// may read while another one writes.
type rawTCP struct {
	conn syscall.RawConn

	read   func(fd uintptr) bool // bound once
	in     *[largeBuffer]byte    // nil while waiting
	n      int
	rerrno syscall.Errno

	write  func(fd uintptr) bool
	out    []byte // what is left to write
	werrno syscall.Errno
}

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

func newRawTCP(conn *net.TCPConn) (*rawTCP, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &rawTCP{conn: raw}
	c.read, c.write = c.tryRead, c.tryWrite
	return c, nil
}

// Next returns what has come in, valid until the next call. While it waits, it
// holds no buffer.
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

// release ends the use of what Next has returned.
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
