// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/system"
	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

const (
	// answerTimeout is how long a new connection waits for the gateway's answer before
	// it goes direct.
	answerTimeout = 1500 * time.Millisecond
	// longWait is how long a goroutine must have waited for the processor for this
	// process to count as starved: two time slices of the Go scheduler. Other processes
	// alone seldom cause such a wait, because a relay whose gateway is silent has little to do.
	longWait = 20 * time.Millisecond
	// creditTimeout is how long a new connection waits if the gateway allows no more streams.
	creditTimeout = 200 * time.Millisecond
	// rivals is how many connections, each from its own port, race for a place if a gateway has several places: where flows
	// are spread over several paths, all of them take the slowest one in one case of 16 or fewer.
	rivals = 4
	// fullTime is how long new connections go by other gateways than one that had no place for a connection, or direct.
	fullTime = 10 * time.Second
)

// A session is a QUIC connection to a gateway. It provides an upstream.Session, which
// decides, with a clock and carries out its actions.
type session struct {
	settings *settings // with which it was made
	gateway  string    // host:port
	known    *learned  // of the gateway, by all its sessions
	conn     *quic.Conn
	http     *http3.ClientConn
	since    time.Time
	changed  func()        // called when the state has changed
	woken    chan struct{} // signals the end of a rest

	mu     sync.Mutex
	health *upstream.Session
}

// learned is what connections have shown of a gateway, whichever session carried them.
type learned struct {
	mu            sync.Mutex
	refused       time.Time      // when the gateway last had no place for a connection
	ways          []way          // of the last connections that the gateway has opened, to different targets; the latest first
	tried         int            // how many times reach has tried one of them
	lates         []netip.Prefix // networks about which the gateway's answer was late, since it has opened a connection
	judging, slow bool
}

// newSession takes ownership of a connection. It calls changed for each change of state
// until the connection has ended. The caller must send the first probe.
func newSession(conn *quic.Conn, set *settings, gateway string, known *learned, changed func()) *session {
	now := time.Now()
	s := &session{
		settings: set,
		gateway:  gateway,
		known:    known,
		conn:     conn,
		http:     (&http3.Transport{DisableCompression: true, EnableDatagrams: true}).NewClientConn(conn),
		since:    now,
		changed:  changed,
		woken:    make(chan struct{}, 1),
		health:   upstream.NewSession(now),
	}
	go s.watch()
	return s
}

// watch runs until the connection has ended, even if another session has replaced this
// one, so that carried connections do not hang when the gateway is gone.
func (s *session) watch() {
	tick := time.NewTimer(system.UntilBeat(upstream.Interval))
	defer tick.Stop()
	waits := newWaits()
	var waited time.Time // when a goroutine last waited for longWait
	for {
		select {
		case <-s.woken:
			tick.Reset(system.UntilBeat(upstream.Interval))
		case <-tick.C:
			if waits.longest() >= longWait {
				waited = time.Now()
			}
			// An answer may have arrived but not have been processed yet.
			starved := time.Since(waited) < answerTimeout
			stats := s.conn.ConnectionStats()
			next := upstream.Interval
			s.tell(func(h *upstream.Session, now time.Time) upstream.Do {
				do := h.Tick(now, stats.SmoothedRTT+4*stats.MeanDeviation, starved)
				if h.Resting() {
					next = upstream.Rest
				}
				return do
			})
			tick.Reset(system.UntilBeat(next))
		case <-s.conn.Context().Done():
			reason := why(context.Cause(s.conn.Context()))
			s.tell(func(h *upstream.Session, _ time.Time) upstream.Do {
				h.Gone(reason)
				return 0
			})
			return
		}
	}
}

// tell passes an event to the session's state, and carries out the resulting actions.
func (s *session) tell(event func(h *upstream.Session, now time.Time) upstream.Do) {
	packets := s.conn.ConnectionStats().PacketsReceived
	s.mu.Lock()
	now := time.Now()
	before, rested := s.health.State(), s.health.Resting()
	do := s.health.Heard(now, packets)
	do |= event(s.health, now)
	after, reason := s.health.State(), s.health.Reason()
	if rested && !s.health.Resting() {
		signal(s.woken)
	}
	s.mu.Unlock()
	switch {
	case do&upstream.Close != 0:
		s.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), reason)
	case do&upstream.Probe != 0:
		go s.probe()
	case do&upstream.Ping != 0:
		s.conn.Ping()
	}
	if do&upstream.Reach != 0 {
		go s.reach()
	}
	if after != before {
		s.changed()
	}
}

// look returns the session's state, the reason if it is not Up, and the number of
// carried connections.
func (s *session) look() (state upstream.State, reason string, streams int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.State(), s.health.Reason(), s.health.Streams()
}

