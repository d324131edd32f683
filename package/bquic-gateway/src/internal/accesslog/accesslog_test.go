// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.WriteString(w, "12345")
}

func request(l *Log, path string, header http.Header) {
	r := httptest.NewRequest("POST", "/", strings.NewReader("abc"))
	r.RequestURI, r.Header, r.Host = path, header, "a.example"
	l.Handler(http.HandlerFunc(answer)).ServeHTTP(httptest.NewRecorder(), r)
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := &Log{Logger: slog.New(slog.DiscardHandler)}
	if err := l.Open(path); err != nil {
		t.Fatal(err)
	}
	request(l, "/x", http.Header{"User-Agent": {"curl"}, "Referer": {"https://b.example/"}})
	request(l, "/\"\n127.0.0.1 - - \x1b[2J\\é", nil)
	request(l, "/"+strings.Repeat("\n", 1<<20), nil)
	// Rotate as logrotate does.
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Open(path); err != nil {
		t.Fatal(err)
	}
	request(l, "/later", nil)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for bad, named := range map[string]string{path + "/x/log": path, fifo: fifo, "/dev/full": "/dev/full"} {
		for what, err := range map[string]error{"open": l.Open(bad), "check": Check(bad)} {
			if err == nil || !strings.Contains(err.Error(), named) {
				t.Errorf("%s %s: %v", what, bad, err)
			}
		}
	}
	request(l, "/last", nil)
	if err := l.Open(""); err != nil {
		t.Fatal(err)
	}
	request(l, "/unlogged", nil)

	for name, want := range map[string][]string{
		path + ".1": {`"POST /x HTTP/1.1" 418 5 "https://b.example/" "curl" "a.example"`, `"POST /\x22\x0a127.0.0.1 - - \x1b[2J\x5c\xc3\xa9 HTTP/1.1" 418 5 "-" "-" "a.example"`, `\x0a`},
		path:        {`"POST /later HTTP/1.1"`, `"POST /last HTTP/1.1"`},
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines:\n%.2000s", len(lines), data)
		}
		form := regexp.MustCompile(`^192\.0\.2\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "[^"]*" 418 5 "[^"]*" "[^"]*" "a\.example" \d+\.\dms$`)
		for i, line := range lines {
			if !form.MatchString(line) || !strings.Contains(line, want[i]) || len(line) > 2*maxField {
				t.Errorf("got %.3000s, want %s", line, want[i])
			}
		}
	}
	if sent, received := l.Bytes(); sent != 30 || received != 18 || l.Requests(0, 4) != 6 {
		t.Errorf("sent %d, received %d, %d requests", sent, received, l.Requests(0, 4))
	}
}

// TestNothingWritten checks that a handler that writes nothing has answered with 200, as net/http does for it.
func TestNothingWritten(t *testing.T) {
	l := &Log{Logger: slog.New(slog.DiscardHandler)}
	l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if l.Requests(0, 2) != 1 {
		t.Errorf("%d requests are 2xx, and %d are 4xx", l.Requests(0, 2), l.Requests(0, 4))
	}
}

