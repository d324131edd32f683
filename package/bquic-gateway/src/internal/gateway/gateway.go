// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sync/errgroup"

	"bquic/internal/accesslog"
	"bquic/internal/cert"
	"bquic/internal/config"
	"bquic/internal/history"
	"bquic/internal/metrics"
	"bquic/internal/peer"
	"bquic/internal/profile"
	"bquic/internal/site"
	"bquic/internal/status"
	"bquic/internal/system"
	"bquic/internal/trace"
	"bquic/internal/tunnel"
)

const (
	// On a long mesh path, 100 Mbit/s at an RTT of 200 ms, 2.5 MB are in flight. quic-go
	// grows a window to its maximum only while data arrives fast enough to need it. Only
	// unread data takes memory: a stalled upload, or a relay whose targets are slow.
	initialStreamWindow     = 512 << 10
	maxStreamWindow         = 3 << 20
	initialConnectionWindow = 768 << 10
	maxConnectionWindow     = 4 << 20

	handshakeTimeout = 5 * time.Second
	idleTimeout      = 2 * time.Minute  // the relay's: connections outlive an outage of the mesh
	shutdownTimeout  = 2 * time.Second  // for requests
	lingerTimeout    = 30 * time.Second // for tunnels
	// Limits on TCP clients that send slowly or not at all.
	headerTimeout  = 10 * time.Second
	tcpIdleTimeout = 2 * time.Minute
	// maxHeaderBytes bounds a request's header section; browsers send up to 8 KiB.
	maxHeaderBytes = 64 << 10

	// maxStreams is the limit on concurrent requests per connection (RFC 9114, section
	// 6.1, and RFC 9113, section 5.1.2, recommend at least 100).
	maxStreams = 100

	watchInterval = time.Second
	filesInterval = 5 * time.Second
	// shedInterval is how often it is logged that connections were closed: clients may connect again each second.
	shedInterval = 10 * time.Minute

	// altSvcAge is how long a browser may remember HTTP/3, in seconds.
	altSvcAge = 24 * 3600
)

// A Server is a gateway. Create it with New.
type Server struct {
	version string
	log     *slog.Logger
	started time.Time
	until   context.Context            // Run's
	now     atomic.Pointer[generation] // for new requests and connections
	tunnel  tunnel.Handler
	conns   connections
	admit   admission
	access  accesslog.Log
	history history.History
	ready   chan struct{}
	addr    netip.AddrPort // valid once ready
	plain   netip.AddrPort // address of the redirect listener, without TLS
	reload  atomic.Pointer[status.Reload]

	shedLogged time.Time // when shed last logged something
}

// A generation is the result of reading the configuration once. It is immutable: a
// reload makes a new one, and requests finish in the generation in which they began.
type generation struct {
	cfg    config.Gateway
	relays []peer.Config
	certs  *cert.Store
	sites  *site.Sites
}

