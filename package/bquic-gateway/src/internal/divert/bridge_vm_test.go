// SPDX-License-Identifier: Apache-2.0

//go:build vm

package divert

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBridgeTable: the kernel takes the rules, also one after the other, and forgets them.
func TestBridgeTable(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	table, err := openTable()
	if err != nil {
		t.Fatal(err)
	}
	if err := table.openBridge(); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{Redirect, TProxy} {
		for _, change := range []func(*Rules){
			func(*Rules) {},
			func(r *Rules) { r.Bridges = r.Bridges[:1] },
			func(r *Rules) { r.Bridges = nil },
			func(r *Rules) { r.TCP = false },
		} {
			r := bridgedRules()
			r.Mode = mode
			change(&r)
			if err := table.apply(&r); err != nil {
				t.Errorf("%v: %s", err, r.String())
			}
		}
	}
	if err := table.close(); err != nil {
		t.Error(err)
	}
}
