// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"testing"
	"time"
	"unsafe"
)

// TestReloadClockSet checks that the status is right after the clock of a router without a battery has been set.
func TestReloadClockSet(t *testing.T) {
	r := NewReload(errors.New("why"))
	// Takes 60 days from the clock's part of a time (type Time of package time), not from the monotonic part.
	*(*uint64)(unsafe.Pointer(&r.At)) -= 60 * 86400 << 30
	now := r.now()
	if age := time.Now().Round(0).Sub(now.At.Round(0)); age < 0 || age > time.Hour || now.Error != "why" {
		t.Errorf("for %v: %s", age, now.Error)
	}
	if none := (*Reload)(nil); none.now() != nil || !none.OK() {
		t.Error("a reload that never was")
	}
	if r.OK() || !NewReload(nil).OK() {
		t.Error("refused and accepted are confused")
	}
}
