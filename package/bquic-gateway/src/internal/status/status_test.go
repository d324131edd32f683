// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "x.sock")
	if _, err := Read(path); err == nil || err.Error() != "no daemon answers on "+path {
		t.Errorf("before the start: %v", err)
	}
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen(path); err == nil || err.Error() != "status socket: another daemon answers on "+path {
		t.Errorf("second daemon: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, Answers{
			Status:  func() any { return map[string]int{"a": 1} },
			History: func() any { return []int{7} },
		})
	}()
	for _, what := range []string{History, "whatever", strings.Repeat("x", 1<<16)} {
		want := map[bool]string{true: "[7]", false: `{"a":1}`}[what == History]
		if data, err := Ask(path, what); strings.TrimSpace(string(data)) != want && len(what) < maxWord {
			t.Errorf("asked for %s: %s, %v", what, data, err)
		}
	}
	// A client that sends nothing, such as socat, receives the status.
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else if data, err := io.ReadAll(conn); err != nil || strings.TrimSpace(string(data)) != `{"a":1}` {
		t.Errorf("asked for nothing: %s, %v", data, err)
	}
	var wg sync.WaitGroup
	for range 3 * maxReaders {
		wg.Go(func() {
			if data, err := Read(path); err != nil || strings.TrimSpace(string(data)) != `{"a":1}` {
				t.Errorf("got %s, %v", data, err)
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestLate has a client that gets no time to ask until the daemon has answered without a question.
func TestLate(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for what, want := range map[string]string{Status: `{"a":1}`, History: ""} {
		conn, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		daemon, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, err = daemon.Write([]byte(`{"a":1}`))
		if err := errors.Join(err, daemon.Close()); err != nil {
			t.Fatal(err)
		}
		if data, err := ask(conn.(*net.UnixConn), what); string(data) != want || (err == nil) != (want != "") {
			t.Errorf("asked for %q: %s, %v", what, data, err)
		}
	}
}

func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	s, err := Listen(path)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	s.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || err.Error() != "status socket: "+path+" exists and is not a socket" {
		t.Errorf("a file: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Error("the file was changed")
	}
}
