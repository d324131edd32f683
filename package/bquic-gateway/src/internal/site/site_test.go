// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"bquic/internal/config"
)

// serve serves one site for all hosts.
func serve(t *testing.T, site config.Site) (*httptest.Server, *Sites) {
	t.Helper()
	site.Hosts = []string{"*"}
	s, err := New([]config.Site{site}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Retire)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return srv, s
}

func write(t *testing.T, root, name, data string, age time.Duration) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-age)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request without redirects and decompression.
func ask(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		switch header[i] {
		case "":
		case "Host":
			r.Host = header[i+1]
		default:
			r.Header.Set(header[i], header[i+1])
		}
	}
	res, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// TestDirectory checks that a site whose directory is missing keeps no other site from being served, and is served as
// soon as the directory is there. An open directory would keep a drive from being unmounted.
func TestDirectory(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "drive")
	write(t, top, "other/page", "of another site", 0)
	var log bytes.Buffer
	sites, err := New([]config.Site{
		{Hosts: []string{"a"}, Root: root, RootAt: config.Mistake{File: "conf", Line: 7, Section: "@site[0]", Option: "root"}},
		{Hosts: []string{"b"}, Root: filepath.Join(top, "other")},
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sites)
	t.Cleanup(srv.Close)
	serves := func(host string, status int, want string) {
		t.Helper()
		if res, body := ask(t, "GET", srv.URL+"/page", "Host", host); res.StatusCode != status || body != want {
			t.Errorf("site %s: %d %q, not %d %q", host, res.StatusCode, body, status, want)
		}
	}
	logs := func(lines ...string) {
		t.Helper()
		for range 2 {
			sites.Look()
		}
		got := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		log.Reset()
		for i, line := range got {
			if len(got) != len(lines) || !strings.HasSuffix(line, lines[i]) {
				t.Fatalf("logged %q, not %q", got, lines)
			}
		}
	}
	const mistake = "conf:7: @site[0].root: open "
	missing, wrong := mistake+root+": no such file or directory", mistake+root+": not a directory"
	serves("a", 503, "the directory of this site is missing\n")
	serves("b", 200, "of another site")
	logs(`level=WARN msg="a site is not served, the others are" mistake="` + missing + `"`)
	if got := sites.Missing(); len(got) != 1 || got[0] != missing {
		t.Errorf("missing: %q", got)
	}
	if err := os.WriteFile(root, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	serves("a", 503, "the directory of this site is missing\n")
	logs(`level=WARN msg="a site is not served, the others are" mistake="`+wrong+`"`, `level=INFO msg="a mistake is gone" mistake="`+missing+`"`)
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	write(t, root, "page", "of the drive", 0)
	serves("a", 200, "of the drive")
	logs(`level=INFO msg="a mistake is gone" mistake="` + wrong + `"`)
	if got := sites.Missing(); len(got) > 0 {
		t.Errorf("missing: %q", got)
	}
	// Another directory takes its place, as when a drive is mounted there.
	if err := os.Rename(root, root+".old"); err != nil {
		t.Fatal(err)
	}
	write(t, root, "page", "of another drive", 0)
	serves("a", 200, "of another drive")
	logs("")
}

func TestPrecompressed(t *testing.T) {
	root := t.TempDir()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "plain text")
	_ = z.Close()
	write(t, root, "a.css", "plain text", time.Hour)
	write(t, root, "a.css.gz", zipped.String(), time.Hour)
	write(t, root, "a.css.br", "as brotli", time.Hour)
	write(t, root, "stale.css", "plain text", time.Hour)
	write(t, root, "stale.css.gz", zipped.String(), 2*time.Hour)
	for _, name := range []string{"data", "site/index.html", "p.ipk"} {
		write(t, root, name, "plain text", time.Hour)
		write(t, root, name+".gz", zipped.String(), time.Hour)
	}
	srv, _ := serve(t, config.Site{Root: root})
	tags := make(map[string]string)
	const css = "text/css; charset=utf-8"
	for _, test := range []struct{ path, accept, coding, body, kind string }{
		{"/a.css", "", "", "plain text", css},
		{"/a.css", "gzip, deflate", "gzip", zipped.String(), css},
		{"/a.css", "gzip, br, zstd", "br", "as brotli", css},
		{"/a.css", "br;q=0, gzip;q=0.5", "gzip", zipped.String(), css},
		{"/a.css", "GZIP; Q=1.0", "gzip", zipped.String(), css},
		{"/a.css", "identity, *", "", "plain text", css},
		{"/a.css", "br;q=x, xgzip", "", "plain text", css},
		{"/stale.css", "gzip", "", "plain text", css},
		{"/data", "", "", "plain text", "text/plain; charset=utf-8"},
		{"/data", "gzip", "gzip", zipped.String(), "application/octet-stream"},
		{"/site/", "gzip", "gzip", zipped.String(), "text/html; charset=utf-8"},
		{"/p.ipk", "", "", "plain text", "application/octet-stream"},
	} {
		res, body := ask(t, "GET", srv.URL+test.path, "Accept-Encoding", test.accept)
		h := res.Header
		if h.Get("Content-Encoding") != test.coding || body != test.body || h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Type") != test.kind {
			t.Errorf("%s, %q: %q %q", test.path, test.accept, h, body)
		}
		if test.path == "/a.css" {
			tags[test.coding] = h.Get("ETag")
		}
	}
	if len(tags) != 3 || tags[""] == tags["gzip"] || tags["br"] == tags["gzip"] {
		t.Errorf("tags %v", tags)
	}
	// A client's copy in one coding is not valid for another.
	for have, tag := range tags {
		for want, accept := range map[string]string{"": "identity", "gzip": "gzip", "br": "br"} {
			res, body := ask(t, "GET", srv.URL+"/a.css", "Accept-Encoding", accept, "If-None-Match", tag)
			if have == want && (res.StatusCode != 304 || body != "") || have != want && res.StatusCode != 200 {
				t.Errorf("has %q, asks for %q: %d %q", have, want, res.StatusCode, body)
			}
			res, body = ask(t, "GET", srv.URL+"/a.css", "Accept-Encoding", accept, "If-Range", tag, "Range", "bytes=3-")
			if have == want && (res.StatusCode != 206 || len(body) == 0) || have != want && res.StatusCode != 200 {
				t.Errorf("has a part of %q, asks for %q: %d %q", have, want, res.StatusCode, body)
			}
		}
	}
	// Clients know how much is to come, as of a file that is not compressed.
	write(t, root, "big.css", "plain text", time.Hour)
	write(t, root, "big.css.br", strings.Repeat("brotli", 20000), time.Hour)
	for _, test := range []struct {
		method, header, value string
		code                  int
		length                int64
	}{
		{"GET", "", "", 200, 120000},
		{"HEAD", "", "", 200, 120000},
		{"GET", "Range", "bytes=100-", 206, 119900},
		{"GET", "If-Match", `"other"`, 412, 0},
	} {
		res, body := ask(t, test.method, srv.URL+"/big.css", "Accept-Encoding", "br", test.header, test.value)
		if res.StatusCode != test.code || res.ContentLength != test.length || test.method == "GET" && int64(len(body)) != test.length {
			t.Errorf("%s, %s %s: %d, length %d, a body of %d bytes", test.method, test.header, test.value, res.StatusCode, res.ContentLength, len(body))
		}
	}
	if res, body := ask(t, "GET", srv.URL+"/a.css.gz", "Accept-Encoding", "gzip"); res.Header.Get("Content-Encoding") != "" ||
		res.Header.Get("Content-Type") != "application/gzip" || body != zipped.String() {
		t.Errorf("the .gz itself: %v", res.Header)
	}
}

