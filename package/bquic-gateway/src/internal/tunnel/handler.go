// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go/http3"

	"bquic/internal/news"
	"bquic/internal/peer"
)

// MaxStreams is the number of streams that a gateway grants a relay. quic-go's default of 100 would limit a mesh node to
// 100 TCP connections.
const MaxStreams = 4096

// IdleTimeout is how long a relay's connection to a gateway lasts without packets (quic.Config.MaxIdleTimeout): as long as
// Linux repeats TCP segments (tcp_retries2). A node that is upgraded, or an access point that looks for weather radar on its
// channel, which takes 10 minutes (EN 301 893), costs no carried connection.
const IdleTimeout = 15 * time.Minute

// ProbeTarget is a target that every gateway refuses. A relay requests it to learn
// whether the gateway accepts the relay. If so, the refusal is TargetProhibited, or
// UplinkDown while the gateway does not reach the Internet.
const ProbeTarget = "0.0.0.0:9"

const (
	dialTimeout = 10 * time.Second
	// givenUp is how long a client must have waited before it gave up, for the target to
	// count as silent.
	givenUp      = time.Second
	tickInterval = time.Second
	// endInterval is how often End checks for open tunnels.
	endInterval = 50 * time.Millisecond
	// maxHost is the limit on a target's name (RFC 1035, section 2.3.4), in bytes.
	maxHost = 255
	// maxDetail is the limit on a refusal's Detail, in bytes.
	maxDetail = 256
)

// A Refusal says why a gateway did not open a tunnel. The response carries it as
// Proxy-Status (RFC 9209), so that the relay can act on it and log it.
type Refusal struct {
	Status int    // HTTP status
	Type   string // proxy error type, RFC 9209, section 2.3
	Detail string // one line for the log
}

func (r *Refusal) Error() string { return r.Detail }

// OfTarget reports whether the gateway cannot reach the target, or may not. Another target may be reached.
func (r *Refusal) OfTarget() bool {
	switch r.Type {
	case TargetProhibited, TargetUnroutable, connectionRefused, connectionTimeout:
		return true
	}
	return false
}

// Proxy error types of RFC 9209, section 2.3.
const (
	RequestDenied     = "http_request_denied" // wrong token, client not allowed
	TargetProhibited  = "destination_ip_prohibited"
	TargetUnroutable  = "destination_ip_unroutable"
	connectionRefused = "connection_refused"
	connectionTimeout = "connection_timeout"
	LimitReached      = "connection_limit_reached"
	UplinkDown        = "destination_unavailable" // the gateway does not reach the Internet
	dnsError          = "dns_error"
	requestError      = "http_request_error"
	internalError     = "proxy_internal_error"
)

// ReadRefusal reads the Refusal from a response to CONNECT that is not 2xx.
func ReadRefusal(res *http.Response) *Refusal {
	r := &Refusal{Status: res.StatusCode}
	for param := range strings.SplitSeq(res.Header.Get("Proxy-Status"), "; ") {
		switch k, v, _ := strings.Cut(param, "="); k {
		case "error":
			r.Type = v
		case "details":
			if s, err := strconv.Unquote(v); err == nil {
				r.Detail = s
			}
		}
	}
	if r.Detail == "" {
		r.Detail = fmt.Sprintf("HTTP status %d", r.Status)
	}
	return r
}

// write sends the refusal as the response. It replaces all characters of Detail that an
// sf-string cannot carry unescaped (RFC 8941, section 3.3.3).
func (r *Refusal) write(w http.ResponseWriter) {
	detail := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '?'
		}
		return c
	}, r.Detail[:min(len(r.Detail), maxDetail)])
	w.Header().Set("Proxy-Status", fmt.Sprintf(`bquic; error=%s; details="%s"`, r.Type, detail))
	if r.Status == http.StatusProxyAuthRequired {
		w.Header().Set("Proxy-Authenticate", "Bearer")
	}
	w.WriteHeader(r.Status)
}

// A Handler answers CONNECT requests. Set its fields before the first request. It
// refuses all requests until SetAccess is called. Call Run once.
type Handler struct {
	Logger *slog.Logger
	// Short reports whether memory is short. New tunnels are then refused. nil: memory
	// is never short.
	Short func() bool
	// Welcome is called for each request with a valid token. It may be nil.
	Welcome func(*http.Request)

	mu      sync.Mutex
	allow   []netip.Prefix
	members []*member
	granted map[*grant]bool
	places  peer.Places
	total   uint64 // tunnels
	uplink  uplink
	news    news.State // of the uplink
	reports reports
	ending  bool

	bytes  Bytes
	denied atomic.Uint64
}

