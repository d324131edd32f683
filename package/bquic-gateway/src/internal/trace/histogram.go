// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"math"
	"math/bits"
	"slices"
)

// quantiles counts values in buckets narrower than 2 % of the value (exact below 128). Its
// size depends on the range of the values, not on their number.
type quantiles struct {
	counts   []uint64
	n        uint64
	sum      float64
	min, max uint64
}

func (q *quantiles) add(v uint64) {
	if q.n == 0 || v < q.min {
		q.min = v
	}
	q.max = max(q.max, v)
	q.n++
	q.sum += float64(v)
	i := int(v)
	if v >= 64 {
		shift := bits.Len64(v) - 7
		i = 64*shift + int(v>>shift)
	}
	if i >= len(q.counts) {
		q.counts = append(q.counts, make([]uint64, i+1-len(q.counts))...)
	}
	q.counts[i]++
}

// quantile returns the smallest value that is not exceeded by the given share of all values.
func (q *quantiles) quantile(share float64) uint64 {
	rank := max(uint64(math.Ceil(share*float64(q.n))), 1)
	for i, c := range q.counts {
		if rank > c {
			rank -= c
			continue
		}
		if i < 128 {
			return uint64(i)
		}
		shift := i/64 - 1
		low := uint64(i-64*shift) << shift
		return min(max(low+1<<shift/2, q.min), q.max)
	}
	return 0
}

func (q *quantiles) mean() float64 {
	if q.n == 0 {
		return 0
	}
	return q.sum / float64(q.n)
}

// histogram counts values below each bound, and values above all of them.
type histogram struct {
	bounds []float64
	counts []uint64 // one more than bounds
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds, make([]uint64, len(bounds)+1)}
}

func (h *histogram) add(v float64) {
	i, found := slices.BinarySearch(h.bounds, v)
	if found {
		i++
	}
	h.counts[i]++
}

// dispersion computes the index of dispersion of counts: the variance of the
// number of events in windows of equal length over its mean. It is 0 for a
// regular stream, 1 for a Poisson process, n for groups of n at random times.
type dispersion struct {
	window float64 // ms

	started      bool
	start        float64
	index, count float64 // of the current window
	sum, squares float64 // over previous windows
}

func (d *dispersion) add(t float64) {
	if !d.started {
		d.started, d.start = true, t
	}
	if i := math.Floor((t - d.start) / d.window); i > d.index {
		d.sum += d.count
		d.squares += d.count * d.count
		d.index, d.count = i, 0
	}
	d.count++
}

// minWindows is how many windows a meaningful variance needs.
const minWindows = 10

// value returns false if there were too few windows. The last window, which may
// be incomplete, does not count.
func (d *dispersion) value() (float64, bool) {
	if d.index < minWindows || d.sum == 0 {
		return 0, false
	}
	mean := d.sum / d.index
	return (d.squares/d.index - mean*mean) / mean, true
}
