// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bquic/internal/config"
	"bquic/internal/tunnel"
)

// TestUnsent checks that a TCP client that reads nothing holds little of the kernel's memory.
func TestUnsent(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "big"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(root, "big"), 64<<20); err != nil {
		t.Fatal(err)
	}
	s := start(t, config.Gateway{Sites: []config.Site{{Hosts: []string{"*"}, Root: root}}})
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
	}}
	conn, err := tls.DialWithDialer(&d, "tcp4", s.addr.String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// It is full when it no longer grows.
	held, since := 0, time.Now()
	for begun := since; held == 0 && time.Since(begun) < time.Minute || time.Since(since) < 500*time.Millisecond; {
		if now := unacknowledged(t, s.addr.Port(), conn.LocalAddr().(*net.TCPAddr).Port); now != held {
			held, since = now, time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("the kernel holds %d bytes", held)
	// A write of 64 KiB that began below the limit may exceed it.
	if held == 0 || held > tunnel.MaxUnsent+64<<10 {
		t.Errorf("the kernel holds %d bytes for a client that reads nothing", held)
	}
}

// unacknowledged returns how many bytes the kernel holds to be sent from one local port to another.
func unacknowledged(t *testing.T, from uint16, to int) (bytes int) {
	t.Helper()
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/self/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) > 4 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", from)) && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", to)) {
				fmt.Sscanf(fields[4], "%X:", &bytes)
			}
		}
	}
	return bytes
}

// A clockedWriter notes which deadline there is for what is written or flushed.
type clockedWriter struct {
	http.ResponseWriter
	now      time.Time
	deadline []time.Time
	err      error
}

func (w *clockedWriter) SetWriteDeadline(t time.Time) error { w.now = t; return nil }
func (w *clockedWriter) Write(b []byte) (int, error) {
	w.deadline = append(w.deadline, w.now)
	return len(b), nil
}
func (w *clockedWriter) FlushError() error { w.deadline = append(w.deadline, w.now); return w.err }

// TestPatience checks that a client that reads nothing cannot hold up a response for good, neither while it is written
// nor while it is flushed, and that a response may pause.
func TestPatience(t *testing.T) {
	w := &clockedWriter{}
	var response http.ResponseWriter = newPatientWriter(w, &http.Request{ProtoMajor: 3})
	_, _ = response.Write([]byte("x"))
	if err := http.NewResponseController(response).Flush(); err != nil {
		t.Fatal(err)
	}
	w.err = os.ErrDeadlineExceeded
	_ = http.NewResponseController(response).Flush()
	if _, err := response.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a response that could not be flushed goes on: %v", err)
	}
	if len(w.deadline) != 3 || w.deadline[0].IsZero() || w.deadline[1].IsZero() || !w.now.IsZero() {
		t.Errorf("deadlines %v, then %v", w.deadline, w.now)
	}
}
