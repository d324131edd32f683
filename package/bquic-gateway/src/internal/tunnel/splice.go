// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"

	"bquic/internal/system"
)

const (
	// halfClosedTimeout ends an idle tunnel once one direction has ended. Linux NATs forget
	// such a connection after 2 minutes (nf_conntrack_tcp_timeout_fin_wait). Other tunnels may
	// be idle for as long as both ends live: TCP keep-alive and the QUIC idle timeout find dead
	// peers.
	halfClosedTimeout = 5 * time.Minute
	// watchInterval is how often a tunnel checks what no read or write reports: idleness, and
	// a reset of a TCP connection that it is not reading.
	watchInterval = 5 * time.Second
	// watchBeat keeps these checks of all tunnels together, and with what a relay does four times a second.
	watchBeat = 250 * time.Millisecond
	// vainTime is how long an end must have waited for the other one's answer to have waited in vain.
	vainTime = 10 * time.Second
	// drainInterval is how often a tunnel that ends by a reset checks whether all that came before has arrived.
	drainInterval = 20 * time.Millisecond

	// While it waits, the direction from the stream holds a smallBuffer, which is enough for
	// one packet. It uses a pooled largeBuffer while reads fill the buffer. The direction to
	// the stream holds no buffer while it waits. QUIC flow control bounds everything else.
	smallBuffer = 2 << 10
	largeBuffer = 16 << 10

	// MaxUnsent is how much of a TCP connection's data may wait in the kernel until the peer's
	// window and congestion control admit it, in bytes. Without it, a peer that reads slowly or
	// not at all takes megabytes of the kernel's memory.
	MaxUnsent = 256 << 10
)

var (
	errIdle   = errors.New("idle for too long")
	errReset  = errors.New("TCP connection reset")
	errLost   = errors.New("no answer, and the gateway has no uplink")
	errUnread = errors.New("not read, while unread data leaves other tunnels little room")
)

// A Stream is an HTTP/3 request stream, at either end.
type Stream interface {
	io.ReadWriteCloser // Close ends the sending direction only
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
}

var (
	_ Stream = (*http3.Stream)(nil)
	_ Stream = (*http3.RequestStream)(nil)
)

// Bytes counts the bytes that one or many tunnels have carried.
type Bytes struct {
	ToStream   Counter
	FromStream Counter
}

// Under makes everything that b counts from now on count in sum, too.
func (b *Bytes) Under(sum *Bytes) {
	b.ToStream.sum, b.FromStream.sum = &sum.ToStream, &sum.FromStream
}

// A Counter may be part of a sum.
type Counter struct {
	n   atomic.Uint64
	sum *Counter
}

func (c *Counter) Load() uint64 { return c.n.Load() }

func (c *Counter) Add(n uint64) {
	for ; c != nil; c = c.sum {
		c.n.Add(n)
	}
}

// Splice copies between conn and str until both directions have ended, then closes both. It passes on the end of one direction as
// a FIN. If one side is reset or fails, Splice passes on what that side has sent, then resets the other side in both directions
// and returns the error.
func Splice(conn *net.TCPConn, str Stream, count *Bytes) error {
	return SpliceTimed(conn, nil, str, count, nil, nil, nil)
}

// SpliceTimed is Splice at a relay, whose client is at conn. It sends first, the data already read from conn, before all else. If
// timing is not nil, it also measures how long the client waits. While crowded reports that there is little room, it looks for
// dead clients more often. While lost, which may be nil, reports that no answers come by str, the tunnel ends if its client waits for one.
func SpliceTimed(conn *net.TCPConn, first []byte, str Stream, count *Bytes, timing *Timing, crowded, lost func() bool) error {
	raw, err := newRawTCP(conn)
	if err != nil {
		Reset(conn)
		Cancel(str, http3.ErrCodeConnectError)
		return err
	}
	s := &splice{conn: conn, raw: raw, str: str, count: count, timing: timing, crowded: crowded, lost: lost}
	ResetAtEnd(conn)
	LimitUnsent(conn)
	KeepUrgent(conn)
	s.watch = time.AfterFunc(watchInterval+system.UntilBeat(watchBeat), s.look)
	defer s.stop()

	var wg sync.WaitGroup
	wg.Go(func() { s.end(s.toStream(first)) })
	s.end(s.fromStream())
	wg.Wait()
	err = s.finish()
	if timing != nil {
		timing.done()
	}
	return err
}