// Check returns an error for each file that the configuration refers to and that is missing or
// unusable. It does not look for the sites' directories (site.Missing).
func Check(cfg config.Gateway) error {
	var errs []error
	for _, s := range cfg.Sites {
		_, err := site.New([]config.Site{s}, slog.New(slog.DiscardHandler))
		errs = append(errs, err)
	}
	if err := accesslog.Check(cfg.AccessLog); err != nil {
		errs = append(errs, fmt.Errorf("gateway.access_log: %w", err))
	}
	first, others := pairs(cfg)
	if _, err := os.Stat(first.Cert); cfg.Certificate != "" || !errors.Is(err, fs.ErrNotExist) { // New makes it at the first start
		others = append(others, first)
	}
	for _, pair := range others {
		_, err := cert.NewStore(pair, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// New makes the same checks as Check, and makes the certificate if there is none. It
// opens no socket; Run does.
func New(cfg config.Gateway, version string, log *slog.Logger) (*Server, error) {
	s := &Server{version: version, log: log, ready: make(chan struct{}), tunnel: tunnel.Handler{Logger: log}, access: accesslog.Log{Logger: log}}
	s.admit.init()
	s.tunnel.Short = s.admit.short
	if err := s.Apply(cfg); err != nil {
		return nil, err
	}
	return s, nil
}

// Apply makes cfg the configuration for new requests, connections and tunnels.
// Established ones continue. If Apply fails, the previous configuration stays in force.
func (s *Server) Apply(cfg config.Gateway) error {
	g := &generation{cfg: cfg, relays: cfg.Relays()}
	var err error
	if g.sites, err = site.New(cfg.Sites, s.log); err != nil {
		return err
	}
	if g.certs, err = s.certificates(g); err != nil {
		return err
	}
	if err := s.access.Open(cfg.AccessLog); err != nil {
		return fmt.Errorf("gateway.access_log: %w", err)
	}
	old := s.now.Swap(g)
	ceiling := memoryCeiling(cfg.Memory)
	s.admit.limit(cfg.Connections, ceiling, tunnel.Files())
	s.tunnel.SetAccess(tunnel.Access{Peers: g.relays, Allow: cfg.ConnectTo, Places: tunnel.PlacesIn(ceiling)})
	if old == nil {
		return nil
	}
	old.sites.Retire()
	was := old.cfg.Fixed()
	for i, is := range cfg.Fixed() {
		if is != was[i] {
			s.log.Warn("this change needs a restart", "option", "gateway."+is[0], "was", was[i][1], "is", is[1])
		}
	}
	return nil
}

// Reloaded records the outcome of a reload for the status. Even after a refused reload
// it reopens the access log, which may have been rotated.
func (s *Server) Reloaded(err error) {
	s.reload.Store(status.NewReload(err))
	if err == nil {
		return
	}
	if err := s.access.Open(s.now.Load().cfg.AccessLog); err != nil {
		s.log.Warn("cannot reopen the access log", "error", err)
	}
}

// certificates loads the certificates. It makes the self-signed one if none is
// configured and none exists.
func (s *Server) certificates(g *generation) (*cert.Store, error) {
	cfg := g.cfg
	if cfg.Certificate == "" {
		names := g.sites.Names()
		if host, err := os.Hostname(); err == nil {
			names = append(names, host)
		}
		_, created, err := cert.LoadOrCreate(cfg.StateDir, names)
		if err != nil {
			return nil, fmt.Errorf("gateway.state_dir: %w", err)
		}
		if created {
			s.log.Info("made a self-signed certificate", "directory", cfg.StateDir)
		}
	}
	return cert.NewStore(pairs(cfg))
}

// pairs returns the default certificate and those of sites.
func pairs(cfg config.Gateway) (first cert.Pair, others []cert.Pair) {
	first = cert.Kept(cfg.StateDir)
	if cfg.Certificate != "" {
		first = cert.Pair{Name: "gateway.certificate, gateway.key", Cert: cfg.Certificate, Key: cfg.Key}
	}
	for _, site := range cfg.Sites {
		if site.Certificate != "" {
			others = append(others, cert.Pair{
				Name: "site with host " + site.Hosts[0] + ": certificate, key",
				Cert: site.Certificate, Key: site.Key, Hosts: site.Hosts,
			})
		}
	}
	return first, others
}

// Ready is closed once the gateway serves.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends. It then opens no more tunnels, and waits for the open ones
// for up to lingerTimeout.
func (s *Server) Run(ctx context.Context) error {
	cfg := s.now.Load().cfg
	udp, tcp, err := listen(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	defer udp.Close()
	defer tcp.Close()
	defer func() { s.now.Load().sites.Retire() }()
	defer func() { _ = s.access.Open("") }() // flushes the last lines
	socket, err := status.Listen(cfg.StatusSocket)
	if err != nil {
		return err
	}
	defer socket.Close()
	figures, err := metrics.Listen(ctx, cfg.Metrics)
	if err != nil {
		return err
	}
	if figures != nil {
		defer figures.Close()
	}
	var plain net.Listener
	if cfg.Redirect != "" {
		var lc net.ListenConfig
		if plain, err = lc.Listen(ctx, "tcp", cfg.Redirect); err != nil {
			return fmt.Errorf("cannot listen on TCP %s (gateway.redirect): %w", cfg.Redirect, system.Cause(err))
		}
		defer plain.Close()
		s.plain = plain.Addr().(*net.TCPAddr).AddrPort()
	}
	s.addr = tcp.Addr().(*net.TCPAddr).AddrPort()
	s.started, s.until = time.Now(), ctx

	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		defer end()
		within, cancel := context.WithTimeout(serving, lingerTimeout)
		defer cancel()
		s.tunnel.End(within)
	})
	defer stop()
	group, ctx := errgroup.WithContext(serving)
	group.Go(func() error {
		return socket.Run(ctx, status.Answers{
			status.Status:  func() any { return s.Status() },
			status.History: func() any { return s.history.Report() },
		})
	})
	group.Go(func() error { s.history.Run(ctx, s.counters); return nil })
	group.Go(func() error { return every(ctx, watchInterval, s.watch) })
	group.Go(func() error { return every(ctx, filesInterval, s.watchFiles) })
	group.Go(func() error { s.tunnel.Run(ctx); return nil })
	group.Go(func() error { return metrics.Serve(ctx, figures, s.log, s.metrics) })
	group.Go(func() error { return s.serveTCP(ctx, tcp) })
	group.Go(func() error { return s.serveQUIC(ctx, udp) })
	if plain != nil {
		group.Go(func() error { return s.servePlain(ctx, plain) })
	}
	close(s.ready)
	s.log.Info("gateway ready", "listen", s.addr, "pin", s.pin(), "sites", len(cfg.Sites), "relays", len(cfg.Relays()), "version", s.version)
	err = group.Wait()
	s.log.Info("gateway stopped")
	return err
}

// watch monitors memory.
func (s *Server) watch() {
	s.admit.measure()
	if s.admit.short() {
		s.shed()
	}
}

// watchFiles monitors the certificates' files and the sites' directories. A drive may take long to answer.
func (s *Server) watchFiles() {
	g := s.now.Load()
	g.certs.Refresh(s.log)
	g.sites.Look()
}

// every calls do at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			do()
		}
	}
}

