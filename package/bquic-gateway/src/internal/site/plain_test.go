// SPDX-License-Identifier: Apache-2.0

package site

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"bquic/internal/config"
)

func TestWellKnown(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{".well-known/security.txt", ".well-known/acme-challenge/tok_en-1", ".well-known/.secret", ".well-known/a/.b/c", ".well-knownish", "a/.well-known/x", ".x"} {
		write(t, root, name, name, 0)
	}
	srv, _ := serve(t, config.Site{Root: root, Listing: true})
	for path, want := range map[string]int{
		"/.well-known/security.txt": 200, "/.well-known/acme-challenge/tok_en-1": 200, "/.well-known/": 200, "/.well-known": 200,
		"/.well-known/none": 404, "/.well-known/.secret": 404, "/.well-known/a/.b/c": 404, "/.well-knownish": 404, "/a/.well-known/x": 404, "/.x": 404,
		"/.well-known/../.x": 404, "/.well-known/%2e%2e/.x": 404,
	} {
		res, body := ask(t, "GET", srv.URL+path)
		if res.StatusCode == http.StatusMovedPermanently {
			res, body = ask(t, "GET", srv.URL+res.Header.Get("Location"))
		}
		if res.StatusCode != want || want == 200 && strings.Contains(body, "secret") {
			t.Errorf("%s: %d, want %d: %s", path, res.StatusCode, want, body)
		}
	}
	if _, body := ask(t, "GET", srv.URL+"/"); strings.Contains(body, "well-known/") {
		t.Errorf("listed: %s", body)
	}
}

func TestPlain(t *testing.T) {
	root, webroot, outside := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, root, ".well-known/acme-challenge/site", "of the site", 0)
	write(t, root, "secret", "x", 0)
	write(t, webroot, ".well-known/acme-challenge/common", "of all", 0)
	write(t, webroot, "secret", "x", 0)
	write(t, outside, "key", "x", 0)
	sites, err := New([]config.Site{{Hosts: []string{"a.example", "2001:db8::1"}, Root: root}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer sites.Retire()
	for _, test := range []struct {
		method, host, path string
		webroot            string
		port               uint16
		status             int
		want               string // location or body
	}{
		{"GET", "a.example", "/p/q?x=%20;y", "", 8443, 301, "https://a.example:8443/p/q?x=%20;y"},
		{"HEAD", "A.example:80", "/", "", 443, 301, "https://A.example/"},
		{"POST", "a.example", "/form", "", 443, 308, "https://a.example/form"},
		{"GET", "[2001:db8::1]:80", "/", "", 443, 301, "https://[2001:db8::1]/"},
		{"GET", "[2001:db8::1]", "/", "", 8443, 301, "https://[2001:db8::1]:8443/"},
		{"GET", "a.example", "//evil.example/%2e%2e/x%2fy", "", 443, 301, "https://a.example//evil.example/%2e%2e/x%2fy"},
		{"GET", "evil.example", "/", "", 443, 421, "no site has this name\n"},
		{"GET", "a.example@evil.example", "/", "", 443, 400, "bad host\n"},
		{"OPTIONS", "a.example", "*", "", 443, 400, "bad request target\n"},
		{"GET", "a.example", "/secret", "", 443, 301, "https://a.example/secret"},
		{"GET", "a.example", "/.well-known/acme-challenge/site", "", 443, 200, "of the site"},
		{"GET", "a.example", "/.well-known/acme-challenge/common", webroot, 443, 200, "of all"},
		{"GET", "a.example", "/.well-known/acme-challenge/site", webroot, 443, 404, "404 page not found\n"},
		{"GET", "a.example", "/.well-known/acme-challenge/common", "/nonexistent", 443, 404, "404 page not found\n"},
		{"GET", "a.example", "/.well-known/acme-challenge/../../secret", webroot, 443, 301, "https://a.example/.well-known/acme-challenge/../../secret"},
		{"GET", "a.example", "/.well-known/acme-challenge/", webroot, 443, 301, "https://a.example/.well-known/acme-challenge/"},
		{"GET", "a.example", "/.well-known/security.txt", "", 443, 301, "https://a.example/.well-known/security.txt"},
		{"GET", "gateway.example", "/.well-known/acme-challenge/common", webroot, 443, 200, "of all"},
		{"GET", "gateway.example", "/.well-known/acme-challenge/site", webroot, 443, 404, "404 page not found\n"},
		{"GET", "gateway.example", "/.well-known/acme-challenge/site", "", 443, 421, "no site has this name\n"},
		{"GET", "gateway.example", "/secret", webroot, 443, 421, "no site has this name\n"},
		{"GET", "a.example@evil.example", "/.well-known/acme-challenge/common", webroot, 443, 400, "bad host\n"},
	} {
		r := httptest.NewRequest(test.method, "/", nil)
		if test.path == "*" {
			r.URL = &url.URL{Path: "*"}
		} else if r.URL, err = url.ParseRequestURI(test.path); err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		w := httptest.NewRecorder()
		sites.ServePlain(w, r, test.webroot, test.port)
		got := w.Body.String()
		kept := w.Header().Get("Cache-Control") != ""
		if w.Code/100 == 3 {
			got = w.Header().Get("Location")
			kept = w.Header().Get("Cache-Control") == "max-age=86400"
		}
		if kept != (w.Code/100 == 3) {
			t.Errorf("%s %s%s: for how long to keep it: %q", test.method, test.host, test.path, w.Header().Get("Cache-Control"))
		}
		if w.Code != test.status || got != test.want {
			t.Errorf("%s %s%s (%s): %d %q, want %d %q", test.method, test.host, test.path, filepath.Base(test.webroot), w.Code, got, test.status, test.want)
		}
	}
}
