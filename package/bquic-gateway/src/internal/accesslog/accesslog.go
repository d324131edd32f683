// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Protocols are the protocols by which requests are counted.
var Protocols = [...]string{"http/1.1", "h2", "h3"}

const (
	// maxQueued is the limit on the lines that wait for a slow disk, in bytes. It
	// holds more than one second of a router's requests.
	maxQueued = 256 << 10
	// closeTimeout is how long Open waits for the old file's last lines.
	closeTimeout = 5 * time.Second
	// lateInterval is how long the daemon's log is silent on dropped lines after it has told of some.
	lateInterval = time.Minute
)

// A Log counts requests, and logs them if a file is open. The zero value only counts.
// Requests do not wait for the file: when the queue is full, lines are dropped.
type Log struct {
	Logger *slog.Logger // for errors of the file

	counts         [len(Protocols)][6]atomic.Uint64 // by protocol and status class
	sent, received atomic.Uint64
	dropped        atomic.Uint64

	mu      sync.Mutex // guards the fields below
	file    *os.File   // receives new lines
	queue   []line
	queued  int    // bytes
	writing bool   // a goroutine is emptying the queue
	late    uint64 // dropped lines that the daemon's log has not counted
	telling bool   // it will count them when the queue is empty
	told    time.Time

	failed bool // the last line could not be written; only the writing goroutine uses it
}

// A line waits to be written. Without text, it marks the end of its file, which is
// then closed.
type line struct {
	file *os.File
	text []byte
	done chan<- struct{} // closed when the line has been handled; may be nil
}

// Open opens the file at path ("": none) for appending, then closes the old file
// once its lines are written. It makes the directory, because /var/log is empty
// after each boot of a router. It waits up to closeTimeout for the old lines. If it
// fails, the old file stays open. A drive that has become full or read-only is no failure: lines are missing then.
func (l *Log) Open(path string) error {
	var file *os.File
	if path != "" {
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			file, err = openFile(path)
		}
		if lost(path, err) {
			l.Logger.Warn("cannot write the access log: requests are still served", "error", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	l.mu.Lock()
	old := l.file
	l.file = file
	l.mu.Unlock()
	if old != nil {
		l.flush(old)
	}
	return nil
}

// flush waits until all queued lines are written, at most closeTimeout. old is
// closed after its last line, if it is not nil.
func (l *Log) flush(old *os.File) {
	done := make(chan struct{})
	l.mu.Lock()
	l.enqueue(line{file: old, done: done})
	l.mu.Unlock()
	select {
	case <-done:
	case <-time.After(closeTimeout):
		l.Logger.Warn("the access log is slow: its last lines will be written later")
	}
}

// enqueue adds a line. The caller holds mu.
func (l *Log) enqueue(e line) {
	l.queue = append(l.queue, e)
	l.queued += len(e.text)
	if !l.writing {
		l.writing = true
		go l.writeQueue()
	}
}

// writeQueue writes all queued lines.
func (l *Log) writeQueue() {
	for {
		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		if len(batch) == 0 {
			l.writing = false
			late, telling := l.late, l.telling
			if telling {
				l.late, l.telling = 0, false
			}
			l.mu.Unlock()
			if telling {
				l.Logger.Warn("the access log was too slow: lines are missing", "lines", late)
			}
			return
		}
		l.mu.Unlock()
		for _, e := range batch {
			switch {
			case len(e.text) > 0:
				l.append(e.file, e.text)
			case e.file != nil:
				e.file.Close()
				l.failed = false
			}
			if e.done != nil {
				close(e.done)
			}
			l.mu.Lock()
			l.queued -= len(e.text)
			l.mu.Unlock()
		}
	}
}

// append writes a line completely or not at all.
func (l *Log) append(file *os.File, text []byte) {
	n, err := file.Write(text)
	if err != nil && n > 0 { // or else the next successful write would continue this partial line
		if info, err := file.Stat(); err == nil && info.Size() >= int64(n) {
			_ = file.Truncate(info.Size() - int64(n))
		}
	}
	if err != nil && !l.failed {
		l.Logger.Warn("cannot write the access log: requests are still served", "error", err)
	}
	if err == nil && l.failed {
		l.Logger.Info("the access log is written again")
	}
	l.failed = err != nil
}

// ReadOnly reports whether the drive of an existing file has become read-only. If there is no file, the path is a mistake:
// systemd's ProtectSystem makes most directories read-only.
func ReadOnly(path string, err error) bool {
	_, missing := os.Stat(path)
	return errors.Is(err, syscall.EROFS) && missing == nil
}

func lost(path string, err error) bool { return errors.Is(err, syscall.ENOSPC) || ReadOnly(path, err) }

// Check returns the error that Open would return, without making a file.
func Check(path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(path)
		info, err := os.Stat(dir)
		for errors.Is(err, fs.ErrNotExist) { // Open will make it
			dir = filepath.Dir(dir)
			info, err = os.Stat(dir)
		}
		if err == nil && !info.IsDir() {
			err = &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return err
	}
	file, err := openFile(path)
	if lost(path, err) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// openFile refuses files to which a write may block forever, such as a FIFO without
// a reader.
func openFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// Requests returns how many requests over a protocol were answered with a status of
// a class: 2 for 2xx.
func (l *Log) Requests(protocol, class int) uint64 { return l.counts[protocol][class].Load() }

// Bytes returns the sizes of all responses' bodies and of all requests' bodies.
func (l *Log) Bytes() (sent, received uint64) { return l.sent.Load(), l.received.Load() }

// Dropped returns how many lines were dropped because the file was too slow.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// unanswered is the status of a request whose handler aborted because the client
// was gone. nginx uses the same number.
const unanswered = 499

// Handler logs the requests that h answers.
func (l *Log) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		counted := &writer{ResponseWriter: w, log: l, head: r.Method == http.MethodHead}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &body{r.Body, &l.received}
		}
		otherwise := unanswered
		defer func() { // even if the handler panics
			code := counted.code
			if code == 0 {
				code = otherwise
			}
			l.counts[min(max(r.ProtoMajor, 1), len(Protocols))-1][min(code/100, 5)].Add(1)
			l.write(r, code, counted.bytes.Load(), begin)
		}()
		h.ServeHTTP(counted, r)
		otherwise = http.StatusOK
	})
}

