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
	"slices"
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
	// While connections are carried, the gateway is asked for a sign when nothing
	// was heard of it for askInterval, and counts as away after silenceTimeout
	// without one. An idle relay leaves the radios alone.
	askInterval    = time.Second
	silenceTimeout = time.Second
	watchInterval  = 250 * time.Millisecond

	// headStart is how long the gateways after it wait for the better one.
	headStart = 500 * time.Millisecond
	// betterInterval is how often a relay looks whether a better gateway is back.
	betterInterval = 20 * time.Second

	// With an attempt of at most handshakeTimeout in between, the gateway's
	// return is noticed within 10 s.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// A session is a QUIC connection to the gateway.
type session struct {
	settings *settings // that it was made with
	gateway  string    // host:port
	rank     int       // of the gateway in the settings
	conn     *quic.Conn
	http     *http3.ClientConn
	since    time.Time

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
	asked    time.Time // since when there is no answer; zero: nothing was asked
	again    time.Time // when it was asked last
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

// watch asks the gateway for a sign, and looks whether it is silent.
func (s *session) watch(now time.Time) {
	stats := s.conn.ConnectionStats()
	if stats.PacketsReceived != s.received {
		s.received, s.heard, s.asked = stats.PacketsReceived, now, time.Time{}
		s.silent.Store(false)
		return
	}
	busy := s.streams.Load() > 0
	if !busy && s.asked.IsZero() && !s.silent.Load() || now.Sub(s.heard) < askInterval {
		return
	}
	if s.asked.IsZero() {
		s.asked = now
	}
	if now.Sub(s.again) >= askInterval {
		s.again = now
		s.conn.Ping()
	}
	// RFC 9002, section 6.2.1: what quic-go spaces its repetitions by on long paths.
	pto := stats.SmoothedRTT + 4*stats.MeanDeviation
	unanswered := now.Sub(s.asked)
	if unanswered >= max(silenceTimeout, 3*pto) {
		s.silent.Store(true)
	}
	if busy && unanswered >= closeTimeout {
		s.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), silence)
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
func (s *session) request(ctx context.Context, target string) (*http3.RequestStream, error) {
	return s.send(ctx, &http.Request{
		Method: http.MethodConnect,
		Host:   target,
		URL:    &url.URL{Host: target},
		Header: http.Header{},
	})
}

// send sends a request for a tunnel.
func (s *session) send(ctx context.Context, r *http.Request) (*http3.RequestStream, error) {
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
	r.Header["Proxy-Authorization"] = []string{"Bearer " + s.settings.Token}
	r.Header["User-Agent"] = nil
	if err := str.SendRequestHeader(r); err != nil {
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
func (s *session) probe(ctx context.Context) error {
	s.streams.Add(1)
	defer s.release()
	str, err := s.request(ctx, tunnel.ProbeTarget)
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

// dialFirst connects to the most preferred of the first n gateways that answers:
// each has a head start of headStart before the next one is tried, too.
func (r *Relay) dialFirst(ctx context.Context, set *settings, n, attempt int) (*session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		rank int
		s    *session
		err  error
	}
	results := make(chan result)
	started, ended := 0, 0
	start := func() {
		rank := started
		started++
		go func() {
			s, err := r.dial(ctx, set, rank, attempt)
			select {
			case results <- result{rank, s, err}:
			case <-ctx.Done():
				if s != nil {
					s.close()
				}
			}
		}()
	}
	start()
	next := time.NewTicker(headStart)
	defer next.Stop()
	var first error // of the most preferred one
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-next.C:
			if started < n {
				start()
			}
		case res := <-results:
			r.learn(set.Gateways[res.rank], func(k *known) {
				k.problem = ""
				if res.err != nil {
					k.problem = why(res.err)
				}
			})
			if res.err == nil {
				for _, slower := range set.Gateways[:res.rank] { // whatever they would have said
					r.learn(slower, func(k *known) {
						if k.problem == "" {
							k.problem = silence
						}
					})
				}
				return res.s, nil
			}
			if res.rank == 0 {
				first = res.err
			}
			if ended++; ended == n {
				return nil, first
			}
			if started < n {
				start()
			}
		}
	}
}

// dial connects to a gateway. Where its name has several addresses, each
// attempt takes the next one.
func (r *Relay) dial(ctx context.Context, set *settings, rank, attempt int) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout+answerTimeout)
	defer cancel()
	gateway := set.Gateways[rank]
	addrs, err := r.resolve(ctx, gateway)
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
	tlsConfig := set.tls
	if tlsConfig.ServerName == "" {
		tlsConfig = tlsConfig.Clone()
		tlsConfig.ServerName, _, _ = net.SplitHostPort(gateway)
	}
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addrs[attempt%len(addrs)]), tlsConfig, set.quic)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(conn.Context(), end)
	s := &session{
		settings: set,
		gateway:  gateway,
		rank:     rank,
		conn:     conn,
		http:     (&http3.Transport{DisableCompression: true, EnableDatagrams: true}).NewClientConn(conn),
		since:    time.Now(),
		heard:    time.Now(),
		lost:     make(chan struct{}),
	}
	if err := s.probe(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// resolve looks up a gateway, and notes its addresses, which are never taken.
func (r *Relay) resolve(ctx context.Context, gateway string) ([]netip.AddrPort, error) {
	host, port, _ := net.SplitHostPort(gateway)
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
	r.learn(gateway, func(k *known) { k.addresses = prefixes })
	return addrs, nil
}

// maintain keeps a session in a slot until ctx ends.
func (r *Relay) maintain(ctx context.Context, slot *atomic.Pointer[session]) {
	var replaced []*session // with connections that are still carried
	defer func() {
		for _, s := range append(replaced, slot.Load()) {
			if s != nil {
				s.close()
			}
		}
	}()
	backoff := minBackoff
	var next *session
	for attempt := 0; ctx.Err() == nil; attempt++ {
		set := r.now.Load()
		s, err := next, error(nil)
		if next = nil; s == nil {
			s, err = r.dialFirst(ctx, set, len(set.Gateways), attempt)
		}
		if err != nil {
			r.away(why(err))
		} else {
			old := slot.Load()
			if old != nil && old.healthy() && old.settings.sameSession(s.settings) && old.rank <= s.rank { // it was silent for a while only
				s.close()
				s = old
			} else {
				slot.Store(s)
				replaced = slices.DeleteFunc(replaced, func(s *session) bool { return s.conn.Context().Err() != nil })
				if old != nil {
					replaced = append(replaced, old)
					old.retire()
					// A restarted gateway answers this with a stateless reset, which
					// ends the old one at once; it ignores packets as small as a PING.
					go old.probe(ctx)
				}
			}
			r.kick()
			if next = r.await(ctx, s, attempt); next != nil {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if !r.now.Load().sameSession(s.settings) && s.healthy() {
				continue // with the new settings, at once
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

// await returns when the session should be replaced, perhaps with the one to
// replace it: of a gateway that is preferred, and back.
func (r *Relay) await(ctx context.Context, s *session, attempt int) *session {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	better := make(chan *session)
	looked := time.Now()
	for !s.silent.Load() {
		select {
		case <-ctx.Done():
			return nil
		case <-s.lost:
			return nil
		case <-s.conn.Context().Done():
			return nil
		case b := <-better:
			if b != nil {
				return b
			}
			looked = time.Now()
		case <-tick.C:
			if !r.now.Load().sameSession(s.settings) {
				return nil
			}
			if s.rank > 0 && !looked.IsZero() && time.Since(looked) >= betterInterval {
				looked = time.Time{} // until the answer
				go func() {
					b, err := r.dialFirst(ctx, s.settings, s.rank, attempt)
					if err != nil {
						b = nil
					}
					select {
					case better <- b:
					case <-ctx.Done():
						if b != nil {
							b.close()
						}
					}
				}()
			}
		}
	}
	return nil
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
