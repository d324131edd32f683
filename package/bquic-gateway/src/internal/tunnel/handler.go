// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go/http3"
)

// MaxStreams is the number of streams (quic.Config.MaxIncomingStreams) that a
// gateway should grant a relay: quic-go's default of 100 would limit a mesh
// node to 100 TCP connections.
const MaxStreams = 4096

// ProbeTarget is a target that no gateway ever allows. A relay asks for it to
// learn from the kind of refusal (TargetProhibited) that it is welcome itself.
const ProbeTarget = "0.0.0.0:9"

const dialTimeout = 10 * time.Second

// A Refusal is why a gateway did not open a tunnel. It travels in the response
// as Proxy-Status (RFC 9209), so that the relay can act on it and log it.
type Refusal struct {
	Status int    // HTTP status
	Type   string // proxy error type, RFC 9209, section 2.3
	Detail string // one line for the log
}

func (r *Refusal) Error() string { return r.Detail }

// Proxy error types of RFC 9209, section 2.3.
const (
	RequestDenied     = "http_request_denied" // wrong token, client not allowed
	TargetProhibited  = "destination_ip_prohibited"
	TargetUnroutable  = "destination_ip_unroutable"
	ConnectionRefused = "connection_refused"
	ConnectionTimeout = "connection_timeout"
	LimitReached      = "connection_limit_reached"
	dnsError          = "dns_error"
	requestError      = "http_request_error"
	internalError     = "proxy_internal_error"
)

// ReadRefusal returns the reason in a response to CONNECT that is not 2xx.
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

// write answers with the refusal. The characters of Detail are printable ASCII:
// an sf-string (RFC 8941, section 3.3.3) knows no others.
func (r *Refusal) write(w http.ResponseWriter) {
	detail := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '?'
		}
		return c
	}, r.Detail)
	w.Header().Set("Proxy-Status", fmt.Sprintf(`bquic; error=%s; details="%s"`, r.Type, detail))
	if r.Status == http.StatusProxyAuthRequired {
		w.Header().Set("Proxy-Authenticate", "Bearer")
	}
	w.WriteHeader(r.Status)
}

// A Handler answers CONNECT. Its fields are set before the first request;
// SetAccess changes three of them later.
type Handler struct {
	// Token is what a relay must show. Required: without one, nobody is let in.
	Token string
	// Clients are the prefixes that relays may come from. Empty: any.
	Clients []netip.Prefix
	// Allow limits targets, as Policy.Allow.
	Allow []netip.Prefix
	// Limit is the largest number of tunnels at a time. 0: MaxStreams.
	Limit int

	Logger *slog.Logger

	mu    sync.RWMutex // of Token, Clients and Allow
	open  atomic.Int64
	total atomic.Uint64
	bytes Bytes
}

// Stats are a Handler's figures. Bytes are as the relay sees them.
type Stats struct {
	Open  int64  `json:"open"`
	Total uint64 `json:"total"`
	Up    uint64 `json:"up_bytes"`
	Down  uint64 `json:"down_bytes"`
}

func (h *Handler) Stats() Stats {
	return Stats{h.open.Load(), h.total.Load(), h.bytes.FromStream.Load(), h.bytes.ToStream.Load()}
}

// SetAccess says who may open tunnels from now on, and where to. Those that are
// open stay.
func (h *Handler) SetAccess(token string, clients, allow []netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Token, h.Clients, h.Allow = token, clients, allow
}

func (h *Handler) access() (token string, clients, allow []netip.Prefix) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.Token, h.Clients, h.Allow
}

