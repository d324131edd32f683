// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
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
	now    atomic.Pointer[settings] // for new sessions and connections
	logger *slog.Logger
	ready  chan struct{}
	kicked chan struct{} // something changed that decides on taking connections

	sessions []atomic.Pointer[session]
	turn     atomic.Uint32
	reason   atomic.Pointer[string] // why the gateways are away

	held    atomic.Int64 // accepted and not ended
	carried counter
	direct  counter
	refused atomic.Uint64
	clients clients
	flows   flows

	mu      sync.Mutex
	known   map[string]*known // of the gateways, by host:port
	up      bool
	since   time.Time // of up or not
	taking  bool
	using   string // the gateway of new connections
	problem string // why the gateways are or were away, as it was logged
	logged  bool   // since it is away
}

type counter struct {
	now   atomic.Int64
	total atomic.Uint64
	bytes tunnel.Bytes
}

// known is what is known of a gateway.
type known struct {
	addresses []netip.Prefix // never taken
	problem   string         // of the last attempt to connect, "" if it went well
}

// New checks the configuration. Nothing is opened or changed before Run.
func New(cfg Config, logger *slog.Logger) (*Relay, error) {
	set, err := newSettings(cfg)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		logger:   logger,
		ready:    make(chan struct{}),
		kicked:   make(chan struct{}, 1),
		sessions: make([]atomic.Pointer[session], set.Connections),
		known:    make(map[string]*known),
		since:    time.Now(),
	}
	r.now.Store(set)
	r.flows.relay = r
	return r, nil
}