func (l *Log) write(r *http.Request, code int, bytes uint64, begin time.Time) {
	l.mu.Lock()
	logged := l.file != nil
	l.mu.Unlock()
	if !logged {
		return
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	text := fmt.Appendf(nil, `%s - - [%s] "%s %s %s" %d %d "%s" "%s" "%s" %.1fms`+"\n",
		host, begin.Format("02/Jan/2006:15:04:05 -0700"), escape(r.Method), escape(r.RequestURI), escape(r.Proto),
		code, bytes, escape(r.Referer()), escape(r.UserAgent()), escape(r.Host), float64(time.Since(begin).Microseconds())/1000)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.file == nil:
	case l.queued+len(text) > maxQueued:
		l.dropped.Add(1)
		l.late++
		if now := time.Now(); !l.telling && now.Sub(l.told) >= lateInterval {
			l.telling, l.told = true, now
			go l.Logger.Warn("the access log is too slow: lines are dropped, and requests are still served")
		}
	default:
		l.enqueue(line{file: l.file, text: text})
	}
}

// maxField is the limit on a field that a client controls, in bytes.
const maxField = 2048

// escape replaces all characters that could end a field or a line, or control a terminal.
func escape(s string) string {
	const hex = "0123456789abcdef"
	if s == "" {
		return "-"
	}
	b := make([]byte, 0, min(len(s), maxField))
	for i := 0; i < len(s) && len(b) < maxField; i++ {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// A writer counts the response. http.ResponseController finds all other methods with Unwrap.
type writer struct {
	http.ResponseWriter
	log   *Log
	head  bool // HEAD: no body is sent
	bytes atomic.Uint64
	code  int
}

func (w *writer) WriteHeader(code int) {
	if (code >= 200 || code == http.StatusSwitchingProtocols) && w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	if !w.head {
		w.count(n)
	}
	return n, err
}

func (w *writer) count(n int) {
	w.bytes.Add(uint64(n))
	w.log.sent.Add(uint64(n))
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is for upgrades from HTTP/1.1, such as WebSocket, where the handler itself
// writes the response's header.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.code = http.StatusSwitchingProtocols
	return &hijacked{conn, w}, buffered, nil
}

type hijacked struct {
	net.Conn
	w *writer
}

func (c *hijacked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.log.received.Add(uint64(n))
	return n, err
}

func (c *hijacked) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.w.count(n)
	return n, err
}

// CloseWrite calls the connection's CloseWrite, which net.TCPConn and tls.Conn have.
func (c *hijacked) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

type body struct {
	io.ReadCloser
	total *atomic.Uint64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.total.Add(uint64(n))
	return n, err
}
