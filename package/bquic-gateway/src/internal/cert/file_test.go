// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOddFiles names what is no PEM file: none is read for ever, or into memory.
func TestOddFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<30); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/zero": "not a regular file",
		pipe:        "not a regular file",
		dir:         "not a regular file",
		large:       "larger than",
	} {
		if _, err := ReadAuthorities(path); err == nil || !strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("authorities in %s: %v", path, err)
		}
		if _, err := load(path, path); err == nil || !strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("a certificate in %s: %v", path, err)
		}
	}
}