// Run does the periodic work until ctx ends: it logs counts of refusals, checks the uplink, and ends what has lost its address.
func (h *Handler) Run(ctx context.Context) {
	tick := time.NewTicker(tickInterval)
	defer tick.Stop()
	look := time.NewTicker(watchInterval)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.tick(now)
			h.tryUplink(ctx, now)
		case <-look.C:
			h.endStrayed()
		}
	}
}

// End stops opening tunnels, and returns when no tunnel is open or ctx ends. It refuses relays
// as if the uplink were down: they send new connections elsewhere, and open tunnels continue.
func (h *Handler) End(ctx context.Context) {
	h.mu.Lock()
	h.ending = true
	h.mu.Unlock()
	if open := h.Open(); open > 0 {
		h.Logger.Info("stopping: no new tunnels, waiting for open ones to end", "tunnels", open)
	}
	tick := time.NewTicker(endInterval)
	defer tick.Stop()
	for h.Open() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Open returns how many tunnels are open or being opened.
func (h *Handler) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.places.Used()
}

// Crowded reports whether more than half of the places are taken.
func (h *Handler) Crowded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return 2*h.places.Used() > h.places.Total()
}

// tick logs what was counted or has changed but was not logged.
func (h *Handler) tick(now time.Time) {
	h.mu.Lock()
	due := h.reports.due(now)
	h.mu.Unlock()
	for _, r := range due {
		h.Logger.Info("more tunnels refused", "of", r.who, "count", r.count, "within", r.every)
	}
	h.note(now, func(*uplink) {})
}

// A question is a request for a tunnel, as far as it has been parsed.
type question struct {
	client netip.Addr
	peer   string // "" until the token is verified
	target string
	port   string
	probe  bool
}

// refused logs and counts a refusal.
func (h *Handler) refused(r *http.Request, q *question, m *member, refusal *Refusal) {
	if q.probe {
		h.Logger.Debug("probe", "client", r.RemoteAddr, "peer", q.peer, "status", refusal.Status)
		return
	}
	who, every := "peer "+q.peer, peerReport
	if m == nil {
		who, every = peer.SourceOf(q.client).String(), strangerReport
		h.denied.Add(1)
	} else {
		m.refused.Add(1)
	}
	h.mu.Lock()
	now := h.reports.add(time.Now(), who, every)
	h.mu.Unlock()
	level := slog.LevelDebug
	if now {
		level = slog.LevelInfo
	}
	h.Logger.Log(r.Context(), level, "tunnel refused", "client", r.RemoteAddr, "peer", q.peer, "target", shown(q.target),
		"status", refusal.Status, "reason", shown(refusal.Detail))
}

// ServeHTTP opens a tunnel and returns when it has ended.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &question{target: r.Host}
	if client, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		q.client = client.Addr()
	}
	m, cfg, token := h.authenticate(r)
	var g *grant
	var conn net.Conn
	err := check(w, r, q, cfg)
	if err == nil && h.Welcome != nil {
		h.Welcome(r)
	}
	if err == nil && q.probe {
		err = h.probe()
	}
	if err == nil {
		if g, err = h.enter(m, token, q.client); err == nil {
			defer h.leave(g)
			conn, err = h.connect(r.Context(), g, r.Proto == UDP, q.target)
		}
	}
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		h.refused(r, q, m, refusal)
		refusal.write(w)
		return
	case err != nil: // the client has given up
		panic(http.ErrAbortHandler)
	}
	h.opened(g, conn)

	switch conn := conn.(type) {
	case *net.UDPConn:
		err = h.serveUDP(w, r, conn, q.port, g)
	case *net.TCPConn:
		err = h.serveTCP(w, r, conn, g)
	}
	if cause := context.Cause(g.ctx); cause != nil {
		err = cause
	}
	h.Logger.Debug("tunnel ended", "client", r.RemoteAddr, "peer", q.peer, "target", shown(q.target), "error", err)
}

func (h *Handler) serveTCP(w http.ResponseWriter, r *http.Request, conn *net.TCPConn, g *grant) error {
	w.WriteHeader(http.StatusOK)
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		Reset(conn)
		return err
	}
	str.QUICStream().SetClient(clientOf(r.Header))
	stop := context.AfterFunc(g.ctx, func() {
		Reset(conn)
		Cancel(str, http3.ErrCodeConnectError)
	})
	defer stop()
	limited, leave := g.limit(str, r)
	defer leave()
	return Splice(conn, limited, &g.bytes)
}

