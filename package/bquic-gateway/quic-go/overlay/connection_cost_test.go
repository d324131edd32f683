// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"

	"github.com/stretchr/testify/require"
)

// The timer fires by the earliest deadline, and is not set again for each later one.
func TestTimerIsSetForEarlierOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := monotime.Now()
		c := &Conn{timer: time.NewTimer(time.Hour)}
		fires := func() time.Duration {
			<-c.timer.C
			c.timerSet = 0
			return monotime.Since(start)
		}
		for i := range 1000 {
			c.setTimer(start.Add(time.Second + time.Duration(i)*time.Millisecond))
			require.Equal(t, start.Add(time.Second), c.timerSet)
		}
		require.Equal(t, time.Second, fires())

		c.setTimer(start.Add(5 * time.Second))
		c.setTimer(start.Add(3 * time.Second))
		c.setTimer(start.Add(4 * time.Second))
		require.Equal(t, 3*time.Second, fires())

		c.setTimer(start.Add(2 * time.Second)) // already past
		require.Equal(t, 3*time.Second, fires())
	})
}