type splice struct {
	conn  *net.TCPConn
	raw   *rawTCP // of conn
	str   Stream
	count *Bytes

	timing  *Timing     // nil: not measured
	crowded func() bool // at a relay, where conn is the client's; nil at a gateway
	lost    func() bool // nil: never

	asks    atomic.Bool   // conn has sent something, and nothing has come from str since
	moved   atomic.Uint32 // writes in both directions; 32 bits, because 64 bits need a lock on some processors
	reading atomic.Bool   // conn is being read, and the read would return a reset
	writing atomic.Bool   // conn is being written
	shut    atomic.Bool   // our FIN was sent, so the kernel may have closed conn without a reset
	failed  atomic.Bool   // conn takes no more data: it was reset
	closed  atomic.Bool   // str was closed: all that it is to carry was written
	more    bool          // str knows that more follows; used by toStream only

	mu    sync.Mutex
	ended int   // directions that ended
	err   error // why the tunnel was aborted
	watch *time.Timer
	// Used by look only:
	lastMoved uint32
	idle      time.Duration
	unheard   bool // by the target
	astray    int  // how many times the address was missing
	hurried   bool // conn has Hurried
}

// toStream copies conn to str.
func (s *splice) toStream(first []byte) error {
	s.asks.Store(len(first) > 0)
	n, refused := s.str.Write(first)
	s.count.ToStream.Add(uint64(n))
	defer s.raw.release()
	s.raw.waits = func() { s.announce(false) }
	// A server may stop reading, and still have an answer on its way. So a relay then drops what its client sends, until the
	// client has the answer.
	for refused == nil || s.crowded != nil && !s.answered() {
		s.reading.Store(true)
		b, err := s.raw.Next()
		s.reading.Store(false)
		switch {
		case err == io.EOF && !s.shut.Load() && ClosedByReset(s.conn): // the kernel has told fromStream of the reset
			return errReset
		case err == io.EOF && refused == nil:
			s.leaves()
			s.closed.Store(true)
			return s.str.Close()
		case err == io.EOF: // str's other direction says how it ended
			return nil
		case err != nil:
			return err
		case refused == nil:
			s.asks.Store(true)
			if s.timing != nil {
				s.timing.asks(s.raw.conn)
			}
			full := len(b) == largeBuffer // so more has probably arrived
			if full {
				s.announce(true)
			}
			refused = s.pass(s.str, b, &s.count.ToStream)
			if !full {
				s.announce(false)
			}
		}
	}
	if s.crowded == nil {
		s.settle()
	}
	return refused // RFC 9114, section 4.4: a relay that stops reading ends the tunnel
}

// announce tells str whether more will be written at once, for which a packet that is not full can wait. A
// stream with a limited rate has to wait too long for that.
func (s *splice) announce(more bool) {
	if str, ok := s.str.(interface{ QUICStream() *quic.Stream }); ok && more != s.more {
		s.more = more
		str.QUICStream().HoldBack(more)
	}
}

// leaves records that the client ends its direction.
func (s *splice) leaves() {
	if s.timing != nil {
		s.mu.Lock()
		s.timing.left = time.Now()
		s.mu.Unlock()
	}
}

// answered reports whether str has ended and all that it carried has arrived at conn's peer.
func (s *splice) answered() bool { return s.half() && queued(s.conn) == 0 }

// queued returns how much of what was written to conn its peer has not acknowledged, in bytes; 0 if conn is closed.
func queued(conn syscall.Conn) (n int) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	return n
}

