// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// types are the media types that Go's own table lacks. A router has no mime.types.
var types = map[string]string{
	".7z": "application/x-7z-compressed", ".apk": "application/vnd.android.package-archive", ".bin": "application/octet-stream",
	".bz2": "application/x-bzip2", ".csv": "text/csv; charset=utf-8", ".eot": "application/vnd.ms-fontobject",
	".epub": "application/epub+zip", ".gz": "application/gzip", ".ico": "image/x-icon", ".ics": "text/calendar; charset=utf-8",
	".img": "application/octet-stream", ".ipk": "application/octet-stream", ".iso": "application/octet-stream",
	".m3u8": "application/vnd.apple.mpegurl", ".m4a": "audio/mp4", ".m4s": "video/iso.segment", ".map": "application/json",
	".md": "text/markdown; charset=utf-8", ".mp3": "audio/mpeg", ".mp4": "video/mp4", ".mpd": "application/dash+xml",
	".ogg": "audio/ogg", ".opus": "audio/ogg", ".otf": "font/otf", ".tar": "application/x-tar", ".ts": "video/mp2t",
	".ttf": "font/ttf", ".txt": "text/plain; charset=utf-8", ".vtt": "text/vtt; charset=utf-8", ".wav": "audio/wav",
	".webm": "video/webm", ".webmanifest": "application/manifest+json", ".woff": "font/woff", ".woff2": "font/woff2",
	".xz": "application/x-xz", ".yaml": "application/yaml", ".yml": "application/yaml", ".zip": "application/zip", ".zst": "application/zstd",
}

// codings are the content codings of precompressed files next to a file, usually the
// smallest first.
var codings = []struct{ name, suffix string }{{"br", ".br"}, {"zstd", ".zst"}, {"gzip", ".gz"}}

const (
	// maxListed is the limit on the entries of a directory listing.
	maxListed = 10000
	// maxShared is how long requests share a listing, which may be as old.
	maxShared = time.Second
)

// A folder is a site's directory. It is opened for each request, because it may come and go, and because an open
// directory keeps a drive from being unmounted.
type folder struct {
	path    string
	listing *listings // nil: none
	log     *slog.Logger
}

func (f folder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(f.path)
	if err != nil { // Look says why
		http.Error(w, "the directory of this site is missing", http.StatusServiceUnavailable)
		return
	}
	defer root.Close()
	files{root, f.listing, f.log}.ServeHTTP(w, r)
}

// files serves the files below root. It does not serve names that begin with a dot,
// except /.well-known (RFC 8615), nor symbolic links that lead out of root.
type files struct {
	root    *os.Root
	listing *listings // nil: none
	log     *slog.Logger
}

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are served", http.StatusMethodNotAllowed)
		return
	}
	name := path.Clean("/" + r.URL.Path)
	if hidden(name) {
		http.NotFound(w, r)
		return
	}
	file, info, err := f.open(name)
	if err == nil && info.IsDir() {
		if !strings.HasSuffix(r.URL.Path, "/") {
			file.Close()
			// Relative links in the index need the slash.
			to := url.URL{Path: strings.TrimSuffix(name, "/") + "/", RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
			return
		}
		directory := file
		defer directory.Close()
		file, info, err = f.open(path.Join(name, "index.html"))
		if f.listing != nil && os.IsNotExist(err) {
			f.list(w, r, directory, name)
			return
		}
		name = path.Join(name, "index.html")
	} else if err == nil && strings.HasSuffix(r.URL.Path, "/") {
		file.Close()
		http.NotFound(w, r)
		return
	}
	if err != nil {
		f.refuse(w, r, name, err)
		return
	}
	defer func() { file.Close() }()
	if !info.Mode().IsRegular() {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	if t := contentType(name); t != "" {
		h.Set("Content-Type", t)
	}
	h.Set("Vary", "Accept-Encoding")
	tag := etag(info)
	if coded, codedInfo, coding := f.precompressed(name, info, r.Header.Values("Accept-Encoding")); coded != nil {
		file.Close()
		file, info = coded, codedInfo
		tag = etag(info) + "-" + coding
		h.Set("Content-Encoding", coding)
		if h.Get("Content-Type") == "" { // ServeContent would detect the type of the compressed data
			h.Set("Content-Type", "application/octet-stream")
		}
		w = sized{w, info.Size()}
	}
	h.Set("ETag", `"`+tag+`"`)
	if r.ProtoMajor == 3 {
		w = largeWrites{w}
	}
	http.ServeContent(w, r, "", info.ModTime(), file)
}

// refuse answers a request for what cannot be opened or listed. What may be there, on a drive that fails or while descriptors or memory are
// short, is not "not found": search engines and caches would forget it.
func (f files) refuse(w http.ResponseWriter, r *http.Request, name string, err error) {
	if !os.IsNotExist(err) {
		f.log.Debug("file not served", "path", name, "error", err)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case syscall.EIO, syscall.EUCLEAN, syscall.ESTALE, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
			http.Error(w, "this file cannot be read at the moment", http.StatusServiceUnavailable)
			return
		}
	}
	http.NotFound(w, r)
}

