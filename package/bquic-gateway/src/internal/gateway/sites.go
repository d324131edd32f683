// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"bquic/internal/config"
)

// anyHost is the name of the site that has all hosts no other site has.
const anyHost = "*"

// sites hands a request to the site with its host name.
type sites struct {
	byHost     map[string]http.Handler
	roots      []*os.Root
	transports []*http.Transport
}

// retire is for sites that get no new requests, while older ones go on: idle
// connections to origins are closed now, and directories with the last request
// (os.Root closes itself when nothing refers to it).
func (s *sites) retire() {
	for _, t := range s.transports {
		t.CloseIdleConnections()
	}
}

func (s *sites) close() {
	s.retire()
	for _, root := range s.roots {
		root.Close()
	}
}

func newSites(cfg []config.Site, log *slog.Logger) (*sites, error) {
	s := &sites{byHost: make(map[string]http.Handler)}
	for _, site := range cfg {
		h, err := s.newSite(site, log)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("site with host %s: %w", site.Hosts[0], err)
		}
		for _, host := range site.Hosts {
			s.byHost[host] = h
		}
	}
	return s, nil
}

func (s *sites) newSite(site config.Site, log *slog.Logger) (http.Handler, error) {
	if site.Origin != nil {
		proxy, transport := newProxy(site, log)
		s.transports = append(s.transports, transport)
		return proxy, nil
	}
	root, err := os.OpenRoot(site.Root)
	if err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	s.roots = append(s.roots, root)
	return files{root, log}, nil
}

func (s *sites) names() []string {
	var names []string
	for host := range s.byHost {
		names = append(names, host)
	}
	slices.Sort(names)
	return names
}

func (s *sites) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect { // never an open proxy
		http.Error(w, "CONNECT is offered to relays by HTTP/3 only", http.StatusMethodNotAllowed)
		return
	}
	h, ok := s.byHost[hostname(r.Host)]
	if !ok {
		h, ok = s.byHost[anyHost]
	}
	if !ok {
		http.Error(w, "no site of this name", http.StatusMisdirectedRequest)
		return
	}
	h.ServeHTTP(w, r)
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

// files serves what is below root: no directory listings, nothing whose name
// begins with a dot, nothing that a symbolic link leads out to.
type files struct {
	root *os.Root
	log  *slog.Logger
}

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are served", http.StatusMethodNotAllowed)
		return
	}
	name := path.Clean("/" + r.URL.Path)
	if strings.Contains(name, "/.") {
		http.NotFound(w, r)
		return
	}
	file, info, err := f.open(name)
	if err == nil && info.IsDir() {
		file.Close()
		if !strings.HasSuffix(r.URL.Path, "/") {
			// Relative links in the index need the slash.
			http.Redirect(w, r, (&url.URL{Path: name + "/"}).String(), http.StatusMovedPermanently)
			return
		}
		name = path.Join(name, "index.html")
		file, info, err = f.open(name)
	} else if err == nil && strings.HasSuffix(r.URL.Path, "/") {
		file.Close()
		http.NotFound(w, r)
		return
	}
	if err != nil {
		if !os.IsNotExist(err) {
			f.log.Debug("file not served", "path", name, "error", err)
		}
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	if !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	if r.ProtoMajor == 3 {
		w = largeWrites{w}
	}
	http.ServeContent(w, r, info.Name(), info.ModTime(), file)
}

// open opens a file or directory. It does not wait for a FIFO's other end.
func (f files) open(name string) (*os.File, os.FileInfo, error) {
	name = strings.TrimPrefix(name, "/")
	if name == "" {
		name = "."
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// newProxy hands requests on to the site's origin, as the host that the client named.
func newProxy(site config.Site, log *slog.Logger) (http.Handler, *http.Transport) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.ResponseHeaderTimeout = time.Minute
	transport.MaxIdleConnsPerHost = 16
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(site.Origin)
			r.Out.Host = r.In.Host
			r.SetXForwarded() // after ReverseProxy has removed what the client sent
		},
		Transport:  transport,
		BufferPool: &buffers,
		ErrorLog:   slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // the client has gone
			}
			log.Warn("origin failed", "origin", site.Origin.Redacted(), "error", err)
			http.Error(w, "the origin server does not answer", http.StatusBadGateway)
		},
	}, transport
}

// bodyBuffer is the size of the pieces that bodies are written in. Each ends in
// a short packet: with the 32 KiB of io.Copy, HTTP/3 packets carry 1,313 bytes
// on average, with this 1,390.
const bodyBuffer = 128 << 10

// bufferPool spares a router one such buffer per request.
type bufferPool struct{ sync.Pool }

var buffers = bufferPool{sync.Pool{New: func() any { return new([bodyBuffer]byte) }}}

func (p *bufferPool) Get() []byte  { return p.Pool.Get().(*[bodyBuffer]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bodyBuffer]byte)(b)) }

// largeWrites makes http.ServeContent write pieces of bodyBuffer.
type largeWrites struct{ http.ResponseWriter }

func (w largeWrites) ReadFrom(r io.Reader) (int64, error) {
	b := buffers.Get()
	defer buffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{w.ResponseWriter}, r, b)
}

func (w largeWrites) Unwrap() http.ResponseWriter { return w.ResponseWriter }
