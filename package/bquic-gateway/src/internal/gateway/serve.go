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
	"slices"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/profile"
	"bquic/internal/site"
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
	idleTimeout      = 2 * time.Minute
	shutdownTimeout  = 2 * time.Second // for requests
	// Limits on TCP clients that send slowly or not at all.
	headerTimeout  = 10 * time.Second
	tcpIdleTimeout = 2 * time.Minute
	// maxHeaderBytes bounds a request's header section; browsers send up to 8 KiB.
	maxHeaderBytes = 64 << 10

	// maxStreams is the limit on concurrent requests per connection (RFC 9114, section
	// 6.1, and RFC 9113, section 5.1.2, recommend at least 100).
	maxStreams = 100

	// altSvcAge is how long a browser may remember HTTP/3, in seconds.
	altSvcAge = 24 * 3600
)

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
	})).ServeHTTP(newPatientWriter(w, r), r)
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
			c.MaxIdleTimeout = tunnel.IdleTimeout
			break
		}
	}
	return c
}

// welcome lets a relay that has shown a valid token open as many streams as it may have tunnels. Without one, a client that has only an
// address from connect_from could fill the memory with requests that it does not complete.
func welcome(r *http.Request) {
	r.Context().Value(quicConn{}).(*quic.Conn).GrantStreams(tunnel.MaxStreams)
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