// A sized response says how long it is. http.ServeContent leaves that out, in case somebody compresses what it writes, and
// then a file that cannot be read to its end, as on a failing drive, looks complete.
type sized struct {
	http.ResponseWriter
	size int64
}

func (w sized) WriteHeader(code int) {
	if code == http.StatusOK {
		w.Header().Set("Content-Length", strconv.FormatInt(w.size, 10))
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w sized) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// hidden reports whether an element of name begins with a dot, except for /.well-known.
func hidden(name string) bool {
	if rest, ok := strings.CutPrefix(name+"/", "/.well-known/"); ok {
		name = "/" + rest
	}
	return strings.Contains(name, "/.")
}

func contentType(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if t := types[ext]; t != "" {
		return t
	}
	return mime.TypeByExtension(ext)
}

// etag returns a strong validator, as long as no two versions of the same size are written
// within the resolution of the file system's time. nginx and Caddy assume the same.
func etag(info os.FileInfo) string {
	return strconv.FormatInt(info.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(info.Size(), 36)
}

// precompressed opens the first precompressed version in the order of codings that the
// client accepts and that is not older than the file itself.
func (f files) precompressed(name string, plain os.FileInfo, accept []string) (*os.File, os.FileInfo, string) {
	for _, c := range codings {
		if !accepts(accept, c.name) {
			continue
		}
		file, info, err := f.open(name + c.suffix)
		if err != nil {
			continue
		}
		if info.Mode().IsRegular() && !info.ModTime().Before(plain.ModTime()) {
			return file, info, c.name
		}
		file.Close()
	}
	return nil, nil, ""
}

// accepts reports whether Accept-Encoding (RFC 9110, section 12.5.3) names coding. It
// ignores "*", so such a client receives the plain file.
func accepts(fields []string, coding string) bool {
	for _, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			name, params, _ := strings.Cut(item, ";")
			if !strings.EqualFold(strings.TrimSpace(name), coding) {
				continue
			}
			key, q, _ := strings.Cut(strings.TrimSpace(params), "=")
			if !strings.EqualFold(strings.TrimSpace(key), "q") {
				return true
			}
			weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return err == nil && weight > 0
		}
	}
	return false
}

// listings are the directory listings of a site. For a large directory, a page takes megabytes, and clients may read it slowly. So pages are
// made one at a time, and requests that come within maxShared share one.
type listings struct {
	mu   sync.Mutex // held while a page is made
	name string     // of the page's directory
	page []byte     // nil: none to share
}

func (l *listings) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page = nil
}

