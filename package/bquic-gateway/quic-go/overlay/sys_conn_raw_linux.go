// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"encoding/binary"
	"net"
	"os"
	"syscall"
	"unsafe"

	"github.com/quic-go/quic-go/internal/utils"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// The system calls of this file do not notify the scheduler (RawSyscall): on a
// non-blocking socket they take no longer than a piece of Go code. A notified
// scheduler wakes sysmon, which then looks every 20 us for other goroutines to run.
// On one core, that takes more instructions than the call.

// A messageReader reads from a UDP socket. It sets up the arguments that all calls
// share once, and makes a new address only when it changes. It is not safe for
// concurrent use.
type messageReader struct {
	conn    syscall.RawConn
	receive func(fd uintptr) bool // bound once

	headers [batchSize]messageHeader
	iovecs  [batchSize]unix.Iovec
	names   [batchSize]unix.RawSockaddrInet6 // or Inet4, which is shorter

	batch int // number of headers to fill
	n     int
	errno syscall.Errno

	name  unix.RawSockaddrInet6 // of addr
	addr  *net.UDPAddr
	zones map[uint32]string
}

// messageHeader is struct mmsghdr of recvmmsg(2).
type messageHeader struct {
	unix.Msghdr
	n uint32
}

// newBatchConn returns a reader of c, whose SyscallConn must belong to a UDP socket.
func newBatchConn(c OOBCapablePacketConn) (batchConn, error) {
	conn, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &messageReader{conn: conn}
	r.receive = r.recvmmsg
	return r, nil
}

// ReadBatch implements batchConn, for at most batchSize messages with one buffer each.
func (r *messageReader) ReadBatch(ms []ipv4.Message, _ int) (int, error) {
	ms = ms[:min(len(ms), batchSize)]
	for i := range ms {
		m, h, v := &ms[i], &r.headers[i], &r.iovecs[i]
		v.Base = &m.Buffers[0][0]
		v.SetLen(len(m.Buffers[0]))
		h.Iov = v
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Namelen = unix.SizeofSockaddrInet6
		h.Control = &m.OOB[0]
		h.SetControllen(len(m.OOB))
	}
	r.batch = len(ms)
	if err := r.conn.Read(r.receive); err != nil {
		return 0, err
	}
	if r.errno != 0 {
		return 0, &net.OpError{Op: "read", Net: "udp", Err: os.NewSyscallError("recvmmsg", r.errno)}
	}
	for i := range r.n {
		m, h := &ms[i], &r.headers[i]
		m.N, m.NN, m.Flags = int(h.n), int(h.Controllen), int(h.Flags)
		m.Addr = r.from(&r.names[i])
	}
	return r.n, nil
}

func (r *messageReader) recvmmsg(fd uintptr) (done bool) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&r.headers)), uintptr(r.batch), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		r.n, r.errno = int(n), errno
		return errno != unix.EAGAIN
	}
}

// from returns the address of a message.
func (r *messageReader) from(name *unix.RawSockaddrInet6) net.Addr {
	v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
	if name.Family == unix.AF_INET { // shorter: the rest is left over from an earlier message
		*name = unix.RawSockaddrInet6{Family: name.Family, Port: name.Port, Flowinfo: name.Flowinfo}
	}
	if r.addr != nil && *name == r.name {
		return r.addr
	}
	port := (*[2]byte)(unsafe.Pointer(&name.Port))
	addr := &net.UDPAddr{Port: int(binary.BigEndian.Uint16(port[:]))}
	if name.Family == unix.AF_INET {
		addr.IP = append(net.IP(nil), v4.Addr[:]...)
	} else {
		addr.IP = append(net.IP(nil), name.Addr[:]...)
		addr.Zone = r.zone(name.Scope_id)
	}
	r.name, r.addr = *name, addr
	return addr
}

// zone returns the name of an interface, "" for 0.
func (r *messageReader) zone(index uint32) string {
	if index == 0 {
		return ""
	}
	name, ok := r.zones[index]
	if !ok {
		ifi, err := net.InterfaceByIndex(int(index))
		if err != nil {
			return ""
		}
		if r.zones == nil {
			r.zones = make(map[uint32]string)
		}
		name = ifi.Name
		r.zones[index] = name
	}
	return name
}

