// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Timing measures how long a client waits for what it is sent by one splice.
//
// It reads no clock for a read or write, as MIPS has none without a system call: a hand, which somebody else moves a
// few times a second, says whether a pause may have begun, and the kernel when it last sent
// something (TCP_INFO, in steps of its timer). So shorter pauses than the hand's steps mostly count as waiting.
type Timing struct {
	clock *atomic.Uint32

	accepted time.Time
	asked    time.Time     // the client's first byte came
	idle     time.Duration // of the client, with all that it had asked for
	waits    func(from, to time.Time)
	since    time.Time // that the client waits; zero: from the beginning

	heard atomic.Uint32 // hand, when something came for the client; 0: nothing since it has asked
	first time.Time     // of that
	bytes uint64        // of that
	last  time.Time     // of that, as the kernel sent it; zero: unknown

	counts Counts
}

// Counts are what the kernel has counted of a client's connection: the bytes of its streams, and
// the packets that bore them.
type Counts struct {
	ClientBytes, ServerBytes     uint64 // from the client, and for it
	ClientPackets, ServerPackets uint32
}

// NewTiming returns one for a connection that was accepted at a time. It calls waits with each
// time that the client has waited, in order; together they are what Result has.
func NewTiming(hand *atomic.Uint32, accepted time.Time, waits func(from, to time.Time)) *Timing {
	return &Timing{clock: hand, accepted: accepted, waits: waits}
}

// hand is never 0, but for one step in decades.
func (t *Timing) hand() uint32 { return t.clock.Load() + 1 }

// AskedAt notes that the client had sent its first byte before the splice.
func (t *Timing) AskedAt(at time.Time) {
	if t.asked.IsZero() {
		t.asked = at
	}
}

// Asked says whether the client has sent anything.
func (t *Timing) Asked() bool { return !t.asked.IsZero() }

// asks notes that something has come from the client.
func (t *Timing) asks(conn syscall.RawConn) {
	if t.asked.IsZero() {
		t.asked = time.Now()
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

// hears notes that n bytes have come for the client.
func (t *Timing) hears(n int) {
	t.bytes += uint64(n)
	if hand := t.hand(); t.heard.Load() != hand {
		if t.first.IsZero() {
			t.first = time.Now()
		}
		t.heard.Store(hand)
	}
}

// waited tells of a time that ends then.
func (t *Timing) waited(to time.Time) {
	from := t.since
	if from.IsZero() {
		from = t.begin()
	}
	if to.After(from) {
		t.waits(from, to)
	}
}

// ends notes when the last byte left, and what was counted, while the kernel still knows.
func (t *Timing) ends(conn syscall.RawConn) {
	info := tcpInfo(conn)
	if info == nil || !t.last.IsZero() {
		return
	}
	t.last = time.Now().Add(-sinceSent(info))
	t.counts = Counts{info.Bytes_received, info.Bytes_acked, info.Data_segs_in, info.Data_segs_out}
}

// done tells of the last time that the client waited, after all.
func (t *Timing) done() {
	if t.bytes > 0 {
		t.waited(t.last)
	}
}

// begin is when the client began to wait.
func (t *Timing) begin() time.Time {
	if t.asked.After(t.accepted) && t.asked.Before(t.first) { // else the server spoke first
		return t.asked
	}
	return t.accepted
}

// Result is how many bytes the client got, after which time the first of them, and how long it
// waited for all, without its own pauses. ok is false if the times are not known. It is for after the splice.
func (t *Timing) Result() (bytes uint64, first, wait time.Duration, ok bool) {
	if t.bytes == 0 {
		return 0, 0, 0, true
	}
	begin := t.begin()
	first = t.first.Sub(begin)
	return t.bytes, first, max(t.last.Sub(begin)-t.idle, first), !t.last.IsZero()
}

// Counts are those of the whole connection. They are for after the splice.
func (t *Timing) Counts() Counts { return t.counts }

// tcpInfo is what the kernel tells of a TCP connection, or nil.
func tcpInfo(conn syscall.RawConn) (info *unix.TCPInfo) {
	_ = conn.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = got
		}
	})
	return info
}

// sinceSent is how long ago the kernel sent data.
func sinceSent(info *unix.TCPInfo) time.Duration {
	return time.Duration(info.Last_data_sent) * time.Millisecond
}
