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

	"bquic/internal/config"
)

// anyHost is the name of the site that has all hosts no other site has.
const anyHost = "*"

// Sites hand a request to the site with its host name. They are never changed:
// a reload makes new ones.
type Sites struct {
	byHost  map[string]http.Handler
	roots   []*os.Root
	proxies []*proxy
	log     *slog.Logger
}

// New opens what the sites need. log gets what goes wrong with origins.
func New(cfg []config.Site, log *slog.Logger) (*Sites, error) {
	s := &Sites{byHost: make(map[string]http.Handler), log: log}
	for _, site := range cfg {
		h, err := s.open(site, log)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("site with host %s: %w", site.Hosts[0], err)
		}
		for _, host := range site.Hosts {
			s.byHost[host] = h
		}
	}
	return s, nil
}

func (s *Sites) open(site config.Site, log *slog.Logger) (http.Handler, error) {
	if len(site.Origins) > 0 {
		p, err := newProxy(site, log)
		if err != nil {
			return nil, err
		}
		s.proxies = append(s.proxies, p)
		return p, nil
	}
	root, err := os.OpenRoot(site.Root)
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	s.roots = append(s.roots, root)
	return files{root: root, listing: site.Listing, log: log}, nil
}

// Retire is for sites that get no new requests, while older ones go on: idle
// connections to origins are closed now, and directories with the last request
// (os.Root closes itself when nothing refers to it).
func (s *Sites) Retire() {
	for _, p := range s.proxies {
		p.origins.transport.CloseIdleConnections()
	}
}

// Close is for sites that have no requests at all.
func (s *Sites) Close() {
	s.Retire()
	for _, root := range s.roots {
		root.Close()
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

// Origins tells the state of all origins. One that several sites have stands
// there once, and is up if it is for one of them.
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
	if h := s.choose(w, r); h != nil {
		h.ServeHTTP(w, r)
	}
}

// choose returns what answers a request, or answers itself that nothing does.
func (s *Sites) choose(w http.ResponseWriter, r *http.Request) http.Handler {
	if r.Method == http.MethodConnect { // never an open proxy
		http.Error(w, "CONNECT is offered to relays by HTTP/3 only", http.StatusMethodNotAllowed)
		return nil
	}
	// An origin must not see another host than the one that chose the site (RFC
	// 9114, section 4.3.1; RFC 9113, section 8.3.1).
	if hosts, ok := r.Header["Host"]; ok && (len(hosts) > 1 || hosts[0] != r.Host) || !validHost(r.Host) {
		http.Error(w, "bad host", http.StatusBadRequest)
		return nil
	}
	if !validLength(r) {
		http.Error(w, "bad content-length", http.StatusBadRequest)
		return nil
	}
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		// net/http ignores its Transfer-Encoding, and would take the chunks for
		// another request (RFC 9112, section 6.1).
		w.Header().Set("Connection", "close")
	}
	h, ok := s.byHost[hostname(r.Host)]
	if !ok {
		h, ok = s.byHost[anyHost]
	}
	if !ok {
		http.Error(w, "no site of this name", http.StatusMisdirectedRequest)
		return nil
	}
	return h
}

// validLength says if a request has at most one Content-Length, and the body
// that it announces. Of an HTTP/2 request net/http takes the first, and 0 for
// what is no number or where there is no body (RFC 9113, section 8.1.1).
func validLength(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	if len(lengths) == 0 {
		return true
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	return len(lengths) == 1 && err == nil && n == uint64(r.ContentLength)
}

// validHost allows what host[:port] can consist of.
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

// hostname returns the host of host[:port], written as the configuration has it.
func hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