func TestStatic(t *testing.T) {
	root := t.TempDir()
	write(t, root, "page.html", "<p>", time.Hour)
	write(t, root, "font.woff2", "x", time.Hour)
	write(t, root, "dir/<b> & \"c\".txt", "found", time.Hour)
	write(t, root, "dir/sub/x", "x", time.Hour)
	write(t, root, "dir/.hidden", "x", time.Hour)
	write(t, root, "dir/a:b", "colon", time.Hour)
	if err := os.Symlink("/etc", filepath.Join(root, "dir/etc")); err != nil {
		t.Fatal(err)
	}
	srv, _ := serve(t, config.Site{Root: root})
	res, _ := ask(t, "HEAD", srv.URL+"/page.html")
	modified := res.Header.Get("Last-Modified")
	if res.Header.Get("Content-Type") != "text/html; charset=utf-8" || modified == "" || res.ContentLength != 3 {
		t.Errorf("HEAD: %v", res.Header)
	}
	for _, test := range []struct {
		path, header, value string
		code                int
	}{
		{"/page.html", "If-Modified-Since", modified, 304},
		{"/page.html", "If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT", 412},
		{"/page.html", "If-Match", `"other"`, 412},
		{"/page.html", "Range", "bytes=0-0", 206},
		{"/page.html", "Range", "bytes=9-", 416},
		{"/page.html", "Range", "bytes=0-0,1-1", 206},
		{"/font.woff2", "", "", 200},
		{"/dir", "", "", 301},
		{"/dir/", "", "", 404}, // no listing
		{"/dir/etc/passwd", "", "", 404},
		{"/dir/.hidden", "", "", 404},
		{"/page.html/", "", "", 404},
		{"/%00", "", "", 404},
		{"/..%2f..%2fetc/passwd", "", "", 404},
	} {
		if res, _ := ask(t, "GET", srv.URL+test.path, test.header, test.value); res.StatusCode != test.code {
			t.Errorf("%s, %s %s: %d, want %d", test.path, test.header, test.value, res.StatusCode, test.code)
		}
	}
	if res, _ := ask(t, "GET", srv.URL+"/dir?lang=de&q=a%2Fb"); res.Header.Get("Location") != "/dir/?lang=de&q=a%2Fb" {
		t.Errorf("a directory with a query: to %q", res.Header.Get("Location"))
	}
	if res, _ := ask(t, "POST", srv.URL+"/page.html"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d", res.StatusCode)
	}

	listed, _ := serve(t, config.Site{Root: root, Listing: true})
	_, page := ask(t, "GET", listed.URL+"/dir/")
	for _, want := range []string{`<a href="../">`, `<a href="./sub/">sub/</a>`, `<a href="./%3Cb%3E%20&amp;%20%22c%22.txt">&lt;b&gt; &amp; &#34;c&#34;.txt</a><td align=right>5`, `<a href="./a:b">a:b</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	for _, hidden := range []string{".hidden", "etc", "<b>"} {
		if strings.Contains(page, hidden) {
			t.Errorf("%s in\n%s", hidden, page)
		}
	}
	if _, body := ask(t, "GET", listed.URL+"/dir/%3Cb%3E%20&%20%22c%22.txt"); body != "found" {
		t.Errorf("by its link: %q", body)
	}
}

// TestListing checks that directories come first, then files, each by name.
func TestListing(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"e", "z/x", "c", "a", "b/x", "f", "d", "A", "y/x", "g"} {
		write(t, root, name, "x", 0)
	}
	srv, _ := serve(t, config.Site{Root: root, Listing: true})
	_, page := ask(t, "GET", srv.URL+"/")
	var names []string
	for _, link := range strings.Split(page, `<a href="`)[1:] {
		name, _, _ := strings.Cut(link, `"`)
		names = append(names, strings.TrimPrefix(name, "./"))
	}
	if got := strings.Join(names, " "); got != "b/ y/ z/ A a c d e f g" {
		t.Errorf("listed: %s", got)
	}
}

