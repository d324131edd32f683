// SPDX-License-Identifier: Apache-2.0

package site

import (
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

	"golang.org/x/net/http/httpguts"

	"bquic/internal/config"
)

// anyHost is the name of the site for all hosts that no other site has.
const anyHost = "*"

// Sites dispatches a request to the site with its host name. It is immutable: a
// reload makes a new one.
type Sites struct {
	cfg     []config.Site
	byHost  map[string]http.Handler
	proxies []*proxy
	log     *slog.Logger

	mu      sync.Mutex
	missing []string // mistakes that Look has found
}

// New makes the sites' proxies. Errors of origins and of directories go to log.
func New(cfg []config.Site, log *slog.Logger) (*Sites, error) {
	s := &Sites{cfg: cfg, byHost: make(map[string]http.Handler), log: log}
	for _, site := range cfg {
		h, err := s.open(site)
		if err != nil {
			return nil, fmt.Errorf("site with host %s: %w", site.Hosts[0], err)
		}
		for _, host := range site.Hosts {
			s.byHost[host] = h
		}
	}
	s.Look()
	return s, nil
}

func (s *Sites) open(site config.Site) (http.Handler, error) {
	if len(site.Origins) > 0 {
		p, err := newProxy(site, s.log)
		if err != nil {
			return nil, err
		}
		s.proxies = append(s.proxies, p)
		return p, nil
	}
	f := folder{path: site.Root, log: s.log}
	if site.Listing {
		f.listing = new(listings)
	}
	return f, nil
}

// Missing returns a mistake for each site whose directory cannot be opened. The others are served, and this one is as
// soon as the directory is there, such as on a drive that is mounted late.
func Missing(sites []config.Site) (ms config.Mistakes) {
	for _, site := range sites {
		if site.Root == "" {
			continue
		}
		root, err := os.OpenRoot(site.Root)
		if err == nil {
			root.Close()
			continue
		}
		m := site.RootAt
		m.Text = err.Error()
		ms = append(ms, &m)
	}
	return ms
}

// Look looks for the sites' directories, and logs which have gone or come since it last looked.
func (s *Sites) Look() {
	var now []string
	for _, m := range Missing(s.cfg) {
		now = append(now, m.Error())
	}
	s.mu.Lock()
	was := s.missing
	s.missing = now
	s.mu.Unlock()
	for _, m := range now {
		if !slices.Contains(was, m) {
			s.log.Warn("a site is not served, the others are", "mistake", m)
		}
	}
	for _, m := range was {
		if !slices.Contains(now, m) {
			s.log.Info("a mistake is gone", "mistake", m)
		}
	}
}

// Missing returns the mistakes that Look has found.
func (s *Sites) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing
}

// Retire closes idle connections to origins, of sites that receive no new requests. Older requests continue.
func (s *Sites) Retire() {
	for _, p := range s.proxies {
		p.origins.transport.CloseIdleConnections()
	}
}

// Names returns the hosts, sorted.
func (s *Sites) Names() []string {
	var names []string
	for host := range s.byHost {
		names = append(names, host)
	}
	slices.Sort(names)
	return names
}

// Origins returns the state of all origins. An origin of several sites appears
// once, and is up if it is up for one of them.
func (s *Sites) Origins() []OriginStatus {
	var all []OriginStatus
	for _, p := range s.proxies {
		for _, o := range p.origins.status() {
			i := slices.IndexFunc(all, func(a OriginStatus) bool { return a.URL == o.URL })
			if i < 0 {
				all = append(all, o)
			} else if o.Up {
				all[i] = o
			}
		}
	}
	return all
}

func (s *Sites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !valid(w, r) {
		return
	}
	if h := s.choose(w, r); h != nil {
		h.ServeHTTP(w, r)
	}
}

// valid reports whether a site may answer a request. If not, it sends an error response.
func valid(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodConnect { // never be an open proxy
		http.Error(w, "CONNECT is available only to relays, over HTTP/3", http.StatusMethodNotAllowed)
		return false
	}
	// An origin must not see another host than the one that chose the site (RFC
	// 9114, section 4.3.1; RFC 9113, section 8.3.1).
	if hosts, ok := r.Header["Host"]; ok && (len(hosts) > 1 || hosts[0] != r.Host) || !validHost(r.Host) {
		http.Error(w, "bad host", http.StatusBadRequest)
		return false
	}
	// HTTP/2 lets any method through, and a target such as x:y has no path. http.Transport may refuse both, as if the origin
	// had failed.
	if !httpguts.ValidHeaderFieldName(r.Method) || r.URL.Opaque != "" {
		http.Error(w, "bad method or request target", http.StatusBadRequest)
		return false
	}
	if !validLength(r) {
		http.Error(w, "bad content-length", http.StatusBadRequest)
		return false
	}
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		// net/http ignores Transfer-Encoding in HTTP/1.0, and would parse the
		// chunks as another request (RFC 9112, section 6.1).
		w.Header().Set("Connection", "close")
	}
	return true
}

// choose returns the handler of a request. If there is none, it sends an error
// response and returns nil.
func (s *Sites) choose(w http.ResponseWriter, r *http.Request) http.Handler {
	h, ok := s.byHost[hostname(r.Host)]
	if !ok {
		h, ok = s.byHost[anyHost]
	}
	if !ok {
		http.Error(w, "no site has this name", http.StatusMisdirectedRequest)
		return nil
	}
	return h
}

// validLength reports whether a request has at most one Content-Length, and a
// body of this length. In HTTP/2, net/http uses the first Content-Length, and 0
// if it is not a number or if there is no body (RFC 9113, section 8.1.1).
func validLength(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	if len(lengths) == 0 {
		return true
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	return len(lengths) == 1 && err == nil && n == uint64(r.ContentLength)
}

// validHost reports whether all characters are valid in host[:port].
func validHost(hostport string) bool {
	for _, c := range []byte(hostport) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._:[]", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// withoutPort returns the host of host[:port], an IPv6 address without brackets.
func withoutPort(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = host
	}
	return strings.Trim(hostport, "[]")
}

// hostname returns the host of host[:port], in the form that the configuration uses.
func hostname(hostport string) string {
	host := withoutPort(hostport)
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
