// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/tunnel"
)

const directTimeout = 10 * time.Second

// A Relay carries connections. Create it with New.
type Relay struct {
	cfg    Config
	tls    *tls.Config
	quic   *quic.Config
	logger *slog.Logger
	ready  chan struct{}
	kicked chan struct{} // something changed that decides on taking connections

	sessions []atomic.Pointer[session]
	turn     atomic.Uint32
	gateway  atomic.Pointer[[]netip.Prefix] // addresses of the gateway
	reason   atomic.Pointer[string]         // why the gateway is away

	held    atomic.Int64 // accepted and not ended
	carried counter
	direct  counter
	refused atomic.Uint64

	mu      sync.Mutex
	up      bool
	since   time.Time // of up or not
	taking  bool
	problem string // why the gateway is or was away, as it was logged
	logged  bool   // since it is away
}

type counter struct {
	now   atomic.Int64
	total atomic.Uint64
	bytes tunnel.Bytes
}

// New checks the configuration. Nothing is opened or changed before Run.
func New(cfg Config, logger *slog.Logger) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &Relay{
		cfg:      cfg,
		tls:      tlsConfig,
		quic:     cfg.quicConfig(),
		logger:   logger,
		ready:    make(chan struct{}),
		kicked:   make(chan struct{}, 1),
		sessions: make([]atomic.Pointer[session], cfg.Connections),
		since:    time.Now(),
	}, nil
}

// Ready is closed when the relay could take connections. Whether it does,
// which depends on the gateway, tells Status.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run relays until ctx ends. It removes all that it added to nftables and to
// the routing; what a killed one left, the next Run removes first.
func (r *Relay) Run(ctx context.Context) error {
	// Connections live a little longer than ctx: none may come any more when
	// they are reset.
	conns, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &capture{mode: r.cfg.Mode, port: r.cfg.Port, interfaces: r.cfg.Interfaces, exclude: r.cfg.Exclude}
	listeners, err := c.listen(ctx)
	if err != nil {
		cancel()
		return err
	}
	for _, l := range listeners {
		context.AfterFunc(conns, func() { l.Close() })
	}
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		if err := removeTable(); err != nil {
			r.logger.Error("cannot remove the nftables table", "error", err)
		}
		removeRoutes()
	}()

	removeRoutes() // of a relay that was killed
	if c.mode == TProxy {
		if err := addRoutes(); err != nil {
			return err
		}
	}
	if err := nft(c.script()); err != nil {
		return err
	}
	for _, l := range listeners {
		wg.Go(func() { r.accept(conns, l, c, &wg) })
	}
	for i := range r.sessions {
		wg.Go(func() { r.maintain(conns, &r.sessions[i]) })
	}
	close(r.ready)
	r.control(ctx, c)
	c.take = false
	return nft(c.script())
}

// kick makes control look now.
func (r *Relay) kick() {
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

// control watches the sessions, and takes new connections only while one of
// them is healthy and the limit is not reached: else the kernel forwards them.
func (r *Relay) control(ctx context.Context, c *capture) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	applied := c.script()
	failure := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			for i := range r.sessions {
				if s := r.sessions[i].Load(); s != nil {
					s.watch(now)
				}
			}
		case <-r.kicked:
		}
		up := r.pick() != nil
		r.report(up)

		limit := int64(r.cfg.Limit)
		if c.take { // hysteresis of a tenth
			c.take = up && r.held.Load() < limit
		} else {
			c.take = up && r.held.Load() < limit-limit/10
		}
		c.exclude = slices.Clone(r.cfg.Exclude)
		if gateway := r.gateway.Load(); gateway != nil {
			c.exclude = append(c.exclude, *gateway...)
		}
		script := c.script()
		if script == applied {
			continue
		}
		if err := nft(script); err != nil {
			if err.Error() != failure {
				failure = err.Error()
				r.logger.Error("cannot change the nftables table", "error", err)
			}
			continue
		}
		applied, failure = script, ""
		r.mu.Lock()
		r.taking = c.take
		r.mu.Unlock()
	}
}

// away notes why a session could not be made, or has ended.
func (r *Relay) away(reason string) {
	r.reason.Store(&reason)
	r.kick()
}

// report logs when the gateway comes or goes, and when the reason for its
// being away changes.
func (r *Relay) report(up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if up != r.up {
		r.up, r.since = up, time.Now()
		r.logged = false
		if up {
			r.logger.Info("gateway reached, connections are carried", "gateway", r.cfg.Gateway)
		}
	}
	reason := r.reason.Load()
	switch {
	case up:
		r.reason.Store(nil)
	case reason != nil && (!r.logged || *reason != r.problem):
		r.problem, r.logged = *reason, true
		r.logger.Warn("gateway away, connections go direct", "gateway", r.cfg.Gateway, "reason", *reason)
	}
}

