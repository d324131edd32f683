// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"
)

const (
	// rateChunk is how many bytes pass at a time. A bucket holds at least this much.
	rateChunk = 16 << 10
	// rateTurn is how many of them are taken from the bucket at a time, about a packet: a small answer waits for one turn of each
	// tunnel that is waiting.
	rateTurn = 1500
	// rateBurst is the size of a bucket, as the time in which the rate fills it.
	rateBurst = 50 * time.Millisecond
)

// limits are a peer's rate limits in each direction.
type limits struct{ up, down *rate.Limiter }

// newLimits returns limits of bytes per second, nil for 0.
func newLimits(bytes float64) *limits {
	if bytes == 0 {
		return nil
	}
	bucket := max(rateChunk, int(bytes*rateBurst.Seconds()))
	return &limits{rate.NewLimiter(rate.Limit(bytes), bucket), rate.NewLimiter(rate.Limit(bytes), bucket)}
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
	ctx    context.Context
	end    context.CancelFunc
}

func newRated(ctx context.Context, str DatagramStream, l *limits) *rated {
	s := &rated{str, direction{bucket: l.up}, direction{bucket: l.down}}
	s.up.ctx, s.up.end = context.WithCancel(ctx)
	s.down.ctx, s.down.end = context.WithCancel(ctx)
	return s
}

// wait takes n bytes from the bucket.
func (d *direction) wait(n int) error {
	for n > 0 {
		turn := min(n, rateTurn)
		if err := d.bucket.WaitN(d.ctx, turn); err != nil {
			return err
		}
		n -= turn
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

func (s *rated) SendDatagram(b []byte) error {
	if err := s.down.wait(len(b)); err != nil {
		return err
	}
	return s.DatagramStream.SendDatagram(b)
}

func (s *rated) CancelRead(code quic.StreamErrorCode) {
	s.up.end()
	s.DatagramStream.CancelRead(code)
}

func (s *rated) CancelWrite(code quic.StreamErrorCode) {
	s.down.end()
	s.DatagramStream.CancelWrite(code)
}