// A written response keeps what was written to it, as a client does that reads slowly.
type written struct {
	http.ResponseWriter
	body [][]byte
}

func (w *written) Write(b []byte) (int, error) {
	w.body = append(w.body, b)
	return len(b), nil
}

// TestListingShared checks that requests for a directory that are answered at a time take the memory of one page, and that later ones
// get another page.
func TestListingShared(t *testing.T) {
	root := t.TempDir()
	for i := range 100 {
		write(t, root, fmt.Sprint("file-", i), "x", 0)
	}
	sites, err := New([]config.Site{{Hosts: []string{"*"}, Root: root, Listing: true}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	list := func() []byte {
		t.Helper()
		w := &written{ResponseWriter: httptest.NewRecorder()}
		sites.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "https://a.example/", nil))
		if len(w.body) != 1 {
			t.Fatalf("a page in %d pieces", len(w.body))
		}
		return w.body[0]
	}
	pages := make(map[*byte]bool)
	for range 50 {
		pages[&list()[0]] = true
	}
	if len(pages) > 25 {
		t.Errorf("%d pages for 50 requests", len(pages))
	}
	write(t, root, "new", "x", 0)
	sites.byHost["*"].(folder).listing.forget()
	if page := string(list()); !strings.Contains(page, ">new</a>") {
		t.Errorf("a new file is missing in\n%s", page)
	}
}

