// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bquic/internal/config"
)

// smallDisk mounts a file system of 256 KiB. full fills it, and again frees the space.
func smallDisk(t *testing.T) (dir string, full, again func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("small", dir, "tmpfs", 0, "size=256k"); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("mounting a file system needs root")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	full = func() {
		if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	again = func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	return dir, full, again
}

// TestFullDiskAtFirstStart checks that a first start that cannot store its key
// returns an error and leaves no partial file.
func TestFullDiskAtFirstStart(t *testing.T) {
	dir, full, again := smallDisk(t)
	cfg := complete(t, config.Gateway{})
	cfg.StateDir = filepath.Join(dir, "state")
	run := func() error {
		_, err := New(cfg, "test", slog.New(slog.DiscardHandler))
		return err
	}
	full()
	if err := run(); err == nil || !strings.Contains(err.Error(), "gateway.state_dir") || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("on a full disk: %v", err)
	}
	if left, err := filepath.Glob(cfg.StateDir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	again()
	if err := run(); err != nil {
		t.Error("with room again:", err)
	}
}

// TestReadOnlyDriveAtStart checks that a drive that has become read-only, as after an error, costs lines. A path on which there has
// never been a log is a mistake: systemd's ProtectSystem makes it read-only.
func TestReadOnlyDriveAtStart(t *testing.T) {
	dir, _, _ := smallDisk(t)
	cfg := config.Gateway{AccessLog: filepath.Join(dir, "access.log")}
	s := start(t, cfg)
	cfg = s.now.Load().cfg
	if err := s.access.Open(""); err != nil { // or else the kernel refuses to make it read-only
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path string
		good bool
	}{{cfg.AccessLog, true}, {cfg.AccessLog + ".new", false}, {filepath.Join(dir, "new", "access.log"), false}} {
		cfg.AccessLog = test.path
		var log strings.Builder
		_, err := New(cfg, "test", slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != test.good || strings.Contains(log.String(), "cannot write the access log") != test.good {
			t.Errorf("%s: %v\n%s", test.path, err, log.String())
		}
		if err := Check(cfg); test.good && err != nil {
			t.Errorf("%s: %v", test.path, err)
		}
	}
}

// TestFullDiskWhileServing checks that a full disk loses lines of the access log
// and nothing else, and leaves no partial line.
func TestFullDiskWhileServing(t *testing.T) {
	dir, full, again := smallDisk(t)
	path := filepath.Join(dir, "access.log")
	body := strings.Repeat("x", 100_000)
	s := start(t, config.Gateway{AccessLog: path, Sites: []config.Site{{Hosts: []string{"*"}, Root: directory(t, map[string]string{"index.html": body})}}})
	c := clients(t, s)["HTTP/3.0"]
	ask := func(n int) {
		t.Helper()
		for range n {
			if got := get(t, c, s.url("/")); got != body {
				t.Fatalf("%d bytes, not %d", len(got), len(body))
			}
		}
	}
	lines := func() []string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(string(data), "\n")
	}
	ask(1)
	full()
	ask(40) // more than the rest of a page can hold
	// Reopening the file first closes it, so that all lines have been tried.
	waitFor(t, func() bool { return s.access.Requests(2, 2) == 41 })
	if err := s.access.Open(path); err != nil {
		t.Fatal(err)
	}
	before := len(lines())
	if before > 40 {
		t.Errorf("%d lines on a full disk", before)
	}
	again()
	ask(2)
	waitFor(t, func() bool { return len(lines()) >= before+2 })
	all := lines()
	// The last response before the space was freed may have been logged afterwards.
	if len(all) != before+2 && len(all) != before+3 {
		t.Errorf("%d lines, %d before there was room again", len(all)-1, before-1)
	}
	for _, line := range all[:len(all)-1] {
		if !strings.Contains(line, `"GET / HTTP/3.0" 200 100000 `) || !strings.HasSuffix(line, "ms\n") {
			t.Errorf("torn: %q", line)
		}
	}
}
