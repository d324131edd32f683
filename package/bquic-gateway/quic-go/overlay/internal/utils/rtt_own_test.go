// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The remembered values equal the statistics, whatever changed them.
func TestOwnRTTStats(t *testing.T) {
	r := NewRTTStats()
	check := func(pto, ackDelay time.Duration) {
		t.Helper()
		require.Equal(t, r.SmoothedRTT(), r.OwnSmoothedRTT())
		require.Equal(t, pto, r.PTO(false))
		require.Equal(t, pto+ackDelay, r.PTO(true))
	}
	check(2*DefaultInitialRTT, 0)
	r.SetInitialRTT(30 * time.Millisecond)
	check(2*DefaultInitialRTT, 0)
	r.UpdateRTT(40*time.Millisecond, 0)
	check(120*time.Millisecond, 0)
	r.SetMaxAckDelay(25 * time.Millisecond)
	check(120*time.Millisecond, 25*time.Millisecond)
	r.UpdateRTT(80*time.Millisecond, 0)
	check(r.SmoothedRTT()+4*r.MeanDeviation(), 25*time.Millisecond)
	require.Equal(t, 45*time.Millisecond, r.SmoothedRTT())
	r.ResetForPathMigration()
	check(2*DefaultInitialRTT, 0)
}
