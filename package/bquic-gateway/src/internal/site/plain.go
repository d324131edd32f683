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

// challenges is the path of ACME's HTTP challenges (RFC 8555, section 8.3).
const challenges = "/.well-known/acme-challenge/"

// ServePlain answers requests without TLS. It redirects clients to the same site
// on the gateway's TLS port. It answers ACME challenges from webroot, also for names without a site, such as the gateway's
// own, or, if webroot is "", from the site itself.
func (s *Sites) ServePlain(w http.ResponseWriter, r *http.Request, webroot string, port uint16) {
	if !valid(w, r) {
		return
	}
	token, ok := strings.CutPrefix(r.URL.Path, challenges)
	challenge := ok && token != "" && !strings.ContainsAny(token, "/.")
	if challenge && webroot != "" {
		// Opened for each challenge: they are rare, and the directory may come and go.
		root, err := os.OpenRoot(webroot)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer root.Close()
		files{root: root, log: s.log}.ServeHTTP(w, r)
		return
	}
	h := s.choose(w, r)
	if h == nil {
		return
	}
	if challenge {
		h.ServeHTTP(w, r)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") { // OPTIONS *, for example
		http.Error(w, "bad request target", http.StatusBadRequest)
		return
	}
	host := withoutPort(r.Host)
	if port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	status := http.StatusPermanentRedirect
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		status = http.StatusMovedPermanently // older clients do not know 308
	}
	// Or else browsers keep it for good, and go where the gateway was after its port or this redirect has changed.
	w.Header().Set("Cache-Control", "max-age=86400")
	to := url.URL{Scheme: "https", Host: host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	http.Redirect(w, r, to.String(), status)
}
