// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// A tcpStream is the Stream of a direct connection.
type tcpStream struct{ *net.TCPConn }

func (t tcpStream) Close() error                     { return t.CloseWrite() }
func (t tcpStream) CancelRead(quic.StreamErrorCode)  { Reset(t.TCPConn) }
func (t tcpStream) CancelWrite(quic.StreamErrorCode) { Reset(t.TCPConn) }

// timed lets a client and a server talk through a splice, and returns the Timing. moveHand
// advances the hand.
func timed(t *testing.T, accepted time.Time, talk func(client, server *net.TCPConn, moveHand func())) *Timing {
	t.Helper()
	client, near := tcpEnds(t)
	far, server := tcpEnds(t)
	var hand atomic.Uint32
	var told time.Duration
	var last time.Time
	timing := NewTiming(&hand, accepted, func(from, to time.Time) {
		if from.Before(last) || !from.Before(to) {
			t.Errorf("waited from %v to %v, after %v", from, to, last)
		}
		told += to.Sub(from)
		last = to
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = SpliceTimed(near, nil, tcpStream{far}, new(Bytes), timing, func() bool { return false }, nil)
	}()
	talk(client, server, func() { hand.Add(1) })
	<-done
	// The two clocks are read one after the other, so they differ a little.
	if _, first, wait, _ := timing.Result(); told > wait+step || told < wait-step && wait > first {
		t.Errorf("was told of %v, and waited %v", told, wait)
	}
	return timing
}

func say(t *testing.T, from, to *net.TCPConn, n int) {
	t.Helper()
	if _, err := from.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

const (
	pause = 300 * time.Millisecond
	step  = 20 * time.Millisecond // the kernel counts in steps of up to 10 ms
)

// TestTiming checks that the client's pauses do not count as waiting, and the server's do.
func TestTiming(t *testing.T) {
	begin := time.Now()
	timing := timed(t, begin, func(client, server *net.TCPConn, moveHand func()) {
		time.Sleep(pause) // the client has not asked yet
		say(t, client, server, 100)
		time.Sleep(pause) // the client waits
		say(t, server, client, 1000)
		moveHand()
		time.Sleep(2 * pause) // the client reads
		say(t, client, server, 100)
		moveHand()
		time.Sleep(pause)
		say(t, client, server, 100) // the client asks for more, and waits for both
		moveHand()
		time.Sleep(pause)
		say(t, server, client, 5000)
		moveHand()
		time.Sleep(pause) // the client is done
		client.Close()
		server.Close()
	})
	all := time.Since(begin)
	c := timing.Counts()
	// Packets' bytes are counted when they are acknowledged. A FIN counts as one byte.
	if c.ClientBytes != 300 && c.ClientBytes != 301 || c.ServerBytes < 6000 || c.ServerBytes > 6001 || c.ClientPackets != 3 || c.ServerPackets < 2 {
		t.Errorf("counts %+v", c)
	}
	bytes, first, wait, ok := timing.Result()
	if !ok || bytes != 6000 || !timing.Asked() {
		t.Fatalf("%d bytes, %v", bytes, ok)
	}
	if first < pause-step || wait < first+2*pause-step {
		t.Errorf("first byte after %v, waited %v: less than the server took", first, wait)
	}
	if most := all - 4*pause + 2*step; wait > most {
		t.Errorf("waited %v, of %v at most", wait, most)
	}
}

// TestTimingServerFirst checks that if the server sends first, the time counts from the beginning.
func TestTimingServerFirst(t *testing.T) {
	accepted := time.Now().Add(-time.Minute)
	timing := timed(t, accepted, func(client, server *net.TCPConn, _ func()) {
		say(t, server, client, 10)
		say(t, client, server, 10)
		client.Close()
		server.Close()
	})
	if _, first, wait, ok := timing.Result(); !ok || first < time.Minute || wait < first {
		t.Errorf("%v, %v, %v", first, wait, ok)
	}
}

// TestTimingReset checks that data before a reset counts. Without data there is no time.
func TestTimingReset(t *testing.T) {
	timing := timed(t, time.Now(), func(client, server *net.TCPConn, _ func()) {
		say(t, client, server, 10)
		say(t, server, client, 10)
		Reset(server)
	})
	if bytes, _, _, ok := timing.Result(); !ok || bytes != 10 {
		t.Errorf("%d, %v", bytes, ok)
	}
	timing = timed(t, time.Now(), func(client, server *net.TCPConn, _ func()) {
		say(t, client, server, 10)
		Reset(server)
	})
	if bytes, first, wait, ok := timing.Result(); !ok || bytes != 0 || first != 0 || wait != 0 || !timing.Asked() {
		t.Errorf("%d, %v, %v, %v", bytes, first, wait, ok)
	}
}

// TestTimingInVain checks that a client that waits for an answer until it leaves, or until the connection breaks, has waited for
// so long. What it sends as it leaves is no question.
func TestTimingInVain(t *testing.T) {
	for name, leave := range map[string]func(client, server *net.TCPConn){
		"closes": func(client, server *net.TCPConn) { client.Close(); time.Sleep(pause); server.Close() },
		"resets": func(client, _ *net.TCPConn) { Reset(client) },
		"breaks": func(_, server *net.TCPConn) { Reset(server) },
	} {
		for _, asks := range []bool{true, false} {
			var timing *Timing
			for stalled := true; stalled; { // on a busy machine, a client may wait while it leaves
				var leaves time.Time
				timing = timed(t, time.Now(), func(client, server *net.TCPConn, moveHand func()) {
					say(t, client, server, 100)
					say(t, server, client, 1000)
					moveHand()
					if asks {
						say(t, client, server, 100)
					}
					time.Sleep(2 * pause)
					leaves = time.Now()
					if moveHand(); !asks {
						say(t, client, server, 100)
					}
					leave(client, server)
				})
				stalled = time.Since(leaves) >= inVain
			}
			_, first, wait, ok := timing.Result()
			if least := first + 2*pause - step; !ok || asks && wait < least || !asks && wait >= least {
				t.Errorf("%s, asks %v: waited %v, %v", name, asks, wait, ok)
			}
		}
	}
}

// TestTimingIdle checks when a client does not wait: before it asks for anything, and after it has got that.
func TestTimingIdle(t *testing.T) {
	var hand atomic.Uint32
	hand.Store(7)
	timing := NewTiming(&hand, time.Now(), nil)
	for _, step := range []struct {
		name string
		does func()
		want uint32
	}{
		{"connects", func() {}, 0},
		{"asks for nothing", func() { hand.Add(3) }, 3},
		{"asks", func() { timing.AskedAt(time.Now()) }, 0},
		{"waits", func() { hand.Add(3) }, 0},
		{"gets an answer", func() { timing.hears(1) }, 0},
		{"has got all", func() { hand.Add(2) }, 2},
		{"asks again", func() { timing.heard.Store(0) }, 0},
	} {
		if step.does(); timing.Idle() != step.want {
			t.Errorf("a client that %s has waited for nothing for %d steps", step.name, timing.Idle())
		}
	}
}

// TestTimingCosts checks that timing a read or write allocates nothing and makes no system call.
func TestTimingCosts(t *testing.T) {
	var hand atomic.Uint32
	timing := NewTiming(&hand, time.Now(), nil)
	timing.AskedAt(time.Now())
	timing.hears(1)
	if n := testing.AllocsPerRun(1000, func() {
		timing.hears(1000)
		timing.asks(nil) // with nil, a system call would panic
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
