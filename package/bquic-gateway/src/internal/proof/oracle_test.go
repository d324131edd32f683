// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
)

type groups struct{ Carried, Direct []float64 }

func (g groups) moments() (n [2]uint32, m [2]moments) {
	for arm, values := range [][]float64{g.Carried, g.Direct} {
		for _, x := range values {
			n[arm]++
			m[arm].add(n[arm], x)
		}
	}
	return n, m
}

// TestOracle compares with the results of testdata/oracle.py.
func TestOracle(t *testing.T) {
	data, err := os.ReadFile("testdata/oracle.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Quantiles map[string]float64
		Welch     []struct {
			groups
			Mean, Freedom, Low, High float64
		}
		Strata struct {
			Groups []groups
			Mean   float64
		}
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want, tolerance float64) {
		t.Helper()
		if !(math.Abs(got-want) <= tolerance) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if len(want.Quantiles) < 5 || len(want.Welch) < 3 {
		t.Fatal("the oracle says next to nothing")
	}
	for text, q := range want.Quantiles {
		f, _ := strconv.ParseFloat(text, 64)
		near("quantile of "+text, quantile(f), q, 1e-3*q)
	}
	for _, w := range want.Welch {
		var s strata
		s.add(w.moments())
		e := join([]strata{s})
		i := e.interval()
		near("mean", e.mean, w.Mean, 1e-5)
		near("freedom", e.freedom, w.Freedom, 1e-4*w.Freedom)
		near("low", i.low, w.Low, 1e-3*(w.High-w.Low))
		near("high", i.high, w.High, 1e-3*(w.High-w.Low))
	}
	var s strata
	for _, g := range want.Strata.Groups {
		s.add(g.moments())
	}
	near("mean of strata", join([]strata{s}).mean, want.Strata.Mean, 1e-5)
}
