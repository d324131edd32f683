// SPDX-License-Identifier: Apache-2.0

package site

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"bquic/internal/config"
)

// TestTarget checks that an origin gets the path and the query as the client wrote them: what they mean is the origin's affair.
func TestTarget(t *testing.T) {
	seen := make(chan string, 1)
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	site, _ := serve(t, config.Site{Origins: []*url.URL{u}})
	for _, target := range []string{
		"/", "/?", "/p?b=2&a=1", "/gitweb?p=a.git;a=summary", "/search?q=100%", "/?%zz=1&b=2&a=1", "/?a=%20;b", "/a%2Fb//c;d?x=%2f",
	} {
		ask(t, "GET", site.URL+target)
		if got := <-seen; got != target {
			t.Errorf("%s: the origin saw %s", target, got)
		}
	}
}
