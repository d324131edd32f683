// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bquic/internal/config"
)

// TestRedirect checks that clients without TLS are redirected to the gateway's
// port, by the latest configuration, and that ACME challenges are answered.
func TestRedirect(t *testing.T) {
	webroot := t.TempDir()
	if err := os.MkdirAll(filepath.Join(webroot, ".well-known/acme-challenge"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(webroot, ".well-known/acme-challenge/token"), []byte("token.thumbprint"), 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	s := start(t, config.Gateway{
		Redirect: "127.0.0.1:0", AccessLog: log,
		Sites: []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"f": "x"})}},
	})
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ask := func(path string) (int, string, string) {
		t.Helper()
		res, err := c.Get("http://" + s.plain.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, res.Header.Get("Location"), string(body)
	}
	if code, to, _ := ask("/f?x"); code != 301 || to != fmt.Sprintf("https://127.0.0.1:%d/f?x", s.addr.Port()) {
		t.Errorf("%d to %s", code, to)
	}
	const challenge = "/.well-known/acme-challenge/token"
	if code, _, _ := ask(challenge); code != 404 {
		t.Errorf("without a webroot: %d", code)
	}
	next := s.now.Load().cfg
	next.ACMEWebroot = webroot
	if err := s.Apply(next); err != nil {
		t.Fatal(err)
	}
	if code, _, body := ask(challenge); code != 200 || body != "token.thumbprint" {
		t.Errorf("%d %s", code, body)
	}
	waitFor(t, func() bool {
		data, _ := os.ReadFile(log)
		return strings.Count(string(data), "\n") == 3 && strings.Contains(string(data), `"GET /f?x HTTP/1.1" 301 `)
	})
}
