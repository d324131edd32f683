// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestKeptLater checks that what could not be written because the flash was full is written when there is room.
func TestKeptLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	c := newComparison(&settings{Config: Config{ControlShare: MaxControlShare, StateDir: dir}}, slog.New(slog.DiscardHandler))
	c.changed = true
	c.keep()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.keep()
	if _, err := os.Stat(filepath.Join(dir, StateFile)); err != nil {
		t.Error(err)
	}
}
