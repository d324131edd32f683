// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/metrics"
)

// TestRulesCost checks that a relay, which makes its rules every second and after each change, does not ask the kernel for all
// devices and addresses each time: on a router with many of them, that takes a large part of the processor.
func TestRulesCost(t *testing.T) {
	r, err := New(validConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := r.look()
	w.Uplinks = []string{"lo"}
	if allocations := testing.AllocsPerRun(10, func() { r.rules(w, true) }); allocations > 10 {
		t.Errorf("%.0f allocations", allocations)
	}
}

// TestMemory checks that a relay collects garbage before it takes more than half of the machine's memory: on a router with 64 MB, garbage of
// many connections was as much.
func TestMemory(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("cannot make a network namespace: ", err)
	}
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	c := validConfig()
	c.Gateways = InOrder("127.0.0.1:443")
	r, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if limit := debug.SetMemoryLimit(-1); uint64(limit) != metrics.Machine()/2 && os.Getenv("GOMEMLIMIT") == "" {
		t.Errorf("the limit is %d", limit)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
