// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"

	"bquic/internal/divert"
)

// TestWaiting has flows whose tunnels do not open. A flow that begins with a burst has room for it, and all together have no more room than there is for all.
func TestWaiting(t *testing.T) {
	f := &flows{by: make(map[pair]*flow)}
	target := netip.MustParseAddrPort("192.0.2.1:5000")
	sum := 0
	for i := range uint16(20) {
		key := pair{netip.AddrPortFrom(netip.MustParseAddr("10.1.2.3"), 40000+i), target}
		fl := &flow{pair: key}
		f.by[key] = fl
		held := 0
		for range maxWaiting {
			if f.decide(t.Context(), &divert.Packet{Client: key.client, Target: target, UDP: true}, nil) == divert.Hold {
				held++
			}
		}
		if held != len(fl.waiting) || held == 0 || i == 0 && held != 256 {
			t.Errorf("of the flow %d, %d are held, and %d wait", i, held, len(fl.waiting))
		}
		sum += held
	}
	if sum > maxWaiting || uint64(20*maxWaiting-sum) != f.lost.Load() {
		t.Errorf("%d wait, and %d are lost", sum, f.lost.Load())
	}
}
