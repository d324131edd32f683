// SPDX-License-Identifier: Apache-2.0

package site

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"bquic/internal/cert"
	"bquic/internal/config"
)

const (
	originDialTimeout   = 5 * time.Second
	originHeaderTimeout = time.Minute

	// flushInterval is how long a part of a response may wait for the rest. Without a length, and for events, nothing
	// waits.
	flushInterval = 100 * time.Millisecond

	// While another origin is up, an origin that fails receives no requests for
	// minDown. This time doubles with each failure, up to maxDown.
	minDown = time.Second
	maxDown = 30 * time.Second

	// Of failures, a site logs this many at a time, and then one in each interval: clients may know requests
	// that make an origin fail.
	failuresLogged  = 10
	failureInterval = 10 * time.Second
	maxReason       = 256 // bytes; an error may quote what the origin has sent
)

// A proxy forwards requests to the site's origins. It keeps the Host that the client sent.
type proxy struct {
	httputil.ReverseProxy
	origins   *origins
	earlyData bool // the origins understand Early-Data
}

func newProxy(site config.Site, log *slog.Logger) (*proxy, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.DialContext = dial
	transport.TLSHandshakeTimeout = originDialTimeout
	transport.ResponseHeaderTimeout = originHeaderTimeout
	transport.MaxIdleConnsPerHost = 16
	// A firewall on the way may forget a connection, for example by a restart. Without a PING, all requests would go by
	// it until TCP gives up, a quarter of an hour later.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: originHeaderTimeout / 4, PingTimeout: originHeaderTimeout / 2}
	transport.DisableCompression = true // the client's Accept-Encoding decides
	if site.OriginCA != "" {
		roots, err := cert.ReadAuthorities(site.OriginCA)
		if err != nil {
			return nil, fmt.Errorf("origin_ca: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	o := &origins{transport: transport, log: log, lines: rate.NewLimiter(rate.Every(failureInterval), failuresLogged)}
	for _, u := range site.Origins {
		o.all = append(o.all, &origin{url: u})
	}
	p := &proxy{origins: o, earlyData: site.EarlyData}
	p.ReverseProxy = httputil.ReverseProxy{
		Rewrite: rewrite,
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Alt-Svc") // clients would look for the origin's ports at the gateway
			if r.StatusCode == http.StatusNoContent {
				r.Header.Del("Content-Length") // over HTTP/2, clients take it for a mistake (RFC 9110, section 8.6)
			}
			return nil
		},
		Transport:     o,
		BufferPool:    &buffers,
		FlushInterval: flushInterval,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client is gone
			}
			code, text := http.StatusBadGateway, "the origin server does not answer"
			if errors.Is(err, errClientBody) {
				code, text = http.StatusBadRequest, "bad request body"
			} else if isTimeout(err) {
				code = http.StatusGatewayTimeout
			}
			http.Error(w, text, code)
		},
	}
	return p, nil
}

// rewrite makes the request that an origin gets.
func rewrite(r *httputil.ProxyRequest) {
	// ReverseProxy drops what Go takes for a mistake, such as a=1;b=2, by which gitweb separates. The gateway reads no query.
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	// ReverseProxy announces the client's trailers, but does not send them, and http.Transport refuses some names.
	r.Out.Trailer = nil
	// Over any other protocol, such as HTTP/2 over cleartext (h2c), a client
	// could send the origin requests that the gateway never sees.
	if !strings.EqualFold(r.Out.Header.Get("Upgrade"), "websocket") {
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Upgrade")
	}
	for name := range r.Out.Header { // to CGI and WSGI, X_Forwarded_For is the same field
		field := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		if field == "Forwarded" || field == earlyData || strings.HasPrefix(field, "X-Forwarded-") {
			delete(r.Out.Header, name)
		}
	}
	// Read from the incoming request: ReverseProxy has removed the field if
	// the client listed it in Connection, which it must not do.
	if early(r.In.Context()) != nil || len(r.In.Header[earlyData]) > 0 {
		r.Out.Header[earlyData] = []string{"1"}
	}
	r.SetXForwarded() // ReverseProxy has already removed the client's
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		// The origin may respond before the request body ends, as in HTTP/2 and HTTP/3.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if handshake := early(r.Context()); handshake != nil {
		// Do not forward early requests to origins that may not understand Early-Data
		// (RFC 8470, section 6.2).
		if !p.earlyData && await(r.Context(), handshake) != nil {
			panic(http.ErrAbortHandler)
		}
		if !p.earlyData || len(r.Header[earlyData]) > 0 {
			r = Early(r, nil) // a 425, if there is one, goes to the client
		}
	}
	p.ReverseProxy.ServeHTTP(&keeper{w, w.Header().Clone()}, r)
}

// A keeper keeps the fields that the gateway has set, such as Alt-Svc: ReverseProxy clears all after an interim response.
type keeper struct {
	http.ResponseWriter
	fields http.Header
}

func (k *keeper) WriteHeader(code int) {
	maps.Copy(k.Header(), k.fields)
	k.ResponseWriter.WriteHeader(code)
}

func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// origins are the servers of one site, in the order of the configuration. It is the
// http.RoundTripper of the site's proxy.
type origins struct {
	all       []*origin
	transport *http.Transport
	log       *slog.Logger
	lines     *rate.Limiter
}

// An origin is one server. It is monitored passively: it is down when a request to it fails.
type origin struct {
	url *url.URL

	mu     sync.Mutex
	until  time.Time     // no requests before this time, if another origin is up
	pause  time.Duration // 0: the origin is up
	trial  bool          // a request finds out if it is up again
	reason string
	logged bool
}

