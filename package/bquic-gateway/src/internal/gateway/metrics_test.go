// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"bquic/internal/config"
	"bquic/internal/metrics"
)

// TestMetrics parses the text with Prometheus' strict parser, and compares the
// names with docs/gateway.md.
func TestMetrics(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}}, {Hosts: []string{"b"}, Origins: []*url.URL{u}}}})
	for _, c := range clients(t, s) {
		get(t, c, s.url("/"))
	}
	w := new(metrics.Writer)
	s.metrics(w)
	text := string(w.Text())

	sample := regexp.MustCompile(`^([a-z_]+)(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? (\d+(\.\d+)?(e[+-]\d+)?)$`)
	kinds := make(map[string]string)
	seen := make(map[string]bool)
	current := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(name, " ")
			if _, again := kinds[name]; again || help == "" {
				t.Errorf("%s: given twice, or without help", name)
			}
			current, kinds[name] = name, ""
			continue
		}
		if typ, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(typ, " ")
			if name != current || (kind == "counter") != strings.HasSuffix(name, "_total") {
				t.Errorf("type of %s is %s", name, kind)
			}
			kinds[name] = kind
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || m[1] != current || seen[m[1]+m[2]] {
			t.Errorf("bad line, or given twice: %s", line)
			continue
		}
		seen[m[1]+m[2]] = true
	}
	for _, want := range []string{
		`bquic_requests_total{protocol="h3",code="4xx"} 1`, `bquic_requests_total{protocol="h2",code="4xx"} 1`,
		`bquic_requests_total{protocol="http/1.1",code="4xx"} 1`, `bquic_connections{transport="quic"} 1`,
		`bquic_origin_up{origin="` + origin.URL + `"} 1`, `bquic_build_info{version="test"} 1`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("missing: %s\n%s", want, text)
		}
	}
	holdDocs(t, kinds, `bquic_`, `bquic_relay_`)
}

// TestAccessLog checks that each protocol logs a line, that every reload reopens the
// file, even a refused one, and that a file that cannot be opened makes a reload fail.
func TestAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := start(t, config.Gateway{AccessLog: path, Sites: []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"index.html": "12345"})}}})
	cs := clients(t, s)
	ask := func() {
		for _, c := range cs {
			get(t, c, s.url("/"))
		}
	}
	// A client may have its response before the line is written.
	expect := func(name string) {
		t.Helper()
		var got string
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			data, _ := os.ReadFile(name)
			got = string(data)
			all := strings.Count(got, "\n") == len(cs)
			for proto := range cs {
				all = all && strings.Count(got, `"GET / `+proto+`" 200 5 "-" "`) == 1
			}
			if all {
				return
			}
		}
		t.Errorf("%s has:\n%s", name, got)
	}
	ask()
	expect(path)
	for i, reload := range []func() error{
		func() error { return s.Apply(s.now.Load().cfg) },
		func() error { return errors.New("a mistake in the file") },
	} {
		old := path + strconv.Itoa(i)
		if err := os.Rename(path, old); err != nil {
			t.Fatal(err)
		}
		s.Reloaded(reload())
		ask()
		expect(path)
		expect(old)
	}
	bad := s.now.Load().cfg
	bad.AccessLog = path + "/log"
	if err := s.Apply(bad); err == nil || !strings.Contains(err.Error(), "gateway.access_log") || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// holdDocs compares the names with the table rows of docs/gateway.md that begin
// with prefix, but not with except.
func holdDocs(t *testing.T, kinds map[string]string, prefix, except string) {
	t.Helper()
	doc, err := os.ReadFile("../../../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, written []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)").FindAllStringSubmatch(string(doc), -1) {
		if strings.HasPrefix(m[1], prefix) && !strings.HasPrefix(m[1], except) {
			documented = append(documented, m[1])
		}
	}
	for name := range kinds {
		written = append(written, name)
	}
	slices.Sort(documented)
	slices.Sort(written)
	if !slices.Equal(documented, written) {
		t.Errorf("docs/gateway.md lists %q\nwritten are %q", documented, written)
	}
}

// TestSummaryOfMany checks that the sum over live connections includes those for which the status has no room: the oldest, such as relays'.
func TestSummaryOfMany(t *testing.T) {
	s := start(t, config.Gateway{})
	const many = maxShown + 4
	conn, err := dialFrom(t, s, "127.0.0.1", pinned(s, http3.NextProtoH3))
	if err != nil {
		t.Fatal(err)
	}
	for range many {
		c := s.conns.open(conn, "bquic")
		defer s.conns.close(c)
	}
	if sum := s.summarize(); sum.Live.Connections < many {
		t.Errorf("a sum over %d connections, not %d", sum.Live.Connections, many)
	}
}
