// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"os/exec"
	"strconv"
	"testing"
)

// TestBusyBoxTables checks that busybox's `ip`, which routers have, accepts our table
// numbers: it knows tables up to 1023 only.
func TestBusyBoxTables(t *testing.T) {
	takes := func(table int) (string, bool) {
		out, err := exec.Command("unshare", "-n", "busybox", "ip", "-4", "rule", "add", "pref", "91", "fwmark", "1", "table", strconv.Itoa(table)).CombinedOutput()
		return string(out), err == nil
	}
	for _, table := range []int{routeTable, clientTable} {
		if out, ok := takes(table); !ok {
			t.Errorf("table %d: %s", table, out)
		}
	}
	if _, ok := takes(25201); ok {
		t.Error("this busybox has no such limit: the test shows nothing")
	}
}
