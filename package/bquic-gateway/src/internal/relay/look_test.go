// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"log/slog"
	"testing"
)

// TestRulesCost checks that an idle relay, which makes its rules four times a second, does not ask the kernel for all
// devices and addresses each time: on a router with many of them, that takes a large part of the processor.
func TestRulesCost(t *testing.T) {
	r, err := New(validConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := r.look()
	w.uplinks = []string{"lo"}
	if allocations := testing.AllocsPerRun(10, func() { r.rules(w, true) }); allocations > 10 {
		t.Errorf("%.0f allocations", allocations)
	}
}