func TestHosts(t *testing.T) {
	root := t.TempDir()
	write(t, root, "f", "x", 0)
	s, err := New([]config.Site{{Hosts: []string{"a.example", "2001:db8::1"}, Root: root}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Retire()
	for host, code := range map[string]int{
		"a.example": 200, "A.Example.": 200, "a.example:8443": 200, "[2001:db8:0::1]:8443": 200,
		"b.example": 421, "xa.example": 421, "": 421, "a.example/": 400, "a.example@b.example": 400, "a.example b": 400, "a.exa\rmple": 400,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/f", nil)
		r.Host = host
		if s.ServeHTTP(w, r); w.Code != code {
			t.Errorf("%q: %d, want %d", host, w.Code, code)
		}
	}
	// HTTP/2 and HTTP/3 can carry Host in addition to :authority.
	for host, code := range map[string]int{"a.example": 200, "b.example": 400} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/f", nil)
		r.Host = "a.example"
		r.Header["Host"] = []string{host}
		if s.ServeHTTP(w, r); w.Code != code {
			t.Errorf("Host %q beside a.example: %d, want %d", host, w.Code, code)
		}
	}
}

// named returns an origin that answers with its name and counts its requests. It has an address of its own: a test that closes it finds nobody else
// there, and can listen there again.
func named(t *testing.T, name string) (*url.URL, *atomic.Int64, *httptest.Server) {
	t.Helper()
	count := new(atomic.Int64)
	ln, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, name, string(body))
	})}}
	srv.Start()
	t.Cleanup(srv.Close)
	u, _ := url.Parse(srv.URL)
	return u, count, srv
}

func TestSeveralOrigins(t *testing.T) {
	first, asked, srv := named(t, "first")
	second, _, _ := named(t, "second")
	site, sites := serve(t, config.Site{Origins: []*url.URL{first, second}})
	if _, body := ask(t, "GET", site.URL); body != "first" {
		t.Errorf("got %q", body)
	}
	addr := srv.Listener.Addr().String()
	srv.Close()
	if _, body := ask(t, "GET", site.URL); body != "second" {
		t.Errorf("after the first has gone: %q", body)
	}
	if st := sites.Origins(); st[0].Up || st[0].Error == "" || !st[1].Up {
		t.Errorf("status %+v", st)
	}
	// A POST to a server that does not exist has not been sent, so it can be retried.
	fresh, _ := serve(t, config.Site{Origins: []*url.URL{first, second}})
	res, err := http.Post(fresh.URL, "text/plain", strings.NewReader(" got it"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "second got it" {
		t.Errorf("POST: %q", body)
	}

	before := asked.Load()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	again := &httptest.Server{Listener: ln, Config: &http.Server{Handler: srv.Config.Handler}}
	again.Start()
	defer again.Close()
	deadline := time.Now().Add(time.Minute)
	for asked.Load() == before {
		if time.Now().After(deadline) {
			t.Fatal("the first is not asked again")
		}
		ask(t, "GET", site.URL)
		time.Sleep(50 * time.Millisecond)
	}
	if st := sites.Origins(); !st[0].Up || st[0].Error != "" {
		t.Errorf("status %+v", st)
	}
}

// TestRetry checks which requests are retried if an origin breaks the connection: it
// may already have executed them.
func TestRetry(t *testing.T) {
	var asked atomic.Int64
	breaks := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	defer breaks.Close()
	resets := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}))
	defer resets.Close()
	good, also, _ := named(t, "good")
	for _, test := range []struct {
		method, body string
		code         int
	}{{"GET", "", 200}, {"DELETE", "", 200}, {"POST", "", 502}, {"PUT", "x", 502}, {"GET", "x", 502}} {
		for _, bad := range []*httptest.Server{breaks, resets} {
			u, _ := url.Parse(bad.URL)
			site, _ := serve(t, config.Site{Origins: []*url.URL{u, good}})
			asked.Store(0)
			also.Store(0)
			r, _ := http.NewRequestWithContext(t.Context(), test.method, site.URL, strings.NewReader(test.body))
			if test.body != "" {
				r.ContentLength = -1 // the end of the body says how long it is
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != test.code || asked.Load() != 1 || also.Load() > 0 != (test.code == 200) {
				t.Errorf("%s with %q: %d, want %d; asked %d times, and another %d", test.method, test.body, res.StatusCode, test.code, asked.Load(), also.Load())
			}
		}
	}
}

