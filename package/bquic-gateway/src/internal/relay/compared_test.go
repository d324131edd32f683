// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestKeptLater checks that what could not be written because the flash was full is written when there is room.
func TestKeptLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	c := newComparison(&settings{Config: Config{ControlShare: MaxControlShare, Fixed: Fixed{StateDir: dir}}}, slog.New(slog.DiscardHandler))
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

// TestNothingUncompared: where nothing is compared, a full path is no reason to count.
func TestNothingUncompared(t *testing.T) {
	client, server := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.1")
	for share, want := range map[int]uint32{0: 0, MaxControlShare: 1} {
		c := newComparison(&settings{Config: Config{ControlShare: share}}, slog.New(slog.DiscardHandler))
		for range 2 { // the second joins the first
			if s := c.join(time.Now(), client, server, true); s.Measured() {
				t.Errorf("with a share of %d: compared", share)
			}
		}
		if n := c.report().Uncompared; n != want {
			t.Errorf("with a share of %d: %d not compared", share, n)
		}
	}
}
