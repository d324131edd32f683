// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestList: nft can list what is there. It gives up on keys whose parts it does not know,
// and with it the node's own firewall would.
func TestList(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test, and its namespace with it
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
	r.Bridges = nil // not every kernel can queue what is bridged
	if err := table.apply(&r); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil || strings.Count(string(out), "@taken") < 4 {
		t.Errorf("%v: %s", err, out)
	}
}
