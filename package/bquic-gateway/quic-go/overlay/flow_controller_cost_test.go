// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"math"
	"testing"

	"github.com/quic-go/quic-go/internal/protocol"

	"github.com/stretchr/testify/require"
)

func TestUpdateThreshold(t *testing.T) {
	check := func(size protocol.ByteCount) {
		require.Equal(t, protocol.ByteCount(float64(size)*(1-protocol.WindowUpdateThreshold)), updateThreshold(size), "%d", size)
	}
	for size := range protocol.ByteCount(5000) {
		check(size)
	}
	for i := range protocol.ByteCount(64) {
		check(1<<20 - 32 + i)
		check(math.MaxInt32 - 32 + i)
	}
}
