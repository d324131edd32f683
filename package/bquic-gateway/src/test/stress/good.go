// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	// goodRate is the rate of the good client's link, Mbit/s: more than 802.11n with two
	// streams carries. Without a link, the processors would be the bottleneck, and the
	// processor time of the attacker's own process would count as harm.
	goodRate = 400

	// stallTime is how long the good client waits for an answer, or for more of it.
	stallTime = 20 * time.Second
	// reconnectTime is how often it, or another client, connects anew beside the download.
	reconnectTime = 500 * time.Millisecond
)

// goodClient downloads all the time: one file per connection, over one connection after the
// other.
type goodClient struct {
	bytes, errors atomic.Int64
	last          atomic.Pointer[error]
}

func (g *goodClient) run(ctx context.Context) {
	buf := make([]byte, 256<<10)
	for ctx.Err() == nil {
		if err := g.download(ctx, buf); err != nil && ctx.Err() == nil {
			g.errors.Add(1)
			g.last.Store(&err)
			pause(ctx, 50*time.Millisecond)
		}
	}
}

func (g *goodClient) download(ctx context.Context, buf []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(stallTime, cancel)
	defer stalled.Stop()
	res, end, err := get(ctx, goodAddress, "/file")
	if err != nil {
		return err
	}
	defer end()
	for due := time.Now(); ; {
		n, err := res.Body.Read(buf)
		stalled.Reset(stallTime)
		g.bytes.Add(int64(n))
		if idle := time.Now().Add(-10 * time.Millisecond); due.Before(idle) {
			due = idle // unused capacity of the link is lost
		}
		due = due.Add(time.Duration(n) * 8 * time.Second / (goodRate * 1e6))
		pause(ctx, time.Until(due))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("body: %w", err)
		}
	}
}

// get requests a file over a new connection. end must be called after reading it.
func get(ctx context.Context, from net.IP, path string) (_ *http.Response, end func(), err error) {
	conn, end, err := dialQUIC(ctx, from, &quic.Config{HandshakeIdleTimeout: stallTime, MaxIdleTimeout: stallTime})
	if err != nil {
		return nil, nil, fmt.Errorf("handshake: %w", err)
	}
	closeSocket := end
	end = func() {
		_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
		closeSocket()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+siteHost+path, nil)
	if err == nil {
		var res *http.Response
		if res, err = (&http3.Transport{DisableCompression: true}).NewClientConn(conn).RoundTrip(req); err == nil {
			if res.StatusCode == http.StatusOK {
				return res, end, nil
			}
			err = fmt.Errorf("status %d", res.StatusCode)
		}
	}
	end()
	return nil, nil, fmt.Errorf("request: %w", err)
}

// reconnect connects anew and requests a page until ctx ends, alternately from the good
// client's address and another one. It returns how often, and the first error.
func reconnect(ctx context.Context) (n int, err error) {
	for ctx.Err() == nil {
		from := []net.IP{goodAddress, otherAddress}[n%2]
		// Not ctx: an attempt that has begun may finish.
		trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), stallTime)
		res, end, err := get(trying, from, "/page")
		if err != nil {
			cancel()
			return n, fmt.Errorf("a new connection from %s: %w", from, err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		end()
		cancel()
		if err != nil {
			return n, fmt.Errorf("a page for %s: %w", from, err)
		}
		n++
		pause(ctx, reconnectTime)
	}
	return n, nil
}

// A measure sums the good client's throughput over several intervals.
type measure struct {
	bytes int64
	time  time.Duration
}

// during measures for d, or until the channel until is closed.
func (m *measure) during(ctx context.Context, g *goodClient, d time.Duration, until <-chan struct{}) {
	start, before := time.Now(), g.bytes.Load()
	select {
	case <-ctx.Done():
	case <-until:
	case <-time.After(d):
	}
	m.time += time.Since(start)
	m.bytes += g.bytes.Load() - before
}

func (m *measure) mbps() float64 { return float64(m.bytes) * 8 / max(m.time.Seconds(), 1e-3) / 1e6 }