// list serves a directory listing.
func (f files) list(w http.ResponseWriter, r *http.Request, directory *os.File, name string) {
	l := f.listing
	l.mu.Lock()
	page, err := l.page, error(nil)
	if page == nil || l.name != name {
		if page, err = makePage(directory, name); err == nil {
			l.name, l.page = name, page
			time.AfterFunc(maxShared, l.forget)
		}
	}
	l.mu.Unlock()
	if err != nil {
		f.refuse(w, r, name, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(page)
	}
}

// makePage makes a directory listing: directories first, then files, sorted by name.
func makePage(directory *os.File, name string) ([]byte, error) {
	entries, err := directory.ReadDir(maxListed)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var listed []*os.DirEntry // to sort interfaces would take 8 KB of a router's flash
	for i, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && (e.IsDir() || e.Type().IsRegular()) {
			listed = append(listed, &entries[i])
		}
	}
	slices.SortFunc(listed, func(x, y *os.DirEntry) int {
		a, b := *x, *y
		if a.IsDir() != b.IsDir() {
			if a.IsDir() {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name(), b.Name())
	})
	var page bytes.Buffer
	title := html.EscapeString(strings.TrimSuffix(name, "/") + "/")
	fmt.Fprintf(&page, "<!DOCTYPE html>\n<meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>%s</title>\n<h1>%s</h1>\n<table>\n", title, title)
	if name != "/" {
		page.WriteString("<tr><td><a href=\"../\">../</a>\n")
	}
	for _, entry := range listed {
		e := *entry
		shown, size := e.Name(), ""
		if e.IsDir() {
			shown += "/"
		} else if info, err := e.Info(); err == nil {
			size = strconv.FormatInt(info.Size(), 10)
		}
		// "./" keeps a name with a colon from being taken for a scheme.
		link := "./" + (&url.URL{Path: shown}).EscapedPath()
		fmt.Fprintf(&page, "<tr><td><a href=\"%s\">%s</a><td align=right>%s\n", html.EscapeString(link), html.EscapeString(shown), size)
	}
	page.WriteString("</table>\n")
	return page.Bytes(), nil
}

// open opens a file or directory. On a FIFO, it does not wait for a writer.
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

const (
	// bodyBuffer is the size of the pieces in which bodies are written. Each piece
	// ends in a short packet. With io.Copy's 32 KiB, HTTP/3 packets carry 1,313 bytes
	// on average, with this size 1,390.
	bodyBuffer = 128 << 10
	// At most maxLarge such buffers are in use. Further concurrent requests use a
	// smallBuffer, so that slow clients cannot exhaust memory.
	maxLarge    = 32
	smallBuffer = 16 << 10
)

// bufferPool is a pool of buffers for bodies (httputil.BufferPool).
type bufferPool struct {
	large, small sync.Pool
	lent         atomic.Int32 // large buffers in use
}

var buffers = bufferPool{
	large: sync.Pool{New: func() any { return new([bodyBuffer]byte) }},
	small: sync.Pool{New: func() any { return new([smallBuffer]byte) }},
}

func (p *bufferPool) Get() []byte {
	if p.lent.Add(1) <= maxLarge {
		return p.large.Get().(*[bodyBuffer]byte)[:]
	}
	p.lent.Add(-1)
	return p.small.Get().(*[smallBuffer]byte)[:]
}

func (p *bufferPool) Put(b []byte) {
	if len(b) == smallBuffer {
		p.small.Put((*[smallBuffer]byte)(b))
		return
	}
	p.large.Put((*[bodyBuffer]byte)(b))
	p.lent.Add(-1)
}

// largeWrites makes http.ServeContent write in pieces of bodyBuffer.
type largeWrites struct{ http.ResponseWriter }

func (w largeWrites) ReadFrom(r io.Reader) (int64, error) {
	b := buffers.Get()
	defer buffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{w.ResponseWriter}, r, b)
}

func (w largeWrites) Unwrap() http.ResponseWriter { return w.ResponseWriter }