// ServeHTTP opens a tunnel and returns when it has ended.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, port, conn, err := h.connect(w, r)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		level := slog.LevelInfo
		if r.Host == ProbeTarget && refusal.Type == TargetProhibited {
			level = slog.LevelDebug
		}
		h.Logger.Log(r.Context(), level, "tunnel refused", "client", r.RemoteAddr, "target", target, "status", refusal.Status, "reason", refusal.Detail)
		refusal.write(w)
		return
	case err != nil: // the client has gone
		panic(http.ErrAbortHandler)
	}
	defer h.open.Add(-1)
	h.total.Add(1)

	switch conn := conn.(type) {
	case *net.UDPConn:
		err = h.serveUDP(w, r, conn, port)
	case *net.TCPConn:
		err = h.serveTCP(w, conn)
	}
	h.Logger.Debug("tunnel ended", "client", r.RemoteAddr, "target", target, "error", err)
}

func (h *Handler) serveTCP(w http.ResponseWriter, conn *net.TCPConn) error {
	w.WriteHeader(http.StatusOK)
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		Reset(conn)
		return err
	}
	return Splice(conn, nil, str, &h.bytes)
}

// connect checks the request and connects to its target, or returns a
// *Refusal. With a connection, it has counted the tunnel as open.
func (h *Handler) connect(w http.ResponseWriter, r *http.Request) (target, port string, _ net.Conn, err error) {
	target = r.Host
	token, clients, allow := h.access()
	if !authorized(r, token) {
		return target, "", nil, &Refusal{http.StatusProxyAuthRequired, RequestDenied, "wrong or missing token"}
	}
	if !clientAllowed(r.RemoteAddr, clients) {
		return target, "", nil, &Refusal{http.StatusForbidden, RequestDenied, "client is in no allowed prefix"}
	}
	network := "tcp"
	if _, ok := w.(http3.HTTPStreamer); !ok || r.ProtoMajor != 3 {
		return target, "", nil, &Refusal{http.StatusNotImplemented, requestError, "CONNECT is offered by HTTP/3 only"}
	}
	switch r.Proto {
	case "HTTP/3.0":
	case UDP:
		network = "udp"
		if target, err = udpTarget(r); err != nil {
			return r.URL.Path, "", nil, &Refusal{http.StatusBadRequest, requestError, err.Error()}
		}
	default:
		return target, "", nil, &Refusal{http.StatusNotImplemented, requestError, "no such :protocol"}
	}
	host, port, err := net.SplitHostPort(target)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "@/?#\\ ") || perr != nil || n == 0 {
		return target, "", nil, &Refusal{http.StatusBadRequest, requestError, "target is not host:port"}
	}

	limit := int64(h.Limit)
	if limit == 0 {
		limit = MaxStreams
	}
	if h.open.Add(1) > limit {
		h.open.Add(-1)
		return target, port, nil, &Refusal{http.StatusServiceUnavailable, LimitReached, fmt.Sprintf("limit of %d tunnels reached", limit)}
	}
	conn, err := h.dial(r.Context(), network, target, allow)
	if err != nil {
		h.open.Add(-1)
		return target, port, nil, err
	}
	return target, port, conn, nil
}

func authorized(r *http.Request, want string) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	if want == "" || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	// Hashed, so that the time tells nothing of the length either.
	a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func clientAllowed(remote string, clients []netip.Prefix) bool {
	if len(clients) == 0 {
		return true
	}
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	addr := ap.Addr().Unmap().WithZone("")
	for _, p := range clients {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// dial connects to target. The policy is asked about each address at the very
// moment it is connected to, so DNS cannot answer differently in between.
func (h *Handler) dial(ctx context.Context, network, target string, allow []netip.Prefix) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: KeepAlive(),
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err == nil {
				policy := Policy{Allow: allow, Own: own}
				err = policy.Allowed(ap.Addr())
			}
			if err != nil {
				return &Refusal{http.StatusForbidden, TargetProhibited, err.Error()}
			}
			return nil
		},
	}
	conn, err := d.DialContext(ctx, network, target)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, refuse(err)
}

// refuse tells the relay why a target could not be connected to.
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
		r.Type = ConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH),
		errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		r.Type = TargetUnroutable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT), isTimeout(err):
		r.Status, r.Type = http.StatusGatewayTimeout, ConnectionTimeout
	}
	return r
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
