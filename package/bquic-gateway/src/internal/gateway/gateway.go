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
	"net/netip"
	"os"
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
	"bquic/internal/site"
	"bquic/internal/status"
	"bquic/internal/system"
	"bquic/internal/tunnel"
)

const (
	lingerTimeout = 30 * time.Second // for tunnels

	watchInterval  = time.Second
	filesInterval  = 5 * time.Second
	silentInterval = 10 * time.Second
	// shedInterval is how often it is logged that connections were closed: clients may connect again each second.
	shedInterval = 10 * time.Minute
)

// A Server is a gateway. Create it with New.
type Server struct {
	version string
	log     *slog.Logger
	started time.Time
	until   context.Context            // Run's
	now     atomic.Pointer[generation] // for new requests and connections
	fixed   [][2]string                // what a reload does not change
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
	all := pairs(cfg)
	if _, err := os.Stat(all[0].Cert); cfg.Certificate == "" && errors.Is(err, fs.ErrNotExist) {
		all = all[1:] // New makes the first at the first start
	}
	for _, pair := range all {
		_, err := cert.NewStore(pair)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// New makes the same checks as Check, and makes the certificate if there is none. It
// opens no socket; Run does.
func New(cfg config.Gateway, version string, log *slog.Logger) (*Server, error) {
	s := &Server{version: version, log: log, ready: make(chan struct{}), tunnel: tunnel.Handler{Logger: log}, access: accesslog.Log{Logger: log}}
	s.admit.init()
	s.tunnel.Short, s.tunnel.Welcome = s.admit.short, welcome
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
		s.fixed = cfg.Fixed()
		return nil
	}
	old.sites.Retire()
	for i, is := range cfg.Fixed() {
		if was := s.fixed[i]; is != was {
			s.log.Warn("this change needs a restart", "option", "gateway."+is[0], "was", was[1], "is", is[1])
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
	return cert.NewStore(pairs(cfg)...)
}

// pairs returns the default certificate, then those of sites.
func pairs(cfg config.Gateway) []cert.Pair {
	all := []cert.Pair{cert.Kept(cfg.StateDir)}
	if cfg.Certificate != "" {
		all[0] = cert.Pair{Name: "gateway.certificate, gateway.key", Cert: cfg.Certificate, Key: cfg.Key}
	}
	for _, site := range cfg.Sites {
		if site.Certificate != "" {
			all = append(all, cert.Pair{
				Name: "site with host " + site.Hosts[0] + ": certificate, key",
				Cert: site.Certificate, Key: site.Key, Hosts: site.Hosts,
			})
		}
	}
	return all
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
			status.Summary: func() any { return s.summarize() },
			status.History: func() any { return s.history.Report() },
		})
	})
	group.Go(func() error { s.history.Run(ctx, s.counters); return nil })
	group.Go(func() error { return every(ctx, watchInterval, s.watch) })
	group.Go(func() error { return every(ctx, filesInterval, s.watchFiles) })
	group.Go(func() error { return every(ctx, silentInterval, func() { s.endSilent(idleTimeout) }) })
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

// endSilent closes connections that have been silent for long and have no tunnels, and those with tunnels, too, while more than half of the
// places for tunnels are taken. A relay that lives sends a PING often enough. One that has lost its power cannot say that its tunnels have ended.
func (s *Server) endSilent(long time.Duration) {
	for _, conn := range s.conns.silent(time.Now(), long) {
		relay := conn.GrantStreams(0) == tunnel.MaxStreams // or a visitor has left, and his requests cannot end
		if streams, _ := conn.Held(); !relay || streams == 0 || s.tunnel.Crowded() {
			go conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "silent") // may wait for the connection
		}
	}
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
