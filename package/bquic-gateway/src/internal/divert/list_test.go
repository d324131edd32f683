// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"os/exec"
	"strings"
	"testing"
)

// TestList checks that nft can list the tables. nft fails on keys with unknown data
// types, and the node's own firewall would fail with it.
func TestList(t *testing.T) {
	table := tableApart(t)
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
