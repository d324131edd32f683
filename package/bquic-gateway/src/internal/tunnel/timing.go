// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inVain is after which time without an answer a client has waited in vain.
const inVain = 500 * time.Millisecond

// A Timing measures how long a client waits for the data of one splice.
//
// It does not read the clock on every read or write, because on MIPS that takes a system call. Instead it uses a
// coarse clock, the hand, which its owner advances a few times a second. The hand shows whether a pause may have
// begun. The kernel then says when it last sent data (TCP_INFO, in jiffies). So pauses shorter than the hand's steps
// mostly count as waiting.
type Timing struct {
	clock *atomic.Uint32

	accepted time.Time
	asked    time.Time     // when the client's first byte arrived
	idle     time.Duration // the client's pauses, after it had received all that it asked for
	waits    func(from, to time.Time)
	since    time.Time // start of the current wait; zero: begin()

	opened uint32        // the hand when the client connected
	spoke  atomic.Bool   // asked is set
	heard  atomic.Uint32 // the hand when data last arrived for the client; 0: none since it last asked
	first  time.Time     // when the first byte arrived for the client
	bytes  uint64        // arrived for the client
	left   time.Time     // when the client ended its direction
	last   time.Time     // when the client got the last byte, or gave up; zero: unknown

	counts Counts
}

// Counts are the kernel's counters of a client's connection: the bytes of its two streams, and the packets that
// carried them.
type Counts struct {
	ClientBytes, ServerBytes     uint64 // from the client, and to it
	ClientPackets, ServerPackets uint32
}

// NewTiming returns a Timing for a connection that was accepted at that time. It calls waits with each period in
// which the client has waited, in order. Their sum is Result's wait.
func NewTiming(hand *atomic.Uint32, accepted time.Time, waits func(from, to time.Time)) *Timing {
	return &Timing{clock: hand, opened: hand.Load(), accepted: accepted, waits: waits}
}

// hand returns the coarse time plus 1. It is 0 only for one step in decades.
func (t *Timing) hand() uint32 { return t.clock.Load() + 1 }

// AskedAt records that the client has sent its first byte before the splice.
func (t *Timing) AskedAt(at time.Time) {
	if t.asked.IsZero() {
		t.asked = at
		t.spoke.Store(true)
	}
}

// Asked reports whether the client has sent anything.
func (t *Timing) Asked() bool { return !t.asked.IsZero() }

// asks records that data has arrived from the client.
func (t *Timing) asks(conn syscall.RawConn) {
	if t.asked.IsZero() {
		t.AskedAt(time.Now())
	}
	heard := t.heard.Load()
	if heard == 0 {
		return
	}
	if heard != t.hand() {
		if info := tcpInfo(conn); info != nil {
			now, idle := time.Now(), sinceSent(info)
			t.waited(now.Add(-idle))
			t.since = now
			t.idle += idle
		}
	}
	t.heard.Store(0)
}

// hears records that n bytes have arrived for the client.
func (t *Timing) hears(n int) {
	t.bytes += uint64(n)
	if hand := t.hand(); t.heard.Load() != hand {
		if t.first.IsZero() {
			t.first = time.Now()
		}
		t.heard.Store(hand)
	}
}

// Idle returns for how many steps of the hand nothing has arrived for the client that it had asked for, or, until it asks for something,
// since it connected: browsers open connections that they may never use. It is 0 while the client waits. It can be called at any time.
func (t *Timing) Idle() uint32 {
	switch heard := t.heard.Load(); {
	case heard != 0:
		return t.hand() - heard
	case t.spoke.Load():
		return 0
	}
	return t.clock.Load() - t.opened
}

// waited reports a period of waiting that ended at to.
func (t *Timing) waited(to time.Time) {
	from := t.since
	if from.IsZero() {
		from = t.begin()
	}
	if to.After(from) {
		t.waits(from, to)
	}
}

// ends records when the last byte was sent, and the kernel's counters, before the socket is closed.
func (t *Timing) ends(conn syscall.RawConn) {
	info := tcpInfo(conn)
	if info == nil || !t.last.IsZero() {
		return
	}
	now := time.Now()
	t.last = now.Add(-sinceSent(info))
	if t.heard.Load() == 0 { // nothing has arrived since the client last sent something
		end := now
		if !t.left.IsZero() {
			end = t.left
		}
		// What a client sends as it leaves is no question.
		if asked := now.Add(-time.Duration(info.Last_data_recv) * time.Millisecond); end.Sub(asked) >= inVain {
			t.last = end
		}
	}
	t.counts = Counts{info.Bytes_received, info.Bytes_acked, info.Data_segs_in, info.Data_segs_out}
}

// done reports the last period of waiting, after the splice has ended.
func (t *Timing) done() {
	t.heard.CompareAndSwap(0, t.hand())
	if t.bytes > 0 {
		t.waited(t.last)
	}
}

// begin returns when the client began to wait.
func (t *Timing) begin() time.Time {
	if t.asked.After(t.accepted) && t.asked.Before(t.first) { // else the server sent first
		return t.asked
	}
	return t.accepted
}

// Result returns how many bytes were sent to the client, after which time the first of them, and how long the client
// waited for all of them, without its own pauses. ok is false if the times are not known. Call it after the splice.
func (t *Timing) Result() (bytes uint64, first, wait time.Duration, ok bool) {
	if t.bytes == 0 {
		return 0, 0, 0, true
	}
	begin := t.begin()
	first = t.first.Sub(begin)
	return t.bytes, first, max(t.last.Sub(begin)-t.idle, first), !t.last.IsZero()
}

// Counts returns the counters of the whole connection. Call it after the splice.
func (t *Timing) Counts() Counts { return t.counts }

// tcpInfo returns the kernel's TCP_INFO of a connection, or nil.
func tcpInfo(conn syscall.RawConn) (info *unix.TCPInfo) {
	_ = conn.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = got
		}
	})
	return info
}

// sinceSent returns how long ago the kernel last sent data.
func sinceSent(info *unix.TCPInfo) time.Duration {
	return time.Duration(info.Last_data_sent) * time.Millisecond
}