func (s *session) state() upstream.State {
	state, _, _ := s.look()
	return state
}

func (s *session) sound() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.Sound()
}

// lost reports whether the gateway has lost its uplink, and what it carries can be reached without it.
func (s *session) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.Lost()
}

// full reports whether the gateway has just had no place for a connection.
func (s *session) full() bool {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	return !s.known.refused.IsZero() && time.Since(s.known.refused) < fullTime
}

// enter records that a connection begins to use the session.
func (s *session) enter() {
	s.tell(func(h *upstream.Session, now time.Time) upstream.Do {
		h.Opened(now)
		return 0
	})
}

// path returns the session's path, for the choice of a session for a new connection.
func (s *session) path() (p upstream.Path) {
	rtt := s.conn.ConnectionStats().LatestRTT
	s.tell(func(h *upstream.Session, now time.Time) (do upstream.Do) {
		p, do = h.Compared(now, rtt)
		return do
	})
	return p
}

// release records that a connection no longer uses the session.
func (s *session) release() {
	s.tell(func(h *upstream.Session, _ time.Time) upstream.Do { return h.Ended() })
}

// retire makes the session close with its last connection.
func (s *session) retire(reason string) {
	s.tell(func(h *upstream.Session, _ time.Time) upstream.Do { return h.Retire(reason) })
}

// close closes the session and all its connections.
func (s *session) close() {
	s.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
}

// request sends CONNECT for a client, or for the relay itself if from is nil. It sets
// the stream's deadline for the answer.
func (s *session) request(ctx context.Context, target string, from *client) (*http3.RequestStream, error) {
	return s.send(ctx, &http.Request{
		Method: http.MethodConnect,
		Host:   target,
		URL:    &url.URL{Host: target},
		Header: http.Header{},
	}, from)
}

// send sends a request for a tunnel.
func (s *session) send(ctx context.Context, r *http.Request, from *client) (*http3.RequestStream, error) {
	ctx, cancel := context.WithTimeout(ctx, creditTimeout)
	defer cancel()
	str, err := s.http.OpenRequestStream(ctx)
	if err != nil {
		if ctx.Err() == nil { // the connection is closing or closed
			s.retire(why(err))
		}
		return nil, err
	}
	str.SetDeadline(time.Now().Add(answerTimeout))
	r.Header["Proxy-Authorization"] = []string{"Bearer " + s.settings.Token}
	r.Header["User-Agent"] = nil
	if from != nil {
		tunnel.SetClient(r.Header, from.number)
		str.QUICStream().SetClient(from.number)
	}
	if err := str.SendRequestHeader(r); err != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		return nil, err
	}
	return str, nil
}

// answer waits for the gateway's answer. It returns nil if the tunnel is open, otherwise a
// *tunnel.Refusal or an error of the stream. It also reports the outcome to the session.
func (s *session) answer(str *http3.RequestStream) error {
	err := answer(str)
	s.learn(upstream.Carry, err)
	return err
}

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

// probe asks the gateway whether it would carry connections for this relay.
func (s *session) probe() {
	str, err := s.request(s.conn.Context(), tunnel.ProbeTarget, nil)
	if err != nil {
		s.tell(func(h *upstream.Session, _ time.Time) upstream.Do { return h.Unasked() })
		return
	}
	if err = answer(str); err == nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
	}
	s.learn(upstream.Uplink, err)
}

// doubt asks the gateway whether it still works.
func (s *session) doubt() {
	s.tell(func(h *upstream.Session, _ time.Time) upstream.Do { return h.Unanswered(upstream.Carry) })
}

