// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestList checks that nft can list the tables. nft fails on keys with unknown data
// types, and the node's own firewall would fail with it.
func TestList(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	table, err := openTable()
	if err != nil {
		t.Fatal(err)
	}
	defer table.close()
	if err := table.openBridge(); err != nil {
		t.Fatal(err)
	}
	r := bridgedRules()
	r.Bridges = nil // not every kernel can queue bridged packets
	if err := table.apply(&r); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil || strings.Count(string(out), "@taken") < 4 {
		t.Errorf("%v: %s", err, out)
	}
}
