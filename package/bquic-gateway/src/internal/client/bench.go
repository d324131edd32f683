// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"fmt"
	"slices"

	"bquic/internal/profile"
)

// A Spread summarises repetitions of a measurement.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// A Row is the result of one profile.
type Row struct {
	Profile     string    `json:"profile"`
	Mbps        Spread    `json:"mbps"`
	HandshakeMS Spread    `json:"handshake_ms"`
	DataPerAck  Spread    `json:"data_per_ack"`
	Results     []*Result `json:"results"`
}

// Bench calls fetch n times for each profile. Profiles take turns, so that changes in
// the meantime affect all of them alike.
func Bench(profiles []profile.Profile, n int, fetch func(profile.Profile) (*Result, error)) ([]Row, error) {
	rows := make([]Row, len(profiles))
	for i := range n {
		for j, p := range profiles {
			res, err := fetch(p)
			if err != nil {
				return nil, fmt.Errorf("profile %s, repetition %d: %w", p.Name, i+1, err)
			}
			rows[j].Profile = p.Name
			rows[j].Results = append(rows[j].Results, res)
		}
	}
	for i := range rows {
		r := &rows[i]
		r.Mbps = spread(r.Results, func(r *Result) float64 { return r.Mbps })
		r.HandshakeMS = spread(r.Results, func(r *Result) float64 { return r.HandshakeMS })
		r.DataPerAck = spread(r.Results, func(r *Result) float64 { return r.DataPerAck })
	}
	return rows, nil
}

// spread sorts pointers, not figures: the code that sorts these would take 7 KB of a router's flash.
func spread(results []*Result, figure func(*Result) float64) Spread {
	results = slices.Clone(results)
	slices.SortFunc(results, func(a, b *Result) int { return cmp.Compare(figure(a), figure(b)) })
	n := len(results)
	return Spread{Median: (figure(results[(n-1)/2]) + figure(results[n/2])) / 2, Least: figure(results[0]), Most: figure(results[n-1])}
}
