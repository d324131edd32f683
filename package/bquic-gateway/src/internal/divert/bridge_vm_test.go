// SPDX-License-Identifier: Apache-2.0

//go:build vm

package divert

import "testing"

// TestBridgeTable checks that the kernel accepts the rules, replaces them, and removes
// them in the end.
func TestBridgeTable(t *testing.T) {
	table := tableApart(t)
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
