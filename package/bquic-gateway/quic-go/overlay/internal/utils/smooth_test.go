// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// RFC 9002, section 5.3, to the microsecond.
func TestSmooth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	dev, smoothed := 10*time.Millisecond, 20*time.Millisecond
	for range 10000 {
		sample := time.Duration(r.Int64N(int64(time.Minute) >> r.IntN(30)))
		wantDev := 0.75*float64(dev) + 0.25*float64((smoothed-sample).Abs())
		want := 0.875*float64(smoothed) + 0.125*float64(sample)
		dev, smoothed = smooth(dev, smoothed, sample)
		require.InDelta(t, wantDev, float64(dev), 1000)
		require.InDelta(t, want, float64(smoothed), 1000)
	}
}