// An OriginStatus is the state of an origin.
type OriginStatus struct {
	URL   string `json:"url"`
	Up    bool   `json:"up"`
	Error string `json:"error,omitempty"`
}

func (o *origins) status() (all []OriginStatus) {
	for _, s := range o.all {
		s.mu.Lock()
		all = append(all, OriginStatus{s.url.Redacted(), s.pause == 0, s.reason})
		s.mu.Unlock()
	}
	return all
}

// RoundTrip sends the request to the origins. If the origin refuses early data (425),
// RoundTrip sends the request again after the handshake, unless the client must retry
// itself because it sent Early-Data (RFC 8470, section 5.2).
func (o *origins) RoundTrip(r *http.Request) (*http.Response, error) {
	body := &body{ReadCloser: r.Body}
	res, err := o.ask(r, body)
	handshake := early(r.Context())
	if err != nil || res.StatusCode != http.StatusTooEarly || handshake == nil || !body.empty(r) {
		return res, err
	}
	res.Body.Close()
	if err := await(r.Context(), handshake); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = nil, 0
	delete(r.Header, earlyData)
	return o.ask(r, nil)
}

// ask sends the request to the first origin that is up. If that fails before a
// response arrives, and the request is idempotent (RFC 9110, section 9.2.2) or was
// not sent at all, ask tries the next origin.
func (o *origins) ask(r *http.Request, body *body) (*http.Response, error) {
	var lastErr error
	for _, origin := range o.order() {
		out := r.Clone(r.Context())
		if body.empty(r) { // in HTTP/3, also a GET has a body, whose end says that it is empty
			out.Body, out.ContentLength = nil, 0
		} else {
			out.Body = body
			// For http.Transport, if the origin has closed the connection that it kept.
			out.GetBody = func() (io.ReadCloser, error) {
				if body.empty(r) {
					return http.NoBody, nil
				}
				return nil, errSent
			}
		}
		proxied := httputil.ProxyRequest{In: r, Out: out}
		proxied.SetURL(origin.url)
		out.Host = r.Host // SetURL has cleared it
		origin.begin(time.Now())
		res, err := o.transport.RoundTrip(out)
		if err == nil {
			o.up(origin)
			return res, nil
		}
		if r.Context().Err() != nil {
			return nil, err
		}
		if body != nil && body.broken.Load() { // not the origin's fault
			return nil, fmt.Errorf("%w: %w", errClientBody, err)
		}
		o.down(origin, err)
		lastErr = err
		var dial *net.OpError
		unsent := errors.As(err, &dial) && dial.Op == "dial"
		if !body.empty(r) && body.read.Load() || !unsent && !idempotent(r) {
			break
		}
	}
	return nil, lastErr
}

func idempotent(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// A body can be sent to another origin as long as none of it has been read, or if it is empty. Close
// does nothing, because http.Transport closes the body after a failure; the proxy
// closes it at the end.
type body struct {
	io.ReadCloser
	read   atomic.Bool
	some   atomic.Bool // the body is not empty
	ended  atomic.Bool
	broken atomic.Bool // by the client: a bad chunk, or another length than announced
}

// empty reports whether r has no body, or one that has been read to its end and was empty.
func (b *body) empty(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || b.ended.Load() && !b.some.Load()
}

var (
	errClientBody = errors.New("the client's request body is bad")
	errSent       = errors.New("a part of the request was sent over a connection that broke")
)

func (b *body) Read(p []byte) (int, error) {
	b.read.Store(true)
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.some.Store(true)
	}
	if err == io.EOF {
		b.ended.Store(true)
	}
	if err != nil && err != io.EOF {
		b.broken.Store(true)
	}
	return n, err
}

func (b *body) Close() error { return nil }

// order returns the origins that are up, then the others, both in the order of the
// configuration.
func (o *origins) order() []*origin {
	now := time.Now()
	up := make([]*origin, 0, len(o.all))
	var down []*origin
	for _, s := range o.all {
		s.mu.Lock()
		waiting := now.Before(s.until)
		s.mu.Unlock()
		if waiting {
			down = append(down, s)
		} else {
			up = append(up, s)
		}
	}
	return append(up, down...)
}

// begin notes that a request goes to an origin. If that was down, others do not wait for what becomes of it: they go
// to another one that is up.
func (s *origin) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause > 0 && !now.Before(s.until) {
		s.trial, s.until = true, now.Add(originDialTimeout+originHeaderTimeout)
	}
}

func (o *origins) up(s *origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged {
		o.log.Info("origin answers again", "origin", s.url.Redacted())
	}
	s.until, s.pause, s.trial, s.reason, s.logged = time.Time{}, 0, false, "", false
}

func (o *origins) down(s *origin, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := err.Error()
	reason = reason[:min(len(reason), maxReason)]
	if unnumbered(s.reason) != unnumbered(reason) && o.lines.Allow() {
		o.log.Warn("origin failed", "origin", s.url.Redacted(), "error", reason)
		s.logged = true
	}
	s.reason = reason
	now := time.Now()
	if now.Before(s.until) && !s.trial { // another request that was in progress when the origin failed
		return
	}
	s.trial = false
	s.pause = min(max(2*s.pause, minDown), maxDown)
	s.until = now.Add(s.pause)
}

// unnumbered returns an error's text without what is another each time: the local port, the time, the stream's ID.
func unnumbered(text string) string {
	var rest []byte
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			rest = append(rest, c)
		}
	}
	return string(rest)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
