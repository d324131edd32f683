// SPDX-License-Identifier: Apache-2.0

package congestion

import (
	"testing"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/utils"

	"github.com/stretchr/testify/require"
)

func TestWithBurstChoosesTheSender(t *testing.T) {
	for _, tc := range []struct {
		congestion burst.Congestion
		reno, rate bool
	}{
		{burst.Reno, true, false},
		{burst.Rate, true, true},
		{burst.Cubic, false, false},
	} {
		rtt := utils.NewRTTStats()
		stock := NewCubicSender(DefaultClock{}, rtt, &utils.ConnectionStats{}, initialMaxDatagramSize, true, nil)
		s := WithBurst(stock, burst.NewConn(burst.Config{Congestion: tc.congestion}, rtt))
		_, rate := s.(*rateSender)
		require.Equal(t, tc.rate, rate)
		require.Equal(t, tc.reno, stock.reno)
	}
}