// Drain waits until what came before a reset of the other side has arrived at conn's peer, as long as it arrives: a reset of conn
// throws away what the kernel still holds.
func Drain(conn syscall.Conn) {
	before := -1
	for still := time.Duration(0); still < watchInterval; still += drainInterval {
		left := queued(conn)
		if left == 0 {
			return
		}
		if left != before {
			before, still = left, 0
		}
		time.Sleep(drainInterval)
	}
}

// settle waits until what a client has sent before its reset has arrived at the target, as long as it arrives: the relay stops reading at
// once, and what it has read before may still be on its way.
func (s *splice) settle() {
	before := s.moved.Load()
	for still := time.Duration(0); still < watchInterval && !s.half(); still += drainInterval {
		time.Sleep(drainInterval)
		if moved := s.moved.Load(); moved != before {
			before, still = moved, 0
		}
	}
	Drain(s.conn)
}

// half reports whether one direction has ended.
func (s *splice) half() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended > 0
}

// fromStream copies str to conn.
func (s *splice) fromStream() error {
	refused, err := s.copyStream()
	switch {
	case err != nil:
		Drain(s.conn)
		return err
	case refused: // what conn sent before may still be unread: toStream reads it, and then the error
		s.failed.Store(true)
		s.str.CancelRead(quic.StreamErrorCode(http3.ErrCodeConnectError))
		return nil
	}
	s.shut.Store(true)
	return s.conn.CloseWrite()
}

// copyStream returns nil at the end of str, or if conn refuses the data.
func (s *splice) copyStream() (refused bool, err error) {
	small := make([]byte, smallBuffer)
	buf := small
	var large *[largeBuffer]byte
	defer func() {
		if large != nil {
			largeBuffers.Put(large)
		}
	}()
	for {
		n, err := s.str.Read(buf)
		if n > 0 {
			// Before the write, because the client may answer at once.
			s.asks.Store(false)
			if s.timing != nil {
				s.timing.hears(n)
			}
			s.writing.Store(true)
			err := s.pass(s.raw, buf[:n], &s.count.FromStream)
			s.writing.Store(false)
			if err != nil {
				return true, nil
			}
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		switch {
		case n == len(buf) && large == nil:
			large = largeBuffers.Get().(*[largeBuffer]byte)
			buf = large[:]
		case n < smallBuffer && large != nil:
			largeBuffers.Put(large)
			large, buf = nil, small
		}
	}
}

// pass writes b to dst and counts it.
func (s *splice) pass(dst io.Writer, b []byte, count *Counter) error {
	n, err := dst.Write(b)
	count.Add(uint64(n))
	s.moved.Add(1)
	return err
}

// end records that a direction has ended. An error ends the other direction, too.
func (s *splice) end(err error) {
	if err != nil {
		s.abort(err)
	}
	s.mu.Lock()
	s.ended++
	s.mu.Unlock()
}

// abort resets both sides. RFC 9114, section 4.4, requires that a failure of one side is
// passed on to the other one, with a RST if TCP permits it.
func (s *splice) abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.ended == 2 {
		return
	}
	s.err = err
	if s.timing != nil {
		s.timing.ends(s.raw.conn)
	}
	Reset(s.conn)
	s.str.CancelRead(quic.StreamErrorCode(http3.ErrCodeConnectError))
	if s.closed.Load() && err != errIdle {
		return // what was written still arrives
	}
	if str := s.quic(); str != nil {
		str.SetReliableBoundary()
	}
	s.str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeConnectError))
}

// quic returns the QUIC stream of str, or nil.
func (s *splice) quic() *quic.Stream {
	str := s.str
	if limited, ok := str.(*rated); ok {
		str = limited.DatagramStream
	}
	if str, ok := str.(interface{ QUICStream() *quic.Stream }); ok {
		return str.QUICStream()
	}
	return nil
}

// over returns why str takes no more data, or nil.
func (s *splice) over() error {
	if str := s.quic(); str != nil {
		return context.Cause(str.Context())
	}
	return nil
}