// TestDirectory checks that Open makes the directory: /var/log is empty after each
// boot of a router.
func TestDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bquic", "logs", "access.log")
	if err := Check(path); err != nil {
		t.Errorf("check: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("check has made the directory")
	}
	l := &Log{Logger: slog.New(slog.DiscardHandler)}
	if err := l.Open(path); err != nil {
		t.Fatal(err)
	}
	if err := l.Open(""); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk checks that on a full file system requests are answered, that one warning
// is logged, and that logging resumes when there is room. No partial line may remain.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("cannot mount, which needs root: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	filler, path := filepath.Join(dir, "filler"), filepath.Join(dir, "log")
	var log bytes.Buffer
	l := &Log{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if err := l.Open(path); err != nil {
		t.Fatal(err)
	}
	request(l, "/before", nil)
	l.flush(nil) // the file takes a page, and the next lines fill it
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	for range 100 {
		request(l, "/while", nil)
	}
	l.flush(nil)
	if n := strings.Count(log.String(), "no space left"); n != 1 {
		t.Errorf("warned %d times: %s", n, log.String())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	request(l, "/after", nil)
	l.flush(nil)
	if !strings.Contains(log.String(), "written again") {
		t.Errorf("not written again: %s", log.String())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := `192\.0\.2\.1 [^"]* "POST /%s HTTP/1\.1" 418 5 "-" "-" "a\.example" \d+\.\dms\n`
	whole := regexp.MustCompile("^" + fmt.Sprintf(line, "before") + "(" + fmt.Sprintf(line, "while") + ")+" + fmt.Sprintf(line, "after") + "$")
	if n := bytes.Count(data, []byte("\n")); !whole.Match(data) || n > 60 {
		t.Errorf("%d lines:\n%s", n, data)
	}
	if l.Requests(0, 4) != 102 {
		t.Error("a request was not answered")
	}
	_ = l.Open("")
}

// TestSlowDisk checks that requests do not wait for the file. Lines that it cannot
// take are counted and logged as missing.
func TestSlowDisk(t *testing.T) {
	reader, file, err := os.Pipe() // accepts 64 KiB, then nothing
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	log := make(lines, 10)
	l := &Log{Logger: slog.New(slog.NewTextHandler(log, nil))}
	l.file = file
	const requests = 1000
	for i := range requests {
		request(l, fmt.Sprintf("/%04d%s", i, strings.Repeat("x", 1000)), nil)
	}
	if l.Requests(0, 4) != requests {
		t.Errorf("%d requests were answered", l.Requests(0, 4))
	}
	dropped := l.Dropped()
	if dropped < requests/2 || dropped > requests*4/5 { // most if the one that writes has had no time yet
		t.Errorf("%d lines were dropped of %d, of 1 KB each", dropped, requests)
	}
	l.mu.Lock()
	if l.queued > maxQueued {
		t.Errorf("%d bytes wait", l.queued)
	}
	l.mu.Unlock()
	// When the file accepts lines again, all lines that were not dropped are
	// written, and new ones.
	written := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(reader)
		written <- string(data)
	}()
	l.flush(nil)
	request(l, "/later", nil)
	if err := l.Open(""); err != nil {
		t.Fatal(err)
	}
	got := <-written
	if n := strings.Count(got, "\n"); uint64(n) != requests-dropped+1 || !strings.HasSuffix(got, "ms\n") || !strings.Contains(got, `"POST /later `) {
		t.Errorf("%d lines were written, and %d dropped", n, dropped)
	}
	if said := <-log + <-log; !strings.Contains(said, "lines are dropped") || !strings.Contains(said, fmt.Sprintf("lines are missing\" lines=%d\n", dropped)) {
		t.Errorf("logged: %s", said)
	}
}

// TestSlowBursts checks that bursts on a slow disk do not fill the daemon's log, and that no dropped line stays unmentioned.
func TestSlowBursts(t *testing.T) {
	log := make(lines, 20)
	l := &Log{Logger: slog.New(slog.NewTextHandler(log, nil))}
	var mentioned uint64
	burst := func() {
		reader, file, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		l.file = file
		for range 500 {
			request(l, strings.Repeat("x", 1000), nil)
		}
		go func() { _, _ = io.Copy(io.Discard, reader) }()
		if err := l.Open(""); err != nil {
			t.Fatal(err)
		}
	}
	mentions := func() {
		t.Helper()
		n := l.Dropped() - mentioned
		mentioned += n
		if said := <-log + <-log; !strings.Contains(said, "lines are dropped") || !strings.Contains(said, fmt.Sprintf("lines are missing\" lines=%d\n", n)) {
			t.Errorf("%d lines were dropped; logged: %s", n, said)
		}
	}
	burst()
	mentions()
	burst()
	burst()
	l.mu.Lock()
	l.told = l.told.Add(-lateInterval)
	l.mu.Unlock()
	burst()
	mentions()
}

// A lines is a log that keeps its lines for a test.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