// learn reports the outcome of a question to the session. err is the result of answer.
func (s *session) learn(q upstream.Question, err error) {
	a, reason := upstream.Fine, ""
	var refusal *tunnel.Refusal
	switch {
	case errors.As(err, &refusal):
		switch {
		case refusal.Type == tunnel.UplinkDown:
			a, reason = upstream.UplinkDown, refusal.Detail
		case refusal.Type == tunnel.LimitReached:
			s.known.mu.Lock()
			s.known.refused = time.Now()
			s.known.mu.Unlock()
		case q == upstream.Carry && refusal.Type == tunnel.TargetUnroutable: // because of the target, or of the uplink?
			s.doubt()
			return
		case refusal.Type == tunnel.RequestDenied,
			q == upstream.Uplink && refusal.Type != tunnel.TargetProhibited:
			a, reason = upstream.Denied, "the gateway refuses: "+refusal.Detail
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.tell(func(h *upstream.Session, _ time.Time) upstream.Do { return h.Unanswered(q) })
		return
	case q == upstream.Uplink && err == nil:
		a, reason = upstream.Denied, "the server is not a bquic gateway"
	case q == upstream.Uplink:
		a, reason = upstream.Denied, why(err)
	case err != nil: // an error of this stream only
		return
	}
	s.tell(func(h *upstream.Session, now time.Time) upstream.Do { return h.Answered(now, q, a, reason) })
}

// A dialler connects to gateways.
type dialler struct {
	settings *settings
	found    func(gateway string, addresses []netip.Prefix) // called with the result of DNS
	known    *learned                                       // passed to newSession, like changed
	changed  func()
}

// dial returns a session whose first probe has been answered, so it is Up or NoUplink.
// If the gateway's name has several addresses, choose returns the one to use. With several
// connections to a gateway, the session is the quickest of rivals.
func (d *dialler) dial(ctx context.Context, gateway string, choose func([]netip.AddrPort) netip.AddrPort) (*session, error) {
	addrs, err := d.resolve(ctx, gateway)
	if err != nil {
		return nil, err
	}
	addr := choose(addrs)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout+answerTimeout)
	defer cancel()
	if d.settings.Connections <= 1 {
		return d.connect(ctx, gateway, addr)
	}
	type outcome struct {
		session *session
		err     error
	}
	outcomes := make(chan outcome, rivals)
	for range rivals {
		go func() {
			s, err := d.connect(ctx, gateway, addr)
			outcomes <- outcome{s, err}
		}()
	}
	for left := rivals - 1; left >= 0; left-- {
		o := <-outcomes
		if err = o.err; err != nil {
			continue
		}
		go func() {
			for range left {
				if o := <-outcomes; o.session != nil {
					o.session.close()
				}
			}
		}()
		return o.session, nil
	}
	return nil, err
}

// connect makes a connection from a port of its own.
func (d *dialler) connect(ctx context.Context, gateway string, addr netip.AddrPort) (*session, error) {
	udp, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	packets, err := tunnel.NewPacketConn(udp)
	if err != nil {
		udp.Close()
		return nil, err
	}
	transport := &quic.Transport{Conn: packets, ConnectionIDLength: tunnel.ConnectionIDLength}
	end := func() {
		transport.Close()
		udp.Close()
	}
	tlsConfig := d.settings.tls.Clone()
	tlsConfig.ServerName = d.settings.nameOf(gateway)
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), tlsConfig, d.settings.quic)
	if err != nil {
		end()
		return nil, err
	}
	context.AfterFunc(conn.Context(), end)
	s := newSession(conn, d.settings, gateway, d.known, d.changed)
	stop := context.AfterFunc(ctx, s.close)
	s.probe()
	if !stop() {
		return nil, context.Cause(ctx)
	}
	state, reason, _ := s.look()
	if state != upstream.Up && state != upstream.NoUplink {
		s.close()
		return nil, errors.New(reason)
	}
	return s, nil
}

// resolve looks up the addresses of a gateway.
func (d *dialler) resolve(ctx context.Context, gateway string) ([]netip.AddrPort, error) {
	host, port, _ := net.SplitHostPort(gateway)
	n, _ := strconv.ParseUint(port, 10, 16)
	ips, err := system.Resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var addrs []netip.AddrPort
	var prefixes []netip.Prefix
	for _, addr := range ips {
		addrs = append(addrs, netip.AddrPortFrom(addr, uint16(n)))
		addr = addr.WithZone("")
		prefixes = append(prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	d.found(gateway, prefixes)
	return addrs, nil
}

// why converts an error to a reason. All timeouts have the same reason. It contains no
// ports and times of day, so that the same problem has the same text.
func why(err error) string {
	var dns *net.DNSError
	var invalid x509.CertificateInvalidError
	var transport *quic.TransportError
	var reset *quic.StatelessResetError
	var t net.Error
	switch {
	case errors.As(err, &dns) && dns.IsTimeout:
		return fmt.Sprintf("no answer from DNS for %s", dns.Name)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("DNS has no address for %s", dns.Name)
	case errors.As(err, &dns):
		cause := *dns
		cause.Err = strings.TrimSpace(dns.Err[strings.LastIndex(dns.Err, ": ")+1:])
		return cause.Error()
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the gateway's certificate is valid only from %s to %s, and here it is %s",
			invalid.Cert.NotBefore.Format(time.DateOnly), invalid.Cert.NotAfter.Format(time.DateOnly), time.Now().UTC().Format(time.DateOnly))
	case errors.As(err, &reset):
		return "the gateway no longer knows the session, as after a restart"
	case errors.As(err, &t) && t.Timeout():
		return upstream.Silence
	case errors.As(err, &transport):
		// why this end does not trust the gateway, without the names of the layers that say so
		if _, text, ok := strings.Cut(transport.Error(), " (local): "); ok {
			return strings.TrimPrefix(text, "tls: failed to verify certificate: x509: ")
		}
	}
	return err.Error()
}
