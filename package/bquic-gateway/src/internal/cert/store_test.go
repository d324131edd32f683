// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bquic/internal/system"
)

func pair(t *testing.T, dir string, hosts ...string) Pair {
	t.Helper()
	if _, _, err := LoadOrCreate(dir, hosts); err != nil {
		t.Fatal(err)
	}
	p := Kept(dir)
	p.Hosts = hosts
	return p
}

func TestStoreNames(t *testing.T) {
	dir := t.TempDir()
	s, err := NewStore(pair(t, filepath.Join(dir, "0")), pair(t, filepath.Join(dir, "1"), "a.example", "b.example"))
	if err != nil {
		t.Fatal(err)
	}
	for name, own := range map[string]bool{
		"": false, "c.example": false, "xa.example": false, "a.example": true, "B.Example": true, "b.example.": true,
	} {
		c, err := s.Get(&tls.ClientHelloInfo{ServerName: name})
		if err != nil || (c == s.Default()) == own {
			t.Errorf("%q: own certificate %t, want %t, %v", name, c != s.Default(), own, err)
		}
	}
}

func TestStoreFollowsFiles(t *testing.T) {
	dir := t.TempDir()
	used, next := pair(t, filepath.Join(dir, "used")), pair(t, filepath.Join(dir, "next"))
	s, err := NewStore(used)
	if err != nil {
		t.Fatal(err)
	}
	first := s.Default()
	var log bytes.Buffer
	refresh := func(want *tls.Certificate, words string) {
		t.Helper()
		log.Reset()
		s.Refresh(slog.New(slog.NewTextHandler(&log, nil)))
		if got := s.Default(); PinOf(got.Leaf) != PinOf(want.Leaf) {
			t.Errorf("another certificate than expected is in use")
		}
		if !strings.Contains(log.String(), words) || words == "" && log.Len() > 0 {
			t.Errorf("logged %q, want %q", log.String(), words)
		}
	}
	refresh(first, "")

	// An ACME client writes one file after the other.
	renewed, err := load(next.Cert, next.Key)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(from, to string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err == nil {
			err = system.Replace(to, data, 0o600, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(next.Cert, used.Cert)
	refresh(first, "private key does not match public key")
	refresh(first, "") // logged once
	replace(next.Key, used.Key)
	refresh(&renewed, "certificate renewed")

	if err := os.Truncate(used.Cert, 10); err != nil {
		t.Fatal(err)
	}
	refresh(&renewed, "old one stays in use")
	if err := os.Remove(used.Cert); err != nil {
		t.Fatal(err)
	}
	refresh(&renewed, "no such file")
	replace(next.Cert, used.Cert)
	refresh(&renewed, "certificate renewed")
}

// TestStoreTriesAgain checks that a renewed pair that could not be read is used once it can be: what is wrong with the key's mode, or a lack of
// file descriptors, leaves no trace in what Refresh sees of the files.
func TestStoreTriesAgain(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	used, next := pair(t, filepath.Join(dir, "used")), pair(t, filepath.Join(dir, "next"))
	s, err := NewStore(used)
	if err != nil {
		t.Fatal(err)
	}
	first := PinOf(s.Default().Leaf)
	for from, to := range map[string]string{next.Cert: used.Cert, next.Key: used.Key} {
		if err := os.Chmod(from, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	asNobody(func() {
		s.Refresh(logger)
		s.Refresh(logger)
	})
	if lines := strings.Count(log.String(), "permission denied"); lines != 1 || PinOf(s.Default().Leaf) != first {
		t.Fatalf("without permission: %d lines\n%s", lines, log.String())
	}
	for _, name := range []string{used.Cert, used.Key} {
		if err := os.Chmod(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Refresh(logger)
	if PinOf(s.Default().Leaf) == first {
		t.Errorf("the renewed certificate is not in use:\n%s", log.String())
	}
	log.Reset()
	s.Refresh(logger)
	if log.Len() > 0 {
		t.Errorf("logged afterwards: %s", log.String())
	}
}

// asNobody calls do without root's permissions on files.
func asNobody(do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, _ := unix.SetfsuidRetUid(65534)
	defer func() { _ = unix.Setfsuid(before) }()
	do()
}
