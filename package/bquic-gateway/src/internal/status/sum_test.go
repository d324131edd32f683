// SPDX-License-Identifier: Apache-2.0

package status

import (
	"math"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

func TestSum(t *testing.T) {
	var a Sum
	for _, c := range []struct {
		sent uint64
		rtt  time.Duration
	}{{99, 10 * time.Millisecond}, {299, 30 * time.Millisecond}, {0, 0}} {
		a.Add(quic.BurstStats{PacketsSent: c.sent, PacketsReceived: 1, PacketsAcked: 30, PacketsLost: 2, AcksSent: 4, AcksReceived: 3, SmoothedRTT: c.rtt, MinRTT: time.Millisecond})
	}
	rtt, least := a.SmoothedRTT, a.MinRTT
	a.SmoothedRTT, a.MinRTT = 0, 0
	if want := (Sum{Connections: 3, PacketsSent: 398, PacketsReceived: 3, PacketsAcked: 90, PacketsLost: 6, AcksSent: 12, AcksReceived: 9}); a != want {
		t.Errorf("got %+v, want %+v", a, want)
	}
	// 10 ms of 100, 30 ms of 300, and 0 of 1
	if math.Abs(rtt-10000./401) > 1e-9 || math.Abs(least-1) > 1e-9 {
		t.Errorf("RTTs %v and %v", rtt, least)
	}
}