// A MessageWriter writes to a UDP socket.
type MessageWriter struct {
	udp  *net.UDPConn
	conn syscall.RawConn
	ipv6 bool // the socket's family
}

// NewMessageWriter returns a writer to c.
func NewMessageWriter(c *net.UDPConn) (*MessageWriter, error) {
	conn, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	w := &MessageWriter{udp: c, conn: conn}
	var serr error
	if err := conn.Control(func(fd uintptr) {
		var domain int
		domain, serr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		w.ipv6 = domain == unix.AF_INET6
	}); err != nil {
		return nil, err
	}
	if serr != nil {
		return nil, os.NewSyscallError("getsockopt", serr)
	}
	return w, nil
}

// rawUDPConn is a net.UDPConn with a MessageWriter.
type rawUDPConn struct {
	*net.UDPConn
	*MessageWriter
}

func (c rawUDPConn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	return c.MessageWriter.WriteMsgUDP(b, oob, addr)
}

// withMessageWriter returns c with a MessageWriter, if c is a plain UDP socket that nothing wraps.
func withMessageWriter(c OOBCapablePacketConn) OOBCapablePacketConn {
	udp, ok := c.(*net.UDPConn)
	if !ok {
		return c
	}
	w, err := NewMessageWriter(udp)
	if err != nil {
		return c
	}
	return rawUDPConn{udp, w}
}

// An outgoing is a message passed to the kernel. Its parts have to be on the heap.
type outgoing struct {
	send func(fd uintptr) bool // bound once

	header unix.Msghdr
	iovec  unix.Iovec
	name   unix.RawSockaddrInet6
	errno  syscall.Errno
}

var outgoings = utils.Pool{New: func() any {
	m := new(outgoing)
	m.send = m.sendmsg
	return m
}}

// WriteMsgUDP behaves like the method of net.UDPConn.
func (w *MessageWriter) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	m := outgoings.Get().(*outgoing)
	defer outgoings.Put(m)
	length, ok := m.to(addr, w.ipv6)
	if !ok || len(b) == 0 {
		return w.udp.WriteMsgUDP(b, oob, addr)
	}
	m.iovec.Base = &b[0]
	m.iovec.SetLen(len(b))
	m.header = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&m.name)), Namelen: length, Iov: &m.iovec}
	m.header.SetIovlen(1)
	if len(oob) > 0 {
		m.header.Control = &oob[0]
		m.header.SetControllen(len(oob))
	}
	err = w.conn.Write(m.send)
	m.header, m.iovec = unix.Msghdr{}, unix.Iovec{} // must not keep the packet alive
	if err == nil && m.errno != 0 {
		err = &net.OpError{Op: "write", Net: "udp", Addr: addr, Err: os.NewSyscallError("sendmsg", m.errno)}
	}
	if err != nil {
		return 0, 0, err
	}
	return len(b), len(oob), nil
}

func (m *outgoing) sendmsg(fd uintptr) (done bool) {
	for {
		_, _, m.errno = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&m.header)), 0)
		if m.errno != unix.EINTR {
			return m.errno != unix.EAGAIN
		}
	}
}

// to sets the name to addr, for an IPv6 or IPv4 socket. ok is false for addresses that
// only package net can handle: a zone, or an address of the wrong family.
func (m *outgoing) to(addr *net.UDPAddr, ipv6 bool) (length uint32, ok bool) {
	if addr.Zone != "" {
		return 0, false
	}
	m.name = unix.RawSockaddrInet6{}
	port := (*[2]byte)(unsafe.Pointer(&m.name.Port)) // at the same offset in sockaddr_in
	binary.BigEndian.PutUint16(port[:], uint16(addr.Port))
	v4 := addr.IP.To4()
	switch {
	case ipv6 && v4 != nil:
		m.name.Family = unix.AF_INET6
		m.name.Addr[10], m.name.Addr[11] = 0xff, 0xff
		copy(m.name.Addr[12:], v4)
		return unix.SizeofSockaddrInet6, true
	case ipv6 && len(addr.IP) == net.IPv6len:
		m.name.Family = unix.AF_INET6
		copy(m.name.Addr[:], addr.IP)
		return unix.SizeofSockaddrInet6, true
	case !ipv6 && v4 != nil:
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&m.name))
		sa.Family = unix.AF_INET
		copy(sa.Addr[:], v4)
		return unix.SizeofSockaddrInet4, true
	}
	return 0, false
}