// limit returns the stream of a request, limited to the peer's rate. The caller must call leave when the tunnel has ended.
func (g *grant) limit(str *http3.Stream, r *http.Request) (limited DatagramStream, leave func()) {
	if g.limits == nil {
		return str, func() {}
	}
	client := ""
	if n := clientOf(r.Header); n > 0 {
		client = fmt.Sprint(r.RemoteAddr, " ", n)
	}
	return newRated(g.ctx, str, g.limits, g.limits.enter(client)), func() { g.limits.leave(client) }
}

// check parses the request into q, or returns a *Refusal. cfg is the configuration of
// the peer, nil if the token is not valid.
func check(w http.ResponseWriter, r *http.Request, q *question, cfg *peer.Config) error {
	if cfg == nil {
		return &Refusal{http.StatusProxyAuthRequired, RequestDenied, "wrong or missing token"}
	}
	q.peer = cfg.Name
	if !cfg.MayComeFrom(q.client) {
		return &Refusal{http.StatusForbidden, RequestDenied, "the client is not in an allowed prefix"}
	}
	if _, ok := w.(http3.HTTPStreamer); !ok || r.ProtoMajor != 3 {
		return &Refusal{http.StatusNotImplemented, requestError, "CONNECT is available only over HTTP/3"}
	}
	switch r.Proto {
	case "HTTP/3.0":
	case UDP:
		target, err := udpTarget(r)
		if err != nil {
			q.target = r.URL.Path
			return &Refusal{http.StatusBadRequest, requestError, err.Error()}
		}
		q.target = target
	default:
		return &Refusal{http.StatusNotImplemented, requestError, "unknown :protocol"}
	}
	host, port, err := net.SplitHostPort(q.target)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || len(host) > maxHost || strings.ContainsAny(host, "@/?#\\ ") || perr != nil || n == 0 {
		return &Refusal{http.StatusBadRequest, requestError, "target is not host:port"}
	}
	q.port, q.probe = port, q.target == ProbeTarget && r.Proto != UDP
	return nil
}

// connect connects a tunnel to its target. The error may be a *Refusal.
func (h *Handler) connect(ctx context.Context, g *grant, udp bool, target string) (net.Conn, error) {
	h.mu.Lock()
	allow := h.allow
	h.mu.Unlock()
	network := "tcp"
	if udp {
		network = "udp"
	}
	conn, err := h.dial(ctx, network, target, allow)
	if err == nil && g.ctx.Err() != nil {
		conn.Close()
		return nil, context.Cause(g.ctx)
	}
	return conn, err
}

// dial connects to target and reports the outcome to the uplink. The error may be a *Refusal.
func (h *Handler) dial(ctx context.Context, network, target string, allow []netip.Prefix) (net.Conn, error) {
	begin := time.Now()
	conn, tried, err := dial(ctx, network, target, allow)
	if err == nil {
		if network == "tcp" { // with UDP, nothing has been sent yet
			h.reached(conn.RemoteAddr().(*net.TCPAddr).AddrPort())
		}
		return conn, nil
	}
	if ctx.Err() != nil {
		if time.Since(begin) >= givenUp {
			h.failed(tried, connectionTimeout)
		}
		return nil, ctx.Err()
	}
	refusal := refuse(err)
	h.failed(tried, refusal.Type)
	if refusal.Status >= 500 && refusal.Type != connectionRefused && h.isDown() {
		refusal = uplinkRefusal(refusal.Detail)
	}
	return nil, refusal
}

// dial connects to target, and returns the addresses that it tried. It checks each
// address against the policy just before connecting to it, so that a second DNS answer
// cannot bypass the check.
func dial(ctx context.Context, network, target string, allow []netip.Prefix) (_ net.Conn, tried []netip.AddrPort, _ error) {
	var mu sync.Mutex // two addresses can be tried at a time, one of them even after DialContext has returned
	var addresses []netip.AddrPort
	d := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: Patient,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err == nil {
				policy := Policy{Allow: allow, Own: own, Behind: behind}
				err = policy.Allowed(ap.Addr())
			}
			if err != nil {
				return &Refusal{http.StatusForbidden, TargetProhibited, err.Error()}
			}
			mu.Lock()
			defer mu.Unlock()
			addresses = append(addresses, ap)
			return nil
		},
	}
	conn, err := d.DialContext(ctx, network, target)
	mu.Lock()
	defer mu.Unlock()
	return conn, slices.Clone(addresses), err
}

// refuse converts the error of a failed connection into a Refusal.
func refuse(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	r := &Refusal{http.StatusBadGateway, internalError, err.Error()}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		r.Type = dnsError
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		r.Type = connectionRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		r.Type = TargetUnroutable
	case os.IsTimeout(err):
		r.Status, r.Type = http.StatusGatewayTimeout, connectionTimeout
	}
	return r
}
