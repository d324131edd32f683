// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sync/errgroup"

	"bquic/internal/cert"
	"bquic/internal/config"
	"bquic/internal/profile"
	"bquic/internal/status"
	"bquic/internal/tunnel"
)

const (
	// 100 Mbit/s at an RTT of 200 ms, a long mesh path, are 2.5 MB in flight.
	// quic-go grows a window to its maximum only while data arrives fast enough
	// to need it, and memory is used only for what the receiver has not read:
	// a stalled upload, or a relay whose targets are slow.
	initialStreamWindow     = 512 << 10
	maxStreamWindow         = 3 << 20
	initialConnectionWindow = 768 << 10
	maxConnectionWindow     = 4 << 20

	idleTimeout     = 30 * time.Second
	shutdownTimeout = 2 * time.Second
	// The TCP side's limits on clients that send slowly, or nothing.
	headerTimeout  = 10 * time.Second
	tcpIdleTimeout = 2 * time.Minute

	// altSvcAge is how long a browser may remember HTTP/3, in seconds.
	altSvcAge = 24 * 3600
)

// A Server is a gateway. Create it with New.
type Server struct {
	cfg     config.Gateway
	version string
	log     *slog.Logger
	started time.Time
	cert    tls.Certificate
	pin     cert.Pin
	sites   *sites
	tunnel  *tunnel.Handler // nil without a token
	conns   connections
	ready   chan struct{}
	addr    netip.AddrPort // valid once ready
}

// Check says what is wrong with the files that the configuration refers to.
func Check(cfg config.Gateway) error {
	sites, err := newSites(cfg.Sites, slog.New(slog.DiscardHandler))
	if err == nil {
		sites.close()
		if cfg.Certificate != "" {
			_, err = loadCertificate(cfg)
		}
	}
	return err
}

// New also checks what Check checks, and makes the certificate if there is
// none. Nothing is opened to the network before Run.
func New(cfg config.Gateway, version string, log *slog.Logger) (*Server, error) {
	s := &Server{cfg: cfg, version: version, log: log, ready: make(chan struct{})}
	var err error
	if s.sites, err = newSites(cfg.Sites, log); err != nil {
		return nil, err
	}
	if cfg.Certificate != "" {
		s.cert, err = loadCertificate(cfg)
	} else {
		err = s.ownCertificate()
	}
	if err != nil {
		s.sites.close()
		return nil, err
	}
	s.pin = cert.PinOf(s.cert.Leaf)
	if cfg.Token != "" {
		s.tunnel = &tunnel.Handler{Token: cfg.Token, Clients: cfg.ConnectFrom, Allow: cfg.ConnectTo, Logger: log}
	}
	return s, nil
}

func loadCertificate(cfg config.Gateway) (tls.Certificate, error) {
	c, err := cert.Load(cfg.Certificate, cfg.Key)
	if err != nil {
		return c, fmt.Errorf("gateway.certificate, gateway.key: %w", err)
	}
	return c, nil
}

// ownCertificate loads the self-signed certificate, or makes it.
func (s *Server) ownCertificate() (err error) {
	names := s.sites.names()
	if host, herr := os.Hostname(); herr == nil {
		names = append(names, host)
	}
	var created bool
	if s.cert, created, err = cert.LoadOrCreate(s.cfg.StateDir, names); err != nil {
		return fmt.Errorf("gateway.state_dir: %w", err)
	}
	if created {
		s.log.Info("made a self-signed certificate", "directory", s.cfg.StateDir)
	}
	return nil
}

// Ready is closed once the gateway serves.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr returns the address that the gateway listens on, once it is ready.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	udp, tcp, err := listen(ctx, s.cfg.Listen)
	if err != nil {
		return err
	}
	defer udp.Close()
	defer tcp.Close()
	defer s.sites.close()
	socket, err := status.Listen(s.cfg.StatusSocket)
	if err != nil {
		return err
	}
	defer socket.Close()
	s.addr = tcp.Addr().(*net.TCPAddr).AddrPort()
	s.started = time.Now()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return socket.Run(ctx, func() any { return s.Status() }) })
	group.Go(func() error { return s.serveTCP(ctx, tcp) })
	group.Go(func() error { return s.serveQUIC(ctx, udp) })
	close(s.ready)
	s.log.Info("gateway ready", "listen", s.addr, "pin", s.pin, "sites", len(s.cfg.Sites), "relays", s.tunnel != nil, "version", s.version)
	err = group.Wait()
	s.log.Info("gateway stopped")
	return err
}