// Apply makes cfg the configuration of what is new from now on: connections, and
// sessions where they would be others. What is carried goes on, in the session
// that it began in. An error leaves everything as it is.
func (r *Relay) Apply(cfg Config) error {
	set, err := newSettings(cfg)
	if err != nil {
		return err
	}
	old := r.now.Load()
	for _, o := range []struct{ name, was, is string }{
		{"mode", old.Mode, set.Mode},
		{"port", strconv.Itoa(old.Port), strconv.Itoa(set.Port)},
		{"connections", strconv.Itoa(old.Connections), strconv.Itoa(set.Connections)},
	} {
		if o.was != o.is {
			r.logger.Warn("this change needs a restart", "option", "relay."+o.name, "was", o.was, "is", o.is)
		}
	}
	set.Mode, set.Port, set.Connections = old.Mode, old.Port, old.Connections
	if set.sameSession(old) {
		set.tls = old.tls // with the sessions that can be resumed
	}
	r.now.Store(set)
	r.kick()
	return nil
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
	set := r.now.Load()
	c := &capture{mode: set.Mode, port: set.Port, interfaces: set.Interfaces, exclude: set.Exclude, ports: set.ExcludePorts, udp: set.UDPPorts}
	listeners, err := c.listen(ctx)
	if err != nil {
		cancel()
		return err
	}
	datagrams, err := listenUDP(ctx, set.Port)
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		cancel()
		return err
	}
	for _, l := range listeners {
		context.AfterFunc(conns, func() { l.Close() })
	}
	for _, l := range datagrams {
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
	if err := c.addRoutes(); err != nil {
		return err
	}
	table := new(guard)
	if err := table.apply(c.script()); err != nil {
		return err
	}
	for _, l := range datagrams {
		wg.Go(func() { r.flows.read(conns, l, c.port, &wg) })
	}
	for _, l := range listeners {
		wg.Go(func() { r.accept(conns, l, c, &wg) })
	}
	for i := range r.sessions {
		wg.Go(func() { r.maintain(conns, &r.sessions[i]) })
	}
	close(r.ready)
	r.control(ctx, c, table)
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
func (r *Relay) control(ctx context.Context, c *capture, table *guard) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	applied := c.script()
	failure := ""
	looked := time.Now()
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
			if now.Sub(looked) >= guardInterval {
				looked = now
				if applied != "" && !table.intact() {
					r.logger.Warn("the nftables table was changed by others: it is made again")
					applied = ""
				}
			}
		case <-r.kicked:
		}
		used := r.pick()
		up := used != nil
		r.report(used)

		set := r.now.Load()
		limit := int64(set.Limit)
		if c.take { // hysteresis of a tenth
			c.take = up && r.held.Load() < limit
		} else {
			c.take = up && r.held.Load() < limit-limit/10
		}
		c.interfaces, c.ports, c.udp = set.Interfaces, set.ExcludePorts, set.UDPPorts
		c.exclude = append(slices.Clone(set.Exclude), r.addresses(set)...)
		script := c.script()
		if script == applied {
			continue
		}
		err := c.addRoutes()
		if err == nil {
			err = table.apply(script)
		}
		if err != nil {
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

// addresses returns those of the gateways.
func (r *Relay) addresses(set *settings) (prefixes []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, gateway := range set.Gateways {
		if k := r.known[gateway]; k != nil {
			prefixes = append(prefixes, k.addresses...)
		}
	}
	return prefixes
}

// learn notes something of a gateway.
func (r *Relay) learn(gateway string, note func(*known)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[gateway]
	if k == nil {
		k = new(known)
		r.known[gateway] = k
	}
	note(k)
}

// away notes why a session could not be made, or has ended.
func (r *Relay) away(reason string) {
	r.reason.Store(&reason)
	r.kick()
}

// report logs when the gateway comes or goes, and when the reason for its
// being away changes.
func (r *Relay) report(used *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	up := used != nil
	if up != r.up || up && used.gateway != r.using {
		r.up, r.since = up, time.Now()
		r.logged = false
		if up {
			r.using = used.gateway
			r.logger.Info("gateway reached, connections are carried", "gateway", r.using)
		}
	}
	reason := r.reason.Load()
	switch {
	case up:
		r.reason.Store(nil)
	case reason != nil && (!r.logged || *reason != r.problem):
		r.problem, r.logged = *reason, true
		r.logger.Warn("gateway away, connections go direct", "gateways", r.now.Load().Gateways, "reason", *reason)
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
		if r.held.Add(1) > int64(r.now.Load().Limit)*5/4 {
			r.held.Add(-1)
			tunnel.Reset(client)
			continue
		}
		wg.Go(func() {
			defer r.held.Add(-1)
			stop := context.AfterFunc(ctx, func() { tunnel.Reset(client) })
			defer stop()
			_ = client.SetKeepAliveConfig(tunnel.KeepAlive())
			tunnel.ResetAtEnd(client)
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
	from := r.clients.enter(unmap(client.RemoteAddr().(*net.TCPAddr).AddrPort()).Addr(), &r.carried.bytes, &r.direct.bytes)
	defer r.clients.leave(from)
	var first []byte
	if s := r.pick(); s != nil && r.held.Load() <= int64(r.now.Load().Limit) {
		var done bool
		if first, done = r.carry(ctx, s, client, target, &from.carried); done {
			return
		}
	}
	r.connect(ctx, client, first, target, &from.direct)
}

// carry returns what it has read from the client unless the connection is
// done with: carried to its end, refused for good, or abandoned by the client.
func (r *Relay) carry(ctx context.Context, s *session, client *net.TCPConn, target netip.AddrPort, count *tunnel.Bytes) (first []byte, done bool) {
	s.streams.Add(1)
	defer s.release()
	before := s.conn.ConnectionStats().PacketsReceived
	str, err := s.request(ctx, target.String())
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
		count.ToStream.Add(uint64(sent))
		rest := slices.Clone(first[sent:]) // mostly nothing, while first would stay as long as the tunnel
		first, early = nil, nil
		err = tunnel.Splice(client, rest, str, count)
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
				if err := s.probe(ctx); err != nil {
					s.lose(why(err))
				}
				s.probing.Store(false)
			}()
		}
	}
	return first, false
}

// connect makes the connection directly.
func (r *Relay) connect(ctx context.Context, client *net.TCPConn, first []byte, target netip.AddrPort, count *tunnel.Bytes) {
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
	err = tunnel.Splice(client, first, origin, count)
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
	Gateway     string             `json:"gateway"`  // of new connections, or the last one
	Gateways    []GatewayStatus    `json:"gateways"` // in order of preference
	State       string             `json:"state"`    // "up" or "away"
	Since       time.Time          `json:"since"`
	Taking      bool               `json:"taking"` // new connections; else the kernel forwards them
	LastError   string             `json:"last_error,omitempty"`
	Carried     Count              `json:"carried"`
	Direct      Count              `json:"direct"`
	Refused     uint64             `json:"refused"` // by the gateway, for their target
	UDP         FlowStatus         `json:"udp"`
	Connections []ConnectionStatus `json:"connections"`
	Clients     []ClientStatus     `json:"clients"` // latest first
	// Others sums the clients beyond maxClients.
	Others ClientStatus `json:"others"`
}

// A FlowStatus counts flows of UDP.
type FlowStatus struct {
	Now   int    `json:"now"`
	Total uint64 `json:"total"`
	Lost  uint64 `json:"lost"` // datagrams for which there was no room
}

// A GatewayStatus is the state of a gateway: "up" with a session, "away" when the
// last attempt failed, else "unused".
type GatewayStatus struct {
	Address string `json:"address"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"`
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

// Status tells what the relay is doing.
func (r *Relay) Status() Status {
	st := Status{
		State:       "away",
		Carried:     r.carried.status(),
		Direct:      r.direct.status(),
		Refused:     r.refused.Load(),
		Connections: []ConnectionStatus{},
	}
	r.mu.Lock()
	st.LastError, st.Gateway = r.problem, r.using
	set := r.now.Load()
	if st.Gateway == "" {
		st.Gateway = set.Gateways[0]
	}
	for _, gateway := range set.Gateways {
		g := GatewayStatus{Address: gateway, State: "unused"}
		if k := r.known[gateway]; k != nil && k.problem != "" {
			g.State, g.Error = "away", k.problem
		}
		for i := range r.sessions {
			if s := r.sessions[i].Load(); s != nil && s.gateway == gateway && s.healthy() {
				g.State, g.Error = "up", ""
			}
		}
		st.Gateways = append(st.Gateways, g)
	}
	if r.up {
		st.State = "up"
	}
	st.Since, st.Taking = r.since, r.taking
	r.mu.Unlock()
	st.UDP = FlowStatus{r.flows.now(), r.flows.total.Load(), r.flows.lost.Load()}
	st.Clients, st.Others = r.clients.status()
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
