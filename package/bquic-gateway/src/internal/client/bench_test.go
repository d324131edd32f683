// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"slices"
	"testing"

	"bquic/internal/profile"
)

func TestBench(t *testing.T) {
	figures := map[string][]float64{"a": {3, 1, 2}, "b": {10, 40, 20}}
	var order []string
	rows, err := Bench([]profile.Profile{{Name: "a"}, {Name: "b"}}, 3, func(p profile.Profile) (*Result, error) {
		order = append(order, p.Name)
		f := figures[p.Name]
		figures[p.Name] = f[1:]
		return &Result{Profile: p.Name, Mbps: f[0], HandshakeMS: 5, DataPerAck: f[0] / 2}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []string{"a", "b", "a", "b", "a", "b"}) {
		t.Errorf("not in turn: %q", order)
	}
	if a, b := rows[0], rows[1]; a.Mbps != (Spread{2, 1, 3}) || b.Mbps != (Spread{20, 10, 40}) || a.HandshakeMS != (Spread{5, 5, 5}) ||
		b.DataPerAck != (Spread{10, 5, 20}) || len(a.Results) != 3 || b.Profile != "b" {
		t.Errorf("got %+v", rows)
	}
	if got := spread([]*Result{{Mbps: 1}, {Mbps: 4}}, func(r *Result) float64 { return r.Mbps }); got != (Spread{2.5, 1, 4}) {
		t.Errorf("of an even number: %+v", got)
	}
	_, err = Bench([]profile.Profile{{Name: "a"}}, 2, func(profile.Profile) (*Result, error) { return nil, errors.New("broken") })
	if err == nil || err.Error() != "profile a, repetition 1: broken" {
		t.Errorf("got %v", err)
	}
}