// listen opens the same port of UDP and TCP.
func listen(ctx context.Context, address string) (*net.UDPConn, net.Listener, error) {
	var lc net.ListenConfig
	udp, err := lc.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot listen on UDP %s: %w", address, cause(err))
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, nil, err
	}
	port := udp.LocalAddr().(*net.UDPAddr).Port
	tcp, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		udp.Close()
		return nil, nil, fmt.Errorf("cannot listen on TCP %s: %w", address, cause(err))
	}
	return udp.(*net.UDPConn), tcp, nil
}

// cause returns what the kernel said, without the address, which net repeats.
func cause(err error) error {
	var syscall *os.SyscallError
	if errors.As(err, &syscall) {
		return syscall.Err
	}
	return err
}

func (s *Server) serveTCP(ctx context.Context, ln net.Listener) error {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", fmt.Sprintf(`h3=":%d"; ma=%d`, s.addr.Port(), altSvcAge))
		s.sites.ServeHTTP(w, r)
	})
	srv := &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       tcpIdleTimeout,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // what clients do wrong
		ConnState:         s.conns.tcpState,
	}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(end) != nil {
			srv.Close()
		}
	})
	err := srv.ServeTLS(ln, "", "")
	stop()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving TCP failed: %w", err)
}

func (s *Server) serveQUIC(ctx context.Context, conn *net.UDPConn) error {
	transport, err := tunnel.GatewayTransport(conn, &s.cert)
	if err != nil {
		return fmt.Errorf("serving UDP failed: %w", err)
	}
	defer transport.Close()
	tlsConfig := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{s.cert}})
	ln, err := transport.ListenEarly(tlsConfig, &quic.Config{
		GetConfigForClient: func(info *quic.ClientInfo) (*quic.Config, error) {
			return s.quicConfig(info.RemoteAddr), nil
		},
	})
	if err != nil {
		return fmt.Errorf("serving UDP failed: %w", err)
	}
	srv := &http3.Server{
		Handler: http.HandlerFunc(s.serveHTTP3),
		Logger:  slog.New(slog.DiscardHandler), // says what clients do wrong
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
		go func() {
			c := s.conns.open(conn, s.profile(conn.RemoteAddr()).Name)
			defer s.conns.close(c)
			_ = srv.ServeQUICConn(conn) // how a connection ends is the client's business
		}()
	}
}

// serveHTTP3 tells relays' requests from those for sites.
func (s *Server) serveHTTP3(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodConnect:
		s.sites.ServeHTTP(w, r)
	case s.tunnel == nil:
		http.Error(w, "no relays are served here", http.StatusNotImplemented)
	default:
		s.tunnel.ServeHTTP(w, r)
	}
}

func (s *Server) quicConfig(client net.Addr) *quic.Config {
	c := &quic.Config{
		MaxIdleTimeout:                 idleTimeout,
		InitialStreamReceiveWindow:     initialStreamWindow,
		MaxStreamReceiveWindow:         maxStreamWindow,
		InitialConnectionReceiveWindow: initialConnectionWindow,
		MaxConnectionReceiveWindow:     maxConnectionWindow,
		Burst:                          s.profile(client).Burst,
	}
	if s.tunnel != nil && contains(s.cfg.ConnectFrom, address(client)) {
		c.MaxIncomingStreams = tunnel.MaxStreams
	}
	return c
}

// profile returns the profile for a client.
func (s *Server) profile(client net.Addr) profile.Profile {
	if contains(s.cfg.Mesh, address(client)) {
		return s.cfg.MeshProfile
	}
	return s.cfg.Standard
}

func address(a net.Addr) netip.Addr {
	udp, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}
	return udp.AddrPort().Addr().Unmap().WithZone("")
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