// TestTrial checks that one request finds out if an origin is up again, and the others do not wait for it.
func TestTrial(t *testing.T) {
	asked := make(chan bool, 10)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- true
		<-r.Context().Done()
	}))
	defer hangs.Close()
	first, _ := url.Parse(hangs.URL)
	good, _, _ := named(t, "good")
	site, sites := serve(t, config.Site{Origins: []*url.URL{first, good}})
	proxy := sites.proxies[0].origins
	proxy.transport.ResponseHeaderTimeout = 5 * time.Second
	for range 2 {
		proxy.down(proxy.all[0], errors.New("it hung"))
		proxy.all[0].until = time.Now()
		done := make(chan bool)
		go func() {
			defer close(done)
			if res, err := http.Get(site.URL); err == nil {
				res.Body.Close()
			}
		}()
		<-asked
		for range 5 {
			if _, body := ask(t, "GET", site.URL); body != "good" {
				t.Errorf("got %q", body)
			}
		}
		<-done
		if n := len(asked); n > 0 {
			t.Errorf("%d more waited for it", n)
		}
		if !time.Now().Before(proxy.all[0].until) {
			t.Error("it is asked again at once")
		}
	}
}

// TestNotTheOrigin: an origin is not down because a client sends nonsense or goes away; but it is if it does not answer.
func TestNotTheOrigin(t *testing.T) {
	asked := make(chan bool, 1)
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- true
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	for _, test := range []struct {
		name, request string
		answer        string // "": the client does not wait for one
		up            bool
	}{
		{"a bad chunk", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n", "HTTP/1.1 400 Bad Request\r\n", true},
		{"a client that is gone", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", true},
		{"no answer", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 504 Gateway Timeout\r\n", false},
	} {
		site, sites := serve(t, config.Site{Origins: []*url.URL{u}})
		if !test.up {
			sites.proxies[0].origins.transport.ResponseHeaderTimeout = 10 * time.Millisecond
		}
		conn, err := net.Dial("tcp", site.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, test.request)
		if <-asked; test.answer != "" {
			if line, err := bufio.NewReader(conn).ReadString('\n'); line != test.answer {
				t.Errorf("%s: %q, %v", test.name, line, err)
			}
		}
		conn.Close()
		site.Close() // waits for the request to end
		if st := sites.Origins(); st[0].Up != test.up {
			t.Errorf("%s: %+v", test.name, st)
		}
	}
}

// TestFailuresLoggedOnce checks that an origin that fails is not a line in the log for each request, although the error
// is another one each time: it contains the local port, the stream's ID, or the time.
func TestFailuresLoggedOnce(t *testing.T) {
	resets, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer resets.Close()
	go func() {
		for {
			conn, err := resets.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	aborts := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	aborts.EnableHTTP2 = true
	aborts.StartTLS()
	defer aborts.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: aborts.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"http://" + resets.Addr().String(), aborts.URL} {
		u, _ := url.Parse(origin)
		var log bytes.Buffer
		sites, err := New([]config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}, OriginCA: ca}}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer sites.Retire()
		site := httptest.NewServer(sites)
		for range 20 {
			if res, _ := ask(t, "GET", site.URL); res.StatusCode != 502 {
				t.Error(res.Status)
			}
		}
		site.Close()
		// A reset can arrive while the request is written, or while the answer is read.
		if n := strings.Count(log.String(), "origin failed"); n < 1 || n > 3 {
			t.Errorf("%s: logged %d times:\n%s", origin, n, log.String())
		}
	}
	for _, texts := range [][2]string{
		{"x509: certificate has expired or is not yet valid: current time 2026-11-28T08:35:03Z is after 1999-02-03T00:00:00Z", "x509: certificate has expired or is not yet valid: current time 2026-11-28T08:35:04Z is after 1999-02-03T00:00:00Z"},
		{"dial tcp: lookup o.example on 127.0.0.1:53: read udp 127.0.0.1:40420->127.0.0.1:53: read: connection refused", "dial tcp: lookup o.example on 127.0.0.1:53: read udp 127.0.0.1:4042->127.0.0.1:53: read: connection refused"},
	} {
		if unnumbered(texts[0]) != unnumbered(texts[1]) {
			t.Errorf("%q is another reason than %q", texts[0], texts[1])
		}
	}
}

// TestDown checks how long an origin that fails receives no requests, and what is logged of it.
func TestDown(t *testing.T) {
	var log bytes.Buffer
	a, b := &origin{url: &url.URL{Host: "a"}}, &origin{url: &url.URL{Host: "b"}}
	o := &origins{all: []*origin{a, b}, log: slog.New(slog.NewTextHandler(&log, nil)), lines: rate.NewLimiter(0, 10)}
	logged := func(want string) {
		t.Helper()
		got := ""
		for line := range strings.Lines(log.String()) {
			_, message, _ := strings.Cut(line, "msg=")
			got += message
		}
		if log.Reset(); got != want {
			t.Errorf("logged %q, not %q", got, want)
		}
	}
	first := func(want *origin) {
		t.Helper()
		if o.order()[0] != want {
			t.Errorf("not the first: %v", want.url)
		}
	}
	first(a)
	for pause := minDown; pause < 10*maxDown; pause *= 2 {
		for i := range 3 { // requests in progress
			o.down(a, fmt.Errorf("port %d refused", i))
		}
		if a.pause != min(pause, maxDown) || time.Until(a.until) > a.pause {
			t.Errorf("a pause of %v, not of %v, until %v", a.pause, pause, a.until)
		}
		first(b)
		a.until = time.Now()
		first(a)
		a.begin(time.Now()) // a request finds out if it is up again, and the next failure says that it is not
		first(b)
	}
	logged("\"origin failed\" origin=//a error=\"port 0 refused\"\n")
	o.down(a, errors.New("reset"))
	for range 3 { // another reason is news once
		o.down(a, errors.New("late"))
	}
	logged("\"origin failed\" origin=//a error=reset\n\"origin failed\" origin=//a error=late\n")
	o.up(a)
	o.up(a)
	logged("\"origin answers again\" origin=//a\n")
	o.down(a, errors.New("late"))
	logged("\"origin failed\" origin=//a error=late\n")
	// A client may have it fail and answer in turn, and choose what the error quotes.
	long := errors.New(strings.Repeat("x", 1<<20))
	for range 1000 {
		o.up(a)
		o.down(a, long)
	}
	if n := log.Len(); n > 10*1000 {
		t.Errorf("logged %d bytes", n)
	}
	if n := len(o.status()[0].Error); n > 1000 {
		t.Errorf("an error of %d bytes in the status", n)
	}
}

// TestOrigins checks that an origin of two sites is shown once, and as up if one of them reaches it.
func TestOrigins(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "a"}
	sites, err := New([]config.Site{{Hosts: []string{"one"}, Origins: []*url.URL{u}}, {Hosts: []string{"two"}, Origins: []*url.URL{u}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, down := range []int{0, 1} {
		o := sites.proxies[down].origins
		o.down(o.all[0], errors.New("refused"))
		if st := sites.Origins(); len(st) != 1 || !st[0].Up {
			t.Errorf("down for site %d: %+v", down, st)
		}
		o.up(o.all[0])
	}
}

// TestBuffers checks that many slow clients take only small buffers.
func TestBuffers(t *testing.T) {
	for range 2 {
		var all [][]byte
		for i := range 2 * maxLarge {
			b := buffers.Get()
			if large := len(b) == bodyBuffer; large != (i < maxLarge) {
				t.Errorf("buffer %d has %d bytes", i, len(b))
			}
			all = append(all, b)
		}
		for _, b := range all {
			buffers.Put(b)
		}
	}
}

func TestForwarded(t *testing.T) {
	seen := make(chan *http.Request, 1)
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r }))
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	site, _ := serve(t, config.Site{Origins: []*url.URL{u}})
	ask(t, "GET", site.URL+"/p?q=%20;x", "Host", "a.example:99", "X-Forwarded-For", "192.0.2.66", "X-Forwarded-Proto", "gopher",
		"X-Forwarded-Host", "evil.example", "Forwarded", "for=192.0.2.66", "Connection", "X-Drop, Upgrade", "Upgrade", "h2c", "X-Drop", "1", "X-Keep", "1", "Te", "trailers",
		"X-Forwarded-Prefix", "//evil.example", "X-Forwarded-User", "root", "X-Forwarded-Port", "1", "X_Forwarded_User", "root",
		"X_Forwarded_For", "192.0.2.66", "x-forwarded_host", "evil.example", "X_FORWARDED_PROTO", "gopher", "Early_Data", "1", "Api_Key", "1")
	r := <-seen
	h := r.Header
	if r.Host != "a.example:99" || h.Get("X-Forwarded-For") != "127.0.0.1" || h.Get("X-Forwarded-Proto") != "http" ||
		h.Get("X-Forwarded-Host") != "a.example:99" || h.Get("Forwarded") != "" || h.Get("X-Drop") != "" || h.Get("X-Keep") != "1" ||
		h.Get("Upgrade") != "" || h.Get("Connection") != "" || h.Get("Accept-Encoding") != "" || h.Get("Api_Key") != "1" {
		t.Errorf("the origin saw %s, %v", r.Host, h)
	}
	for name := range h { // or as CGI and WSGI name them
		if strings.HasPrefix(name, "X-Forwarded-") && name != "X-Forwarded-For" && name != "X-Forwarded-Host" && name != "X-Forwarded-Proto" {
			t.Errorf("the origin saw %s", name)
		}
		if strings.Contains(name, "_") && name != "Api_key" {
			t.Errorf("the origin saw %s", name)
		}
	}
}

func TestStreams(t *testing.T) {
	proceed := make(chan bool, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 2 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-proceed
		}
	})
	mux.HandleFunc("/known", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "6")
		for _, half := range []string{"one", "two"} {
			_, _ = io.WriteString(w, half)
			_ = http.NewResponseController(w).Flush()
			<-proceed
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		line := bufio.NewReader(r.Body)
		for {
			text, err := line.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+text)
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.Handle("/socket", websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	origin := httptest.NewServer(mux)
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	site, _ := serve(t, config.Site{Origins: []*url.URL{u}})

	// Each event arrives before the next one is sent.
	res, err := http.Get(site.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	for i := range 2 {
		if line, err := events.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) || err != nil {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
		_, _ = events.ReadString('\n')
		proceed <- true
	}

	// So does a part of a response whose length is known.
	if res, err = http.Get(site.URL + "/known"); err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for _, half := range []string{"one", "two"} {
		got := make([]byte, 3)
		if _, err := io.ReadFull(res.Body, got); string(got) != half {
			t.Fatalf("%q, %v", got, err)
		}
		proceed <- true
	}

	// Both directions at the same time.
	in, out := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", site.URL+"/echo", in)
	go func() { _, _ = io.WriteString(out, "one\n") }()
	res, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	echo := bufio.NewReader(res.Body)
	for _, word := range []string{"one", "two"} {
		if line, err := echo.ReadString('\n'); line != "echo "+word+"\n" || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		if word == "one" {
			_, _ = io.WriteString(out, "two\n")
		}
	}
	out.Close()

	ws, err := websocket.Dial("ws"+strings.TrimPrefix(site.URL, "http")+"/socket", "", site.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	for _, text := range []string{"hello", strings.Repeat("x", 100000)} {
		got := make([]byte, len(text))
		if err := websocket.Message.Send(ws, text); err != nil {
			t.Fatal(err)
		}
		if n, err := io.ReadFull(ws, got); err != nil || string(got) != text {
			t.Errorf("WebSocket: %d bytes, %v", n, err)
		}
	}
}

// TestOriginTLS checks that an origin is reached over HTTP/2 if its authority is
// configured, and refused otherwise.
func TestOriginTLS(t *testing.T) {
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	origin.EnableHTTP2 = true
	origin.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	origin.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	origin.StartTLS()
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, certPEM(origin.Certificate()), 0o644); err != nil {
		t.Fatal(err)
	}
	site, _ := serve(t, config.Site{Origins: []*url.URL{u}, OriginCA: ca})
	if res, body := ask(t, "GET", site.URL); res.StatusCode != 200 || body != "HTTP/2.0" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	strict, _ := serve(t, config.Site{Origins: []*url.URL{u}})
	if res, _ := ask(t, "GET", strict.URL); res.StatusCode != 502 {
		t.Errorf("an unknown authority: %d", res.StatusCode)
	}
	for _, bad := range []string{"/nonexistent", os.Args[0]} {
		if _, err := New([]config.Site{{Hosts: []string{"a"}, Origins: []*url.URL{u}, OriginCA: bad}}, nil); err == nil || !strings.Contains(err.Error(), "site with host a: origin_ca: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestNonsense: an origin is not down because a client asks for what http.Transport refuses.
func TestNonsense(t *testing.T) {
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	origin.EnableHTTP2 = true
	origin.StartTLS()
	defer origin.Close()
	u, _ := url.Parse(origin.URL)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, certPEM(origin.Certificate()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		request http.Request
		code    int
	}{
		{"a method of two words", http.Request{Method: "GET x", URL: &url.URL{Path: "/"}}, 400},
		{"a target without a path", http.Request{Method: "GET", URL: &url.URL{Scheme: "x", Opaque: "y"}}, 400},
		{"a trailer of two words", http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Trailer: http.Header{"A b": nil}}, 200},
		{"a length as a trailer", http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Trailer: http.Header{"Content-Length": nil}}, 200},
	} {
		sites, err := New([]config.Site{{Hosts: []string{"*"}, Origins: []*url.URL{u}, OriginCA: ca}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		test.request.Host, test.request.RemoteAddr, test.request.ProtoMajor = "a", "192.0.2.1:1", 2
		sites.ServeHTTP(w, &test.request)
		if st := sites.Origins(); w.Code != test.code || !st[0].Up {
			t.Errorf("%s: %d, want %d; %+v", test.name, w.Code, test.code, st)
		}
		sites.Retire()
	}
}

// TestForgottenConnection has a firewall on the way to an origin forget its connection: nothing arrives by it any more.
func TestForgottenConnection(t *testing.T) {
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	origin.EnableHTTP2 = true
	origin.StartTLS()
	defer origin.Close()
	firewall, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer firewall.Close()
	var forgets [2]atomic.Bool // by connection
	go func() {
		for i := 0; ; i++ {
			client, err := firewall.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", origin.Listener.Addr().String())
			if err != nil {
				panic(err)
			}
			forgets := &forgets[min(i, 1)]
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					packet := make([]byte, 1<<16)
					for {
						n, err := way[0].Read(packet)
						if err != nil {
							way[1].Close()
							return
						}
						if !forgets.Load() {
							_, _ = way[1].Write(packet[:n])
						}
					}
				}()
			}
		}
	}()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, certPEM(origin.Certificate()), 0o644); err != nil {
		t.Fatal(err)
	}
	site, sites := serve(t, config.Site{Origins: []*url.URL{{Scheme: "https", Host: firewall.Addr().String()}}, OriginCA: ca})
	transport := sites.proxies[0].origins.transport
	if transport.HTTP2 == nil || transport.HTTP2.SendPingTimeout+transport.HTTP2.PingTimeout > transport.ResponseHeaderTimeout {
		t.Fatalf("a request waits in vain: %+v", transport.HTTP2)
	}
	transport.HTTP2.SendPingTimeout, transport.HTTP2.PingTimeout = 50*time.Millisecond, 10*time.Second
	if res, _ := ask(t, "GET", site.URL); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	forgets[0].Store(true)
	_, _ = ask(t, "GET", site.URL) // fails, unless the connection has been given up before it
	if res, _ := ask(t, "GET", site.URL); res.StatusCode != 200 {
		t.Errorf("by another connection: %s", res.Status)
	}
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// TestOutOfFiles has a gateway that has no file descriptor left. What it cannot open is not missing.
func TestOutOfFiles(t *testing.T) {
	directory := t.TempDir()
	write(t, directory, "page.html", "<p>", time.Hour)
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/page.html", "/"} {
		w := httptest.NewRecorder()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		files{root, nil, slog.New(slog.DiscardHandler)}.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
