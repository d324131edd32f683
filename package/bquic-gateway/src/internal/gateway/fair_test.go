// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestFairRate checks that greedy sources share equally what other sources leave.
func TestFairRate(t *testing.T) {
	const rate, burst, seconds = 100, 500, 100
	for _, test := range []struct {
		name   string
		demand []float64 // of each source, events per second
		want   []float64 // admitted events per second, in the long run
	}{
		{"alone, little", []float64{10}, []float64{10}},
		{"alone, all", []float64{1000}, []float64{100}},
		{"enough for all", []float64{30, 30, 40}, []float64{30, 30, 40}},
		{"two greedy ones", []float64{10, 200, 2000}, []float64{10, 45, 45}},
		{"what one leaves", []float64{1, 40, 60}, []float64{1, 40, 59}},
		{"shares of shares", []float64{5, 20, 50, 50, 50}, []float64{5, 20, 25, 25, 25}},
		{"all greedy", []float64{500, 500, 500, 500}, []float64{25, 25, 25, 25}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fairRate{rate: rate, burst: burst}
			debts := make([]debt, len(test.demand))
			due := make([]float64, len(debts)) // events
			passed := make([]float64, len(debts))
			now, total := time.Unix(1e9, 0), 0.0
			for step := range seconds * 1000 {
				now = now.Add(time.Millisecond)
				for _, i := range rand.Perm(len(debts)) {
					for due[i] += test.demand[i] / 1000; due[i] >= 1; due[i]-- {
						if !f.allow(now, &debts[i]) {
							continue
						}
						if total++; total > burst+rate*float64(step+1)/1000+1 {
							t.Fatalf("%g have passed after %d ms", total, step+1)
						}
						if step >= seconds*500 { // the burst has long been spent
							passed[i]++
						}
					}
				}
			}
			for i, want := range test.want {
				if got := passed[i] / (seconds / 2); math.Abs(got-want) > 0.05*want+0.1 {
					t.Errorf("source %d wants %g a second and got %g, not %g", i, test.demand[i], got, want)
				}
			}
		})
	}
}

// TestFairBurst checks that a single source has half of the burst at once, each
// of n sources 1/(n+1), and the next source as much.
func TestFairBurst(t *testing.T) {
	for _, n := range []int{1, 2, 4, 49} {
		f := fairRate{rate: 100, burst: 500}
		debts := make([]debt, n+1)
		now := time.Unix(1e9, 0)
		passed := make([]int, n+1)
		for range 500 {
			for i := range n {
				if f.allow(now, &debts[i]) {
					passed[i]++
				}
			}
		}
		for range 500 {
			if f.allow(now, &debts[n]) {
				passed[n]++
			}
		}
		want := 500 / (n + 1)
		for i, got := range passed[:n] {
			if got < want-1 || got > want+1 {
				t.Errorf("of %d, source %d got %d at once, not %d", n, i, got, want)
			}
		}
		if passed[n] < want/2-1 || passed[n] > want {
			t.Errorf("after %d, the next one got %d at once of the %d that were left", n, passed[n], want)
		}
		// After a long pause, a source has no more than a burst, and the state is
		// as at the start.
		now = now.Add(time.Hour)
		for i := range debts {
			if f.pay(now); f.of(&debts[i]) != 0 || f.debt != 0 || len(f.debtor) != 0 {
				t.Fatalf("after an hour, source %d of %d is in debt, or all are: %g", i, n, f.debt)
			}
		}
	}
}

// TestFairRateClock checks that a clock that goes backwards admits no further events.
func TestFairRateClock(t *testing.T) {
	f := fairRate{rate: 100, burst: 500}
	var d debt
	now, passed := time.Unix(1e9, 0), 0
	for i := range 10000 {
		if f.allow(now.Add(-time.Duration(i)*time.Second), &d) {
			passed++
		}
	}
	if passed != 250 {
		t.Errorf("%d have passed", passed)
	}
}
