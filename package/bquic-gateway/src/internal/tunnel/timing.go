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

	heard atomic.Uint32 // hand, when something came for the client; 0: nothing since it has asked
	first time.Time     // of that
	bytes uint64        // of that
	last  time.Time     // of that, as the kernel sent it; zero: unknown
}

// NewTiming returns one for a connection that was accepted at a time.
func NewTiming(hand *atomic.Uint32, accepted time.Time) *Timing {
	return &Timing{clock: hand, accepted: accepted}
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
		if since, ok := sinceSent(conn); ok {
			t.idle += since
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

// ends notes when the last byte left, while the kernel still knows.
func (t *Timing) ends(conn syscall.RawConn) {
	if since, ok := sinceSent(conn); ok && t.last.IsZero() {
		t.last = time.Now().Add(-since)
	}
}

// Result is how many bytes the client got, after which time the first of them, and how long it
// waited for all, without its own pauses. ok is false if the times are not known. It is for after the splice.
func (t *Timing) Result() (bytes uint64, first, wait time.Duration, ok bool) {
	if t.bytes == 0 {
		return 0, 0, 0, true
	}
	begin := t.accepted
	if t.asked.After(begin) && t.asked.Before(t.first) { // else the server spoke first
		begin = t.asked
	}
	first = t.first.Sub(begin)
	return t.bytes, first, max(t.last.Sub(begin)-t.idle, first), !t.last.IsZero()
}

// sinceSent is how long ago the kernel sent data on a TCP connection.
func sinceSent(conn syscall.RawConn) (since time.Duration, ok bool) {
	_ = conn.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if ok = err == nil; ok {
			since = time.Duration(info.Last_data_sent) * time.Millisecond
		}
	})
	return since, ok
}
