// SPDX-License-Identifier: Apache-2.0

package system

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name, other := filepath.Join(dir, "state"), filepath.Join(t.TempDir(), "other")
	check := func(when, want string, mode os.FileMode) {
		t.Helper()
		data, err := os.ReadFile(name)
		info, serr := os.Stat(name)
		if err != nil || serr != nil || string(data) != want || info.Mode() != mode {
			t.Errorf("%s: %q, %v, %v, %v", when, data, info, err, serr)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: left behind: %v", when, entries)
		}
	}
	replace := func(data string, mode os.FileMode, gid int) error { return Replace(name, []byte(data), mode, gid) }
	if err := replace("a", 0o600, -1); err != nil {
		t.Fatal(err)
	}
	check("a new file", "a", 0o600)
	// A link instead of what a killed process has left.
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, name+".new"); err != nil {
		t.Fatal(err)
	}
	if err := replace("bb", 0o640, 7); err != nil {
		t.Fatal(err)
	}
	check("after a kill", "bb", 0o640)
	if data, err := os.ReadFile(other); err != nil || string(data) != "other" {
		t.Errorf("the link's target: %q, %v", data, err)
	}
	if info, err := os.Stat(name); err != nil || info.Sys().(*syscall.Stat_t).Gid != 7 {
		t.Errorf("the group: %+v, %v", info, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "sub"), nil, 0o600, -1); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind by an error: %v", entries)
	}
}
