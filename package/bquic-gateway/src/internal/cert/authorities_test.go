// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadAuthorities(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadAuthorities(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAuthorities(empty); err == nil || !strings.Contains(err.Error(), "empty.pem: contains no PEM certificate") {
		t.Errorf("a file without certificates: %v", err)
	}
}