// finish closes both sides after both directions have ended.
func (s *splice) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		if s.timing != nil {
			s.timing.ends(s.raw.conn)
		}
		_ = s.conn.SetLinger(-1)
		s.conn.Close()
	}
	return s.err
}

func (s *splice) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.Stop()
	s.watch = nil
}

func (s *splice) look() {
	if err := s.unhealthy(); err != nil {
		s.abort(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil && s.err == nil {
		s.watch.Reset(watchInterval - watchBeat + system.UntilBeat(watchBeat))
	}
}

func (s *splice) unhealthy() error {
	half, over := s.half(), s.over()
	var stopped *quic.StreamError
	if half && over != nil && !errors.As(over, &stopped) && s.crowded == nil && !s.closed.Load() {
		// The relay is gone. Its client had ended its direction, so nothing is read from str that would tell.
		Drain(s.conn)
		return over
	}
	half = half || over != nil // the peer reads nothing more

	if moved := s.moved.Load(); moved != s.lastMoved {
		s.lastMoved, s.idle = moved, 0
		return nil
	}
	s.idle += watchInterval
	if half && s.idle >= halfClosedTimeout {
		return errIdle
	}
	if s.strayed() {
		return errStrayed
	}
	if s.lost != nil && s.asks.Load() && s.idle >= vainTime && s.lost() {
		return errLost
	}
	if s.crowded != nil && !s.hurried && s.idle >= halfClosedTimeout && s.crowded() {
		s.hurried = true
		_ = s.conn.SetKeepAliveConfig(Hurried)
	}
	if !s.reading.Load() && !s.failed.Load() && !s.shut.Load() && ClosedByReset(s.conn) {
		return errReset
	}
	if str := s.quic(); str != nil && s.writing.Load() && str.Hoards() {
		return errUnread
	}
	return nil
}

// ClosedByReset detects a reset from the kernel's connection state where no read returns it: the stream is blocked, the
// peer's FIN has been read, or a write has returned it. The caller must not have sent a FIN.
func ClosedByReset(conn *net.TCPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	info := tcpInfo(raw)
	return info != nil && info.State == unix.BPF_TCP_CLOSE
}

// ResetAtEnd makes the kernel reset conn if this process is killed. By default the kernel
// sends a FIN, and a truncated transfer would look complete.
func ResetAtEnd(conn *net.TCPConn) { _ = conn.SetLinger(0) }

// LimitUnsent limits conn to MaxUnsent. A listener's limit would not do: connections of one
// for Multipath TCP, which is Go's default, do not inherit it (Linux 6.18).
func LimitUnsent(conn *net.TCPConn) { set(conn, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, MaxUnsent) }

// KeepUrgent leaves urgent data where it is in the stream. By default, the kernel takes a byte out (RFC 6093, section 3.1).
func KeepUrgent(conn *net.TCPConn) { set(conn, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) }

func set(conn syscall.Conn, level, option, value int) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), level, option, value) })
	}
}

// Reset closes conn with a RST.
func Reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}

// Cancel resets both directions of str.
func Cancel(str Stream, code http3.ErrCode) {
	str.CancelRead(quic.StreamErrorCode(code))
	str.CancelWrite(quic.StreamErrorCode(code))
}

// When TCP keep-alive takes a peer for dead.
var (
	// Patient waits for as long as NAT keeps a connection without packets (OpenWrt's nf_conntrack_tcp_timeout_established): a
	// laptop that was closed, or a phone that was away, would find its connections alive without a relay. More than 5 min
	// between two probes would be too long: after a few unanswered ones, conntrack forgets what the relay's rules translate
	// (nf_conntrack_tcp_timeout_max_retrans).
	Patient = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Minute, Interval: 4 * time.Minute, Count: 30}
	// Sparing is Patient for phones, which a probe wakes.
	Sparing = net.KeepAliveConfig{Enable: true, Idle: time.Hour, Interval: 4 * time.Minute, Count: 15}
	// Hurried is for places where there is no room for the dead.
	Hurried = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Minute, Interval: time.Minute, Count: 3}
)