// shed closes connections when memory is short. Clients can use memory in ways that no
// limit on a single connection foresees.
func (s *Server) shed() {
	source, ends := s.admit.shed(s.admit.used.Load() - s.admit.ceiling.Load())
	for _, end := range ends {
		go end() // end may wait for the connection
	}
	if len(ends) > 0 && time.Since(s.shedLogged) >= shedInterval {
		s.shedLogged = time.Now()
		s.log.Warn("memory is short: connections were closed", "source", source, "connections", len(ends), "since_start", s.admit.refusals().Shed)
	}
}

// pin returns the pin of the default certificate, for hosts without one of their own.
func (s *Server) pin() cert.Pin { return cert.PinOf(s.now.Load().certs.Default().Leaf) }

func (s *Server) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.now.Load().certs.Get(hello)
}

// serveSite passes a request to the sites of the newest generation, if it can be
// admitted.
func (s *Server) serveSite(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, func(w http.ResponseWriter, r *http.Request) { s.now.Load().sites.ServeHTTP(w, r) })
}

// serve answers a request if it can be admitted. The access log includes refused
// requests.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, answer http.HandlerFunc) {
	s.access.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, err := entryOf(r.Context()).begin()
		if err != nil {
			refuse(w, err)
			return
		}
		defer end()
		answer(w, r)
	})).ServeHTTP(&patientWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r)
}

// refuse answers a request that was not admitted. The request had no effect, so the
// client can retry it (RFC 8470, section 5.2; RFC 9110, section 15.6.4).
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	if errors.Is(err, errEarly) {
		status = http.StatusTooEarly
	} else {
		w.Header().Set("Retry-After", "1")
	}
	// The response has no body: a client that grants no flow control window would block
	// it.
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

// listen opens the same port on UDP and TCP. With port 0 it finds a port that is free on
// both.
func listen(ctx context.Context, address string) (*net.UDPConn, net.Listener, error) {
	var lc net.ListenConfig
	host, asked, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	for try := 1; ; try++ {
		udp, err := lc.ListenPacket(ctx, "udp", address)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot listen on UDP %s: %w", address, system.Cause(err))
		}
		port := udp.LocalAddr().(*net.UDPAddr).Port
		tcp, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return udp.(*net.UDPConn), tcp, nil
		}
		udp.Close()
		if asked != "0" || try == 10 {
			return nil, nil, fmt.Errorf("cannot listen on TCP %s: %w", address, system.Cause(err))
		}
	}
}

func (s *Server) serveTCP(ctx context.Context, ln net.Listener) error {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", fmt.Sprintf(`h3=":%d"; ma=%d`, s.addr.Port(), altSvcAge))
		s.serveSite(w, r)
	})
	return s.serveHTTP(ctx, handler, func(srv *http.Server) error {
		srv.TLSConfig = &tls.Config{GetCertificate: s.certificate, MinVersion: tls.VersionTLS12}
		return srv.ServeTLS(&admittedListener{ln, &s.admit}, "", "")
	})
}

// servePlain serves clients that connect without TLS.
func (s *Server) servePlain(ctx context.Context, ln net.Listener) error {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(w http.ResponseWriter, r *http.Request) {
			g := s.now.Load()
			g.sites.ServePlain(w, r, g.cfg.ACMEWebroot, s.addr.Port())
		})
	})
	return s.serveHTTP(ctx, handler, func(srv *http.Server) error { return srv.Serve(&admittedListener{ln, &s.admit}) })
}

func (s *Server) serveHTTP(ctx context.Context, handler http.Handler, serve func(*http.Server) error) error {
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       tcpIdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients' mistakes
		ConnState:         s.conns.tcpState,
		ConnContext:       tcpContext,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	})
	err := serve(srv)
	if !stop() {
		<-ended // requests in progress have shutdownTimeout to finish
		return nil
	}
	return fmt.Errorf("serving TCP failed: %w", err)
}

