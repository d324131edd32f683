// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/tunnel"
)

const (
	// answerTimeout is how long a new connection waits for the gateway before
	// it is made directly.
	answerTimeout = 1500 * time.Millisecond
	// creditTimeout is how long it waits when the gateway allows no more streams.
	creditTimeout = 200 * time.Millisecond
	// silenceTimeout is how long nothing may be heard of the gateway, which is
	// asked (keepAlive) every second, until it counts as away.
	silenceTimeout = 2 * time.Second
	watchInterval  = 250 * time.Millisecond

	// With an attempt of at most handshakeTimeout in between, the gateway's
	// return is noticed within 10 s.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// A session is a QUIC connection to the gateway.
type session struct {
	conn  *quic.Conn
	http  *http3.ClientConn
	since time.Time

	streams atomic.Int64 // open, and being opened
	retired atomic.Bool  // takes no more streams; closed when the last one ends
	silent  atomic.Bool  // for now
	probing atomic.Bool

	loseOnce sync.Once
	lost     chan struct{} // closed when the session is to be replaced
	reason   atomic.Pointer[string]

	// Of the watch.
	received uint64 // packets
	heard    time.Time
}

func (s *session) healthy() bool {
	return !s.retired.Load() && !s.silent.Load() && s.reason.Load() == nil && s.conn.Context().Err() == nil
}

// lose says that the session is of no more use for new connections.
func (s *session) lose(reason string) {
	s.loseOnce.Do(func() {
		s.reason.Store(&reason)
		close(s.lost)
	})
}

// watch looks whether the gateway is silent.
func (s *session) watch(now time.Time) {
	stats := s.conn.ConnectionStats()
	if stats.PacketsReceived != s.received {
		s.received, s.heard = stats.PacketsReceived, now
		s.silent.Store(false)
		return
	}
	// RFC 9002, section 6.2.1: what quic-go spaces its keep-alives by on long paths.
	pto := stats.SmoothedRTT + 4*stats.MeanDeviation
	if now.Sub(s.heard) >= max(silenceTimeout, 3*pto) {
		s.silent.Store(true)
	}
}

// release ends a use of the session that began with s.streams.Add(1).
func (s *session) release() {
	if s.streams.Add(-1) == 0 && s.retired.Load() {
		s.close()
	}
}

func (s *session) retire() {
	s.retired.Store(true)
	if s.streams.Load() == 0 {
		s.close()
	}
}

func (s *session) close() {
	s.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
}

// request sends CONNECT. The stream's deadline is that of the answer.
func (s *session) request(ctx context.Context, target, token string) (*http3.RequestStream, error) {
	ctx, cancel := context.WithTimeout(ctx, creditTimeout)
	defer cancel()
	str, err := s.http.OpenRequestStream(ctx)
	if err != nil {
		if ctx.Err() == nil { // it is going away, or gone
			s.lose(why(err))
		}
		return nil, err
	}
	str.SetDeadline(time.Now().Add(answerTimeout))
	err = str.SendRequestHeader(&http.Request{
		Method: http.MethodConnect,
		Host:   target,
		URL:    &url.URL{Host: target},
		Header: http.Header{"Proxy-Authorization": {"Bearer " + token}, "User-Agent": nil},
	})
	if err != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		return nil, err
	}
	return str, nil
}

// answer returns nil when the tunnel is open, or why it is not: a
// *tunnel.Refusal or a failure of the stream.
func answer(str *http3.RequestStream) error {
	res, err := str.ReadResponse()
	if err == nil && res.StatusCode/100 != 2 {
		err = tunnel.ReadRefusal(res)
	}
	if err != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		return err
	}
	return str.SetDeadline(time.Time{})
}

// probe asks whether the gateway would carry connections for us.
func (s *session) probe(ctx context.Context, token string) error {
	s.streams.Add(1)
	defer s.release()
	str, err := s.request(ctx, tunnel.ProbeTarget, token)
	if err != nil {
		return err
	}
	err = answer(str)
	var refusal *tunnel.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Type == tunnel.TargetProhibited:
		return nil
	case refusal != nil:
		return fmt.Errorf("the gateway refuses: %s", refusal.Detail)
	case err == nil:
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		return errors.New("the gateway is not a bquic gateway")
	}
	return err
}

// dial connects to the gateway. Where its name has several addresses, each
// attempt takes the next one.
func (r *Relay) dial(ctx context.Context, attempt int) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout+answerTimeout)
	defer cancel()
	addrs, err := r.resolve(ctx)
	if err != nil {
		return nil, err
	}
	udp, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	transport := &quic.Transport{Conn: tunnel.PacketConn{UDPConn: udp}}
	end := func() {
		transport.Close()
		udp.Close()
	}
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addrs[attempt%len(addrs)]), r.tls, r.quic)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(conn.Context(), end)
	s := &session{
		conn:  conn,
		http:  (&http3.Transport{DisableCompression: true}).NewClientConn(conn),
		since: time.Now(),
		heard: time.Now(),
		lost:  make(chan struct{}),
	}
	if err := s.probe(ctx, r.cfg.Token); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// resolve looks up the gateway, and notes its addresses, which are never taken.
func (r *Relay) resolve(ctx context.Context) ([]netip.AddrPort, error) {
	host, port, _ := net.SplitHostPort(r.cfg.Gateway)
	n, _ := strconv.ParseUint(port, 10, 16)
	var ips []netip.Addr
	if addr, err := netip.ParseAddr(host); err == nil {
		ips = []netip.Addr{addr}
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	var prefixes []netip.Prefix
	for _, addr := range ips {
		addrs = append(addrs, netip.AddrPortFrom(addr.Unmap(), uint16(n)))
		addr = addr.Unmap().WithZone("")
		prefixes = append(prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	r.gateway.Store(&prefixes)
	return addrs, nil
}

// maintain keeps a session in a slot until ctx ends.
func (r *Relay) maintain(ctx context.Context, slot *atomic.Pointer[session]) {
	var drained *session // replaced, with connections that are still carried
	defer func() {
		for _, s := range []*session{slot.Load(), drained} {
			if s != nil {
				s.close()
			}
		}
	}()
	backoff := minBackoff
	for attempt := 0; ctx.Err() == nil; attempt++ {
		s, err := r.dial(ctx, attempt)
		if err != nil {
			r.away(why(err))
		} else {
			old := slot.Load()
			if old != nil && old.healthy() { // it was silent for a while only
				s.close()
				s = old
			} else {
				slot.Store(s)
				if drained != nil {
					drained.close()
				}
				if drained = old; old != nil {
					old.retire()
					// A restarted gateway answers this with a stateless reset, which
					// ends the old one at once; it ignores packets as small as a PING.
					go old.probe(ctx, r.cfg.Token)
				}
			}
			r.kick()
			s.await(ctx)
			if ctx.Err() != nil {
				return
			}
			r.away(s.ending())
			if time.Since(s.since) > maxBackoff {
				backoff = minBackoff
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff*3/4 + rand.N(backoff/2)):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// await returns when the session should be replaced.
func (s *session) await(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for !s.silent.Load() {
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
			return
		case <-s.conn.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// ending says why await returned.
func (s *session) ending() string {
	if err := context.Cause(s.conn.Context()); err != nil {
		return why(err)
	}
	if reason := s.reason.Load(); reason != nil {
		return *reason
	}
	return silence
}

const silence = "nothing heard of the gateway"

// why makes one reason of all ways to hear nothing.
func why(err error) string {
	var t net.Error
	if errors.As(err, &t) && t.Timeout() {
		return silence
	}
	return err.Error()
}
