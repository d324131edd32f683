// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"bquic/internal/proof"
)

// Report describes, in words, the comparison of carried and direct connections in a relay's status.
func Report(data json.RawMessage) string {
	var st struct {
		Proof proof.Report `json:"proof"`
	}
	_ = json.Unmarshal(data, &st)
	p := &st.Proof
	if p.Verdict == "" {
		return "This relay does not compare: it is older than this command.\n"
	}
	var b bytes.Buffer
	if says := overall(p); says != "" {
		fmt.Fprintf(&b, "Carried connections are %s.\n", says)
	}
	if l := p.Pages; l.Carried+l.Direct > 0 {
		fmt.Fprintf(&b, "Page loads are %s, %s against %s.\n", faster(l.Complete), thousands(l.Carried), thousands(l.Direct))
	}
	for _, l := range p.Sizes {
		fmt.Fprintf(&b, "Connections of %s are %s, %s against %s.\n", sizes(l), faster(l.Complete), thousands(l.Carried), thousands(l.Direct))
	}
	if u := p.Unanswered; u.CarriedOf+u.DirectOf > 0 {
		fmt.Fprintf(&b, "Without an answer: %s of the carried connections, %s of the direct ones.\n", share(u.Carried, u.CarriedOf), share(u.Direct, u.DirectOf))
	}
	if p.Uncompared > 0 {
		fmt.Fprintf(&b, "Not compared, because they began while clients filled the path: %s, since the relay's start.\n", thousands(p.Uncompared))
	}
	short("application", p.Kinds, kind).draw(&b)
	comparison("size", p.Sizes, sizes).draw(&b)
	comparison("hours (UTC)", p.Quarters, func(l proof.Line) string { return fmt.Sprintf("%02d to %02d", l.From, l.To) }).draw(&b)
	short("clients", p.Clients, func(l proof.Line) string { return cmp.Or(l.Prefix, "others") }).draw(&b)
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s\n", next(p))
	return b.String()
}

// overall is the result for all sizes.
func overall(p *proof.Report) string {
	if p.Days == 0 {
		return ""
	}
	days := "today"
	if p.Days > 1 {
		days = fmt.Sprintf("last %d days", min(p.Days, proof.Days-1))
	}
	return fmt.Sprintf("%s, %s against %s, %s", faster(p.Overall.Complete), thousands(p.Overall.Carried), thousands(p.Overall.Direct), days)
}

// many connections without an answer, and none with one, are no accident.
const many = 6

// next is the recommended action.
func next(p *proof.Report) string {
	switch p.Verdict {
	case proof.Off:
		return "Nothing is compared now: option control_share is 0."
	case proof.Faster:
		return "The relay helps here: leave it on. `bquic report --json` prints the result without addresses, for others."
	case proof.Slower:
		next := "The relay slows connections down here. Check in `bquic status` whether the processor or the path to the gateway is at its limit, and try a nearer gateway."
		if !p.Auto {
			next += " With option auto '1', new connections go direct in the meantime."
		}
		return next
	case proof.Silent:
		return "More of the carried connections get no answer: check in the gateway's log and in its `bquic status` what it refuses, and whether its uplink works."
	case proof.Spared:
		return "Carried connections were slower, or got no answer, so new ones go direct. A few are still carried; once the difference is no longer certain, all are again."
	}
	switch {
	case opposed(p.Overall.Complete, p.Pages.Complete):
		return "Connections say one thing and page loads the other, so it is not certain whether the relay helps. Leave it on, and run this again in a day."
	case p.Overall.Direct == 0 && p.Unanswered.Direct >= many:
		return "Connections that this node makes itself get no answer, so there is nothing to compare with. Perhaps the mesh's exit lets out only clients."
	case p.Days >= proof.Days-1 && p.Overall.Complete == nil:
		return "A week has brought too few connections to compare. With a larger option control_share, more of them go direct."
	case p.Days >= proof.Days-1:
		return "A week has not shown for certain whether there is a difference. If there is one, it is within the ranges above."
	case p.Days > 0:
		return "It is not certain yet whether there is a difference. Leave the relay on, and run this again in a day."
	case p.Uncompared > 0:
		return "No connection has been compared in the last 7 days. Compare by hand: download a large file on a client with the relay on and off, several times in turn."
	}
	return "No connection has been compared in the last 7 days: `bquic status` says whether the relay takes any."
}

