// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
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

// TestTakingWithoutRules checks that the status does not go on saying that connections are taken after the gateway has gone, while the
// kernel's rules cannot be changed.
func TestTakingWithoutRules(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	r, err := New(validConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d, err := divert.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r.taking = true
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil && r.Status().Taking {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if err := r.control(ctx, d, nil); err != nil {
		t.Fatal(err)
	}
	if r.Status().Taking {
		t.Error("the relay takes connections, but has no gateway")
	}
}
