// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNodeAddresses checks that addresses that stay come first.
func TestNodeAddresses(t *testing.T) {
	runtime.LockOSThread() // the thread ends with the test, in its own namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for args := range strings.Lines(`link add br-lan type bridge
		link add guest type bridge
		link set br-lan up
		link set guest up
		addr add 10.7.0.1/24 dev br-lan
		addr add 10.7.0.9/24 dev br-lan
		addr add 10.8.0.1 peer 10.8.0.2 dev guest
		-6 addr add fd07::1/64 dev br-lan nodad
		-6 addr add 2001:db8:1::1/64 dev br-lan nodad preferred_lft 0 valid_lft 1000
		-6 addr add 2001:db8:2::1/64 dev br-lan nodad preferred_lft 1000 valid_lft 1000
		-6 addr add fd08::1 peer fd08::2 dev guest nodad`) {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", args, out)
		}
	}
	// The kernel adds an IPv6 address's route later, in another thread.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		routes, err := exec.Command("ip", "-6", "route", "show", "table", "local", "type", "local").CombinedOutput()
		if strings.Count(string(routes), "local fd0")+strings.Count(string(routes), "local 2001:db8:") == 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the addresses have no routes: %s (%v)", routes, err)
		}
	}
	if got, want := fmt.Sprint(NodeAddresses([]string{"br-lan", "gone", "guest"})),
		"[10.7.0.1 fd07::1 10.8.0.1 fd08::1 10.7.0.9 2001:db8:2::1 2001:db8:1::1]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
