// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"strings"
	"testing"

	"bquic/internal/proof"
)

func TestReport(t *testing.T) {
	change := func(c, low, high float64) *proof.Change { return &proof.Change{Change: c, Low: low, High: high} }
	r := proof.Report{
		Verdict: proof.Faster, Share: 0.01, Days: 8,
		Overall: proof.Line{Carried: 12480, Direct: 655, Complete: change(-0.18, -0.23, -0.12)},
		Sizes: []proof.Line{
			{To: 100_000, Carried: 11_000, Direct: 580, FirstByte: change(-0.05, -0.1, 0.01), Complete: change(0.02, -0.03, 0.07), Throughput: change(-0.02, -0.05, 0.03)},
			{From: 100_000, To: 1_000_000, Carried: 1240, Direct: 71, Complete: change(-0.21, -0.29, -0.14), Throughput: change(0.27, 0.16, 0.41)},
			{From: 1_000_000, To: 10_000_000, Carried: 300, Direct: 20, Complete: change(0.3, 0.1, 0.5)},
			{From: 10_000_000, Carried: 3},
		},
		Quarters:   []proof.Line{{From: 18, To: 24, Carried: 5000, Direct: 260, Complete: change(-0.2, -0.3, -0.1)}},
		Clients:    []proof.Line{{Prefix: "10.1.2.0/24", Carried: 9000, Direct: 400, Complete: change(-0.2, -0.3, -0.1)}, {Carried: 3480, Direct: 255}},
		Pages:      proof.Line{Carried: 2100, Direct: 110, Complete: change(-0.25, -0.33, -0.16)},
		Kinds:      []proof.Line{{Class: "http2", Carried: 2100, Direct: 110, Complete: change(-0.25, -0.33, -0.16)}, {Class: "other", Carried: 90, Direct: 3}},
		Unanswered: proof.Unanswered{Carried: 12, CarriedOf: 12492, Direct: 7, DirectOf: 662},
		Uncompared: 1234,
	}
	report := func() string { return Report(marshal(t, map[string]any{"role": "relay", "proof": r})) }
	check(t, report(), `
Carried connections are 18 % faster (95 %: 12 to 23), 12,480 against 655, last 7 days.
Page loads are 25 % faster (95 %: 16 to 33), 2,100 against 110.
Connections of less than 0.1 MB are not certainly faster or slower (95 %: 3 % faster to 7 % slower), 11,000 against 580.
Connections of 0.1 to 1 MB are 21 % faster (95 %: 14 to 29), 1,240 against 71.
Connections of 1 to 10 MB are 30 % slower (95 %: 10 to 50), 300 against 20.
Connections of more than 10 MB are too few to compare, 3 against 0.
Without an answer: 0.1 % of the carried connections, 1.1 % of the direct ones.
Not compared, because they began while clients filled the path: 1,234, since the relay's start.

  application    completed               carried  direct
  pages, HTTP/2  25 % faster (16 to 33)  2,100    110
  others         ?                       90       3

  size              completed                 first byte                 throughput            carried  direct
  less than 0.1 MB  3 % faster to 7 % slower  10 % faster to 1 % slower  5 % less to 3 % more  11,000   580
  0.1 to 1 MB       21 % faster (14 to 29)    ?                          27 % more (16 to 41)  1,240    71
  1 to 10 MB        30 % slower (10 to 50)    ?                          ?                     300      20
  more than 10 MB   ?                         ?                          ?                     3        0

  hours (UTC)  completed               first byte  throughput  carried  direct
  18 to 24     20 % faster (10 to 30)  ?           ?           5,000    260

  clients      completed               carried  direct
  10.1.2.0/24  20 % faster (10 to 30)  9,000    400
  others       ?                       3,480    255

The relay helps here: leave it on. `+"`bquic report --json`"+` prints the result without addresses, for others.
`)
	nextOf := func(v proof.Verdict) string {
		r.Verdict = v
		lines := strings.Split(strings.TrimSpace(report()), "\n")
		return lines[len(lines)-1]
	}
	seen := map[string]bool{}
	for _, v := range []proof.Verdict{proof.Off, proof.Unsure, proof.Faster, proof.Slower, proof.Silent, proof.Spared} {
		if text := nextOf(v); seen[text] || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q", v, text)
		} else {
			seen[text] = true
		}
	}
	r = proof.Report{Verdict: proof.Unsure, Share: 0.05}
	if got := report(); got != "No connection has been compared in the last 7 days: `bquic status` says whether the relay takes any.\n" {
		t.Errorf("without data: %q", got)
	}
	r.Uncompared = 12
	if got := report(); !strings.HasSuffix(got, "several times in turn.\n") {
		t.Errorf("all while clients filled the path: %q", got)
	}
	r = proof.Report{Verdict: proof.Unsure, Days: 8, Overall: proof.Line{Carried: 900, Direct: 90, Complete: change(0, -0.1, 0.1)}}
	if got := report(); !strings.Contains(got, "A week has not shown for certain") {
		t.Errorf("after a week: %q", got)
	}
	r.Overall = proof.Line{Carried: 90, Direct: 3}
	if got := report(); !strings.HasSuffix(got, "more of them go direct.\n") {
		t.Errorf("after a week with few connections: %q", got)
	}
	r.Overall.Direct, r.Unanswered = 0, proof.Unanswered{CarriedOf: 90, Direct: 9, DirectOf: 9}
	if got := report(); !strings.HasSuffix(got, "lets out only clients.\n") {
		t.Errorf("where the node has no way out of its own: %q", got)
	}
	for _, days := range []int{2, 8} {
		r.Days, r.Overall.Complete, r.Pages.Complete = days, change(-0.2, -0.3, -0.1), change(0.2, 0.1, 0.3)
		if got := report(); !strings.Contains(got, "Connections say one thing and page loads the other") {
			t.Errorf("connections are faster and page loads slower, after %d days: %q", days, got)
		}
	}
	if got := Report(json.RawMessage(`{"role":"relay"}`)); !strings.Contains(got, "older") {
		t.Errorf("an older relay: %q", got)
	}
}

// TestTrialsWithABoundOfNothing draws a lever that delivers at most as much with it as without.
func TestTrialsWithABoundOfNothing(t *testing.T) {
	s := Scheduler{Device: "phy0-ap0", Gain: &Gain{Permille: 950, Low: 900, High: 1000, Trials: 5}}
	if got := Trials([]Scheduler{s}); !strings.Contains(got, " 5 % less (0 to 10) ") {
		t.Errorf("got\n%s", got)
	}
}
