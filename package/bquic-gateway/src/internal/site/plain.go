// SPDX-License-Identifier: Apache-2.0

package site

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// challenges is where ACME looks for what proves a name (RFC 8555, section 8.3).
const challenges = "/.well-known/acme-challenge/"

// ServePlain answers what comes without TLS: it sends clients to the same site at
// the gateway's port. Challenges of ACME are answered, from below webroot or, with
// "", by the site itself.
func (s *Sites) ServePlain(w http.ResponseWriter, r *http.Request, webroot string, port uint16) {
	h := s.choose(w, r)
	if h == nil {
		return
	}
	if token, ok := strings.CutPrefix(r.URL.Path, challenges); ok && token != "" && !strings.ContainsAny(token, "/.") {
		if webroot == "" {
			h.ServeHTTP(w, r)
			return
		}
		// Opened for each: they are rare, and the directory may come and go.
		root, err := os.OpenRoot(webroot)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer root.Close()
		files{root: root, log: s.log}.ServeHTTP(w, r)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") { // as of OPTIONS *
		http.Error(w, "bad request target", http.StatusBadRequest)
		return
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	status := http.StatusPermanentRedirect
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		status = http.StatusMovedPermanently // older clients do not know the other
	}
	to := url.URL{Scheme: "https", Host: host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	http.Redirect(w, r, to.String(), status)
}