// pick returns the next healthy session, or nil.
func (r *Relay) pick() *session {
	n := uint32(len(r.sessions))
	turn := r.turn.Add(1)
	for i := range n {
		if s := r.sessions[(turn+i)%n].Load(); s != nil && s.healthy() {
			return s
		}
	}
	return nil
}

func (r *Relay) accept(ctx context.Context, l *net.TCPListener, c *capture, wg *sync.WaitGroup) {
	for {
		client, err := l.AcceptTCP()
		if ctx.Err() != nil {
			if err == nil {
				tunnel.Reset(client)
			}
			return
		}
		if err != nil { // out of file descriptors or memory
			r.logger.Error("cannot accept", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		// Beyond the limit came what the kernel had queued: that is connected
		// directly, within reason.
		if r.held.Add(1) > int64(r.cfg.Limit)*5/4 {
			r.held.Add(-1)
			tunnel.Reset(client)
			continue
		}
		wg.Go(func() {
			defer r.held.Add(-1)
			stop := context.AfterFunc(ctx, func() { tunnel.Reset(client) })
			defer stop()
			_ = client.SetKeepAliveConfig(tunnel.KeepAlive())
			target, err := c.target(client)
			if err != nil {
				r.logger.Debug("connection refused", "client", client.RemoteAddr(), "error", err)
				tunnel.Reset(client)
				return
			}
			r.serve(ctx, client, target)
		})
	}
}

// serve carries the client's connection, or makes it directly.
func (r *Relay) serve(ctx context.Context, client *net.TCPConn, target netip.AddrPort) {
	var first []byte
	if s := r.pick(); s != nil && r.held.Load() <= int64(r.cfg.Limit) {
		var done bool
		if first, done = r.carry(ctx, s, client, target); done {
			return
		}
	}
	r.connect(ctx, client, first, target)
}

// carry returns what it has read from the client unless the connection is
// done with: carried to its end, refused for good, or abandoned by the client.
func (r *Relay) carry(ctx context.Context, s *session, client *net.TCPConn, target netip.AddrPort) (first []byte, done bool) {
	s.streams.Add(1)
	defer s.release()
	before := s.conn.ConnectionStats().PacketsReceived
	str, err := s.request(ctx, target.String(), r.cfg.Token)
	if err != nil {
		return nil, false
	}
	early := listen(client, str)
	err = answer(str)
	first, sent, gone := early.stop()
	if gone != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		tunnel.Reset(client)
		return nil, true
	}
	if err == nil {
		r.carried.now.Add(1)
		defer r.carried.now.Add(-1)
		r.carried.total.Add(1)
		r.carried.bytes.ToStream.Add(uint64(sent))
		rest := slices.Clone(first[sent:]) // mostly nothing, while first would stay as long as the tunnel
		first, early = nil, nil
		err = tunnel.Splice(client, rest, str, &r.carried.bytes)
		r.logger.Debug("connection ended", "target", target, "error", err)
		return nil, true
	}

	var refusal *tunnel.Refusal
	switch {
	case ctx.Err() != nil:
		tunnel.Reset(client)
		return nil, true
	case errors.As(err, &refusal):
		switch refusal.Type {
		case tunnel.TargetProhibited, tunnel.ConnectionRefused, tunnel.ConnectionTimeout:
			// As if the target itself had answered: a way around the gateway's
			// policy would make the policy pointless.
			r.refused.Add(1)
			r.logger.Info("target refused", "target", target, "reason", refusal.Detail)
			tunnel.Reset(client)
			return nil, true
		case tunnel.RequestDenied:
			s.lose("the gateway refuses: " + refusal.Detail)
			r.kick()
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		// A slow target, or a gateway that does not answer at all?
		if s.conn.ConnectionStats().PacketsReceived == before {
			s.silent.Store(true)
			r.kick()
		} else if s.probing.CompareAndSwap(false, true) {
			go func() {
				if err := s.probe(ctx, r.cfg.Token); err != nil {
					s.lose(why(err))
				}
				s.probing.Store(false)
			}()
		}
	}
	return first, false
}

// connect makes the connection directly.
func (r *Relay) connect(ctx context.Context, client *net.TCPConn, first []byte, target netip.AddrPort) {
	r.direct.now.Add(1)
	defer r.direct.now.Add(-1)
	r.direct.total.Add(1)
	d := net.Dialer{Timeout: directTimeout, KeepAliveConfig: tunnel.KeepAlive()}
	conn, err := d.DialContext(ctx, "tcp", target.String())
	if err != nil {
		r.logger.Debug("direct connection failed", "target", target, "error", err)
		tunnel.Reset(client)
		return
	}
	origin := tcpStream{conn.(*net.TCPConn)}
	defer origin.TCPConn.Close()
	err = tunnel.Splice(client, first, origin, &r.direct.bytes)
	r.logger.Debug("direct connection ended", "target", target, "error", err)
}

// tcpStream lets Splice join two TCP connections.
type tcpStream struct{ *net.TCPConn }

func (t tcpStream) Close() error                     { return t.CloseWrite() }
func (t tcpStream) CancelRead(quic.StreamErrorCode)  { tunnel.Reset(t.TCPConn) }
func (t tcpStream) CancelWrite(quic.StreamErrorCode) { tunnel.Reset(t.TCPConn) }

// maxEarly is how much is read from a client before the gateway answers; what
// is more waits in the kernel.
const maxEarly = 4 << 10

// early reads from a client that waits for its tunnel: to send a TLS
// ClientHello right behind the CONNECT, which saves a round trip, and to
// notice that the client has gone.
//
// Only a ClientHello goes ahead. Should the gateway's answer be lost, it is
// sent again on the direct connection, and a server that has got it twice has
// done nothing yet. What else a client sends, such as an HTTP POST, must not
// arrive twice, and waits.
type early struct {
	client *net.TCPConn
	done   chan struct{}
	data   []byte
	sent   int
	err    error
}

func listen(client *net.TCPConn, str io.Writer) *early {
	e := &early{client: client, done: make(chan struct{}), data: make([]byte, 0, maxEarly)}
	go func() {
		defer close(e.done)
		for len(e.data) < maxEarly {
			n, err := client.Read(e.data[len(e.data):maxEarly])
			e.data = e.data[:len(e.data)+n]
			if ahead := clientHello(e.data); ahead > e.sent {
				m, err := str.Write(e.data[e.sent:ahead])
				e.sent += m
				if err != nil { // the answer will tell
					return
				}
			}
			if err != nil {
				if err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) {
					e.err = err
				}
				return
			}
		}
	}()
	return e
}

// stop returns what was read, how much of it was sent, and an error if the
// client has reset the connection.
func (e *early) stop() (data []byte, sent int, gone error) {
	_ = e.client.SetReadDeadline(time.Unix(1, 0))
	<-e.done
	_ = e.client.SetReadDeadline(time.Time{})
	return e.data, e.sent, e.err
}

// clientHello returns how many bytes of b belong to a first TLS record of type
// handshake (RFC 8446, section 5.1). TLS 1.3 early data is a later record.
func clientHello(b []byte) int {
	if len(b) < 5 || b[0] != 22 || b[1] != 3 {
		return 0
	}
	return min(len(b), 5+int(b[3])<<8+int(b[4]))
}

// A Status is the state of a relay.
type Status struct {
	Gateway     string             `json:"gateway"`
	State       string             `json:"state"` // "up" or "away"
	Since       time.Time          `json:"since"`
	Taking      bool               `json:"taking"` // new connections; else the kernel forwards them
	LastError   string             `json:"last_error,omitempty"`
	Carried     Count              `json:"carried"`
	Direct      Count              `json:"direct"`
	Refused     uint64             `json:"refused"` // by the gateway, for their target
	Connections []ConnectionStatus `json:"connections"`
}

// A Count is of TCP connections.
type Count struct {
	Now   int64  `json:"now"`
	Total uint64 `json:"total"`
	Up    uint64 `json:"up_bytes"`
	Down  uint64 `json:"down_bytes"`
}

// A ConnectionStatus is the state of a QUIC connection to the gateway.
type ConnectionStatus struct {
	Remote  string          `json:"remote"`
	Since   time.Time       `json:"since"`
	Healthy bool            `json:"healthy"`
	Streams int64           `json:"streams"`
	RTT     time.Duration   `json:"rtt_ns"`
	Burst   quic.BurstStats `json:"burst"`
}

// Status returns a Status.
func (r *Relay) Status() any {
	st := Status{
		Gateway:     r.cfg.Gateway,
		State:       "away",
		Carried:     r.carried.status(),
		Direct:      r.direct.status(),
		Refused:     r.refused.Load(),
		Connections: []ConnectionStatus{},
	}
	r.mu.Lock()
	st.LastError = r.problem
	if r.up {
		st.State = "up"
	}
	st.Since, st.Taking = r.since, r.taking
	r.mu.Unlock()
	for i := range r.sessions {
		if s := r.sessions[i].Load(); s != nil {
			st.Connections = append(st.Connections, ConnectionStatus{
				Remote:  fmt.Sprint(s.conn.RemoteAddr()),
				Since:   s.since,
				Healthy: s.healthy(),
				Streams: s.streams.Load(),
				RTT:     s.conn.ConnectionStats().SmoothedRTT,
				Burst:   s.conn.BurstStats(),
			})
		}
	}
	return st
}

func (c *counter) status() Count {
	return Count{c.now.Load(), c.total.Load(), c.bytes.ToStream.Load(), c.bytes.FromStream.Load()}
}