// opposed reports whether one change is certainly less and the other certainly more.
func opposed(a, b *proof.Change) bool {
	return a != nil && b != nil && (a.High < 0 && b.Low > 0 || a.Low > 0 && b.High < 0)
}

// faster says how much less time it takes, or how much more.
func faster(c *proof.Change) string {
	switch {
	case c == nil:
		return "too few to compare"
	case c.High < 0:
		return fmt.Sprintf("%.0f %% faster (95 %%: %.0f to %.0f)", -100*c.Change, -100*c.High, -100*c.Low)
	case c.Low > 0:
		return fmt.Sprintf("%.0f %% slower (95 %%: %.0f to %.0f)", 100*c.Change, 100*c.Low, 100*c.High)
	}
	return fmt.Sprintf("not certainly faster or slower (95 %%: %.0f %% faster to %.0f %% slower)", -100*c.Low, 100*c.High)
}

// short compares only how long all took.
func short(what string, lines []proof.Line, name func(proof.Line) string) table {
	t := table{head: []string{what, "completed", "carried", "direct"}}
	for _, l := range lines {
		t.rows = append(t.rows, []string{name(l), percent(l.Complete, true), thousands(l.Carried), thousands(l.Direct)})
	}
	return t
}

func comparison(what string, lines []proof.Line, name func(proof.Line) string) table {
	t := table{head: []string{what, "completed", "first byte", "throughput", "carried", "direct"}}
	for _, l := range lines {
		t.rows = append(t.rows, []string{name(l), percent(l.Complete, true), percent(l.FirstByte, true), percent(l.Throughput, false), thousands(l.Carried), thousands(l.Direct)})
	}
	return t
}

// percent formats a change, of a time or of a rate, with its interval.
func percent(c *proof.Change, time bool) string {
	if c == nil {
		return "?"
	}
	words := [2]string{"less", "more"}
	if time {
		words = [2]string{"faster", "slower"}
	}
	from, to := 100*c.Low, 100*c.High
	switch {
	case c.High <= 0:
		return fmt.Sprintf("%.0f %% %s (%.0f to %.0f)", math.Abs(100*c.Change), words[0], math.Abs(to), math.Abs(from)) // of 0, - makes -0
	case c.Low >= 0:
		return fmt.Sprintf("%.0f %% %s (%.0f to %.0f)", 100*c.Change, words[1], from, to)
	}
	return fmt.Sprintf("%.0f %% %s to %.0f %% %s", -from, words[0], to, words[1])
}

func sizes(l proof.Line) string {
	mb := func(n uint64) string { return strconv.FormatFloat(float64(n)/1e6, 'g', 3, 64) }
	switch {
	case l.To == 0:
		return "more than " + mb(l.From) + " MB"
	case l.From == 0:
		return "less than " + mb(l.To) + " MB"
	}
	return mb(l.From) + " to " + mb(l.To) + " MB"
}

// kind names a class of sessions.
func kind(l proof.Line) string {
	switch l.Class {
	case proof.HTTP1.String():
		return "pages, HTTP/1"
	case proof.HTTP2.String():
		return "pages, HTTP/2"
	}
	return "others"
}

func share(n, of uint32) string {
	if of == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

// thousands separates groups of three digits by commas.
func thousands(n uint32) string {
	text := strconv.FormatUint(uint64(n), 10)
	var parts []string
	for len(text) > 3 {
		parts = append([]string{text[len(text)-3:]}, parts...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, parts...), ",")
}
