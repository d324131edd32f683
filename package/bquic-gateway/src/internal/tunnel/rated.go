// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"
)

const (
	// rateChunk is how many bytes pass at a time. A bucket holds at least this much.
	rateChunk = 16 << 10
	// rateTurn is how many of them are taken from the bucket at a time, about a packet: a small answer waits for one turn of each
	// other client that is waiting.
	rateTurn = 1500
	// rateBurst is the size of a bucket, as the time in which the rate fills it.
	rateBurst = 50 * time.Millisecond
)

// limits are a peer's rate limits in each direction.
type limits struct {
	up, down *rate.Limiter

	mu      sync.Mutex
	clients map[string]*turns // by the relay's address and its number for the client
}

// turns let one tunnel of a client wait for the bucket at a time. As the bucket serves those first that wait for longest, clients
// share it equally, however many tunnels they have, and so do the tunnels of a client.
type turns struct {
	up, down chan struct{}
	tunnels  int
}

// newLimits returns limits of bytes per second, nil for 0.
func newLimits(bytes float64) *limits {
	if bytes == 0 {
		return nil
	}
	bucket := max(rateChunk, int(bytes*rateBurst.Seconds()))
	return &limits{up: rate.NewLimiter(rate.Limit(bytes), bucket), down: rate.NewLimiter(rate.Limit(bytes), bucket), clients: make(map[string]*turns)}
}

// enter returns the turns of a client, for one more tunnel; leave records the tunnel's end. A tunnel without a client ("") counts as one.
func (l *limits) enter(client string) *turns {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.clients[client]
	if t == nil {
		t = &turns{up: make(chan struct{}, 1), down: make(chan struct{}, 1)}
		if client != "" {
			l.clients[client] = t
		}
	}
	t.tunnels++
	return t
}

func (l *limits) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.clients[client]; t != nil {
		if t.tunnels--; t.tunnels == 0 {
			delete(l.clients, client)
		}
	}
}

// A rated stream is limited to a rate. Above it, data stays unread, so that flow
// control slows the sender down; datagrams are dropped when their queues are full.
type rated struct {
	DatagramStream
	up, down direction
}

// A direction of a rated stream ends apart from the other one: a server that reads no more may still have an answer on its way.
type direction struct {
	bucket *rate.Limiter
	turn   chan struct{}
	ctx    context.Context
	end    context.CancelFunc
}

func newRated(ctx context.Context, str DatagramStream, l *limits, t *turns) *rated {
	s := &rated{str, direction{bucket: l.up, turn: t.up}, direction{bucket: l.down, turn: t.down}}
	s.up.ctx, s.up.end = context.WithCancel(ctx)
	s.down.ctx, s.down.end = context.WithCancel(ctx)
	return s
}

// wait takes n bytes from the bucket.
func (d *direction) wait(n int) error {
	for n > 0 {
		select {
		case d.turn <- struct{}{}:
		case <-d.ctx.Done():
			return d.ctx.Err()
		}
		some := min(n, rateTurn)
		err := d.bucket.WaitN(d.ctx, some)
		<-d.turn
		if err != nil {
			return err
		}
		n -= some
	}
	return nil
}

func (s *rated) Read(b []byte) (int, error) {
	n, err := s.DatagramStream.Read(b)
	if werr := s.up.wait(n); werr != nil {
		return 0, werr
	}
	return n, err
}

func (s *rated) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		chunk := b[:min(len(b), rateChunk)]
		if err = s.down.wait(len(chunk)); err == nil {
			var n int
			n, err = s.DatagramStream.Write(chunk)
			written += n
		}
		b = b[len(chunk):]
	}
	return written, err
}

func (s *rated) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := s.DatagramStream.ReceiveDatagram(ctx)
	if err == nil {
		err = s.up.wait(len(b))
	}
	return b, err
}

// SendDatagram takes the datagram from the bucket once it is sent: one that is too large is written to the stream instead.
func (s *rated) SendDatagram(b []byte) error {
	if err := s.DatagramStream.SendDatagram(b); err != nil {
		return err
	}
	return s.down.wait(len(b))
}

func (s *rated) CancelRead(code quic.StreamErrorCode) {
	s.up.end()
	s.DatagramStream.CancelRead(code)
}

func (s *rated) CancelWrite(code quic.StreamErrorCode) {
	s.down.end()
	s.DatagramStream.CancelWrite(code)
}