func (s *Server) serveQUIC(ctx context.Context, conn *net.UDPConn) error {
	transport, err := tunnel.GatewayTransport(conn, s.now.Load().certs.Default())
	if err != nil {
		return fmt.Errorf("serving UDP failed: %w", err)
	}
	defer transport.Close()
	transport.VerifySourceAddress = func(net.Addr) bool { return s.admit.retry(time.Now()) }
	transport.ConnContext = s.admit.enterQUIC
	tlsConfig := http3.ConfigureTLSConfig(&tls.Config{GetCertificate: s.certificate})
	ln, err := transport.ListenEarly(tlsConfig, &quic.Config{
		GetConfigForClient: func(info *quic.ClientInfo) (*quic.Config, error) {
			return s.quicConfig(info.RemoteAddr), nil
		},
	})
	if err != nil {
		return fmt.Errorf("serving UDP failed: %w", err)
	}
	srv := &http3.Server{
		Handler:         http.HandlerFunc(s.serveHTTP3),
		MaxHeaderBytes:  maxHeaderBytes,
		EnableDatagrams: true,
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			// As in HTTP/1 and HTTP/2, without which httputil.ReverseProxy ends a response that its origin has broken
			// off as if it were complete.
			ctx = context.WithValue(ctx, http.ServerContextKey, true)
			return context.WithValue(ctx, quicConn{}, c)
		},
		Logger: slog.New(slog.DiscardHandler), // would log clients' mistakes
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept(ctx)
		if err != nil {
			end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
			defer cancel()
			_ = srv.Shutdown(end)
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serving UDP failed: %w", err)
		}
		go followQUIC(conn)
		go func() {
			c := s.conns.open(conn, s.profile(conn.RemoteAddr()).Name)
			defer s.conns.close(c)
			_ = srv.ServeQUICConn(conn) // the error says only how the client ended the connection
		}()
	}
}

// quicConn is the key of a request's *quic.Conn in its context.
type quicConn struct{}

// serveHTTP3 dispatches requests to the tunnels or to the sites. A request in 0-RTT
// packets can be a replay (RFC 8470). Safe requests are marked as early for the sites.
// All others wait for the end of the handshake, which no replay reaches.
func (s *Server) serveHTTP3(w http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(quicConn{}).(*quic.Conn)
	switch {
	case !early(conn):
		// followQUIC may not have run yet.
		if err := entryOf(conn.Context()).verify(time.Now()); err != nil {
			refuse(w, err)
			return
		}
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions:
		if err := wait(conn, r); err != nil {
			refuse(w, err)
			return
		}
	default:
		r = site.Early(r, conn.HandshakeComplete())
	}
	switch {
	case r.Method != http.MethodConnect:
		s.serveSite(w, r)
	case len(s.now.Load().relays) == 0:
		http.Error(w, "this gateway serves no relays", http.StatusNotImplemented)
	default:
		s.tunnel.ServeHTTP(w, r)
	}
}

// early reports whether the handshake is still in progress, so that all data so far came
// in 0-RTT packets.
func early(conn *quic.Conn) bool {
	select {
	case <-conn.HandshakeComplete():
		return false
	default:
		return true
	}
}

// wait waits for the end of the handshake. It returns an error if the waiting request or
// the connection cannot be admitted.
func wait(conn *quic.Conn, r *http.Request) error {
	e := entryOf(conn.Context())
	end, err := e.begin()
	if err != nil {
		return err
	}
	defer end()
	select {
	case <-conn.HandshakeComplete():
		return e.verify(time.Now())
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) quicConfig(client net.Addr) *quic.Config {
	stream, connection := s.admit.windows()
	c := &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		MaxIncomingStreams:             maxStreams,
		MaxIdleTimeout:                 idleTimeout,
		InitialStreamReceiveWindow:     stream,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: connection,
		MaxConnectionReceiveWindow:     maxConnectionWindow,
		AllowConnectionWindowIncrease:  func(*quic.Conn, uint64) bool { return !s.admit.tight() },
		Allow0RTT:                      true,
		EnableDatagrams:                true, // for connect-udp
		Burst:                          s.profile(client).Burst,
		Tracer:                         trace.ToDir,

		// What an end of a tunnel has sent before it was reset arrives.
		EnableStreamResetPartialDelivery: true,
	}
	for _, relay := range s.now.Load().relays {
		if relay.MayComeFrom(address(client)) {
			c.MaxIncomingStreams = tunnel.MaxStreams
			break
		}
	}
	return c
}

// profile returns the transport profile for a client, which depends on its address.
func (s *Server) profile(client net.Addr) profile.Profile {
	cfg, addr := &s.now.Load().cfg, address(client)
	if slices.ContainsFunc(cfg.Mesh, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return cfg.MeshProfile
	}
	return cfg.Standard
}

func address(a net.Addr) netip.Addr {
	ap, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return ap.AddrPort().Addr().Unmap().WithZone("")
}
