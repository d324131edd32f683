// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"math"
	"slices"
	"time"
)

// A Report is the state of the comparison.
type Report struct {
	Verdict Verdict `json:"verdict"`
	Share   float64 `json:"share"` // share of new connections drawn today; 0: the comparison is off
	Auto    bool    `json:"auto"`
	Days    int     `json:"days"` // from the first with data to today
	Overall Line    `json:"overall"`
	// Sizes, Quarters and Clients have a line for each part with data.
	Sizes    []Line `json:"sizes"`
	Quarters []Line `json:"quarters"`
	Clients  []Line `json:"clients"`
	// Pages are page loads, and Kinds all sessions by class: HTTP/1, HTTP/2 and others. Both have only Complete.
	Pages Line   `json:"pages"`
	Kinds []Line `json:"kinds"`
	// Unanswered counts connections that received nothing.
	Unanswered Unanswered `json:"unanswered"`
	// Uncompared counts page loads and other sessions that began while the node's clients filled the path, since the relay's start.
	Uncompared uint32 `json:"uncompared"`
}

// A Verdict is the result in a word.
type Verdict string

const (
	Off    Verdict = "off"    // nothing is drawn
	Unsure Verdict = "unsure" // too little data, no significant difference, or page loads say the opposite of connections
	Faster Verdict = "faster" // carried connections are faster
	Slower Verdict = "slower" // carried connections are slower
	Silent Verdict = "silent" // more of the carried connections get no answer
	Spared Verdict = "spared" // auto sends new connections direct
)

// A Line compares carried and direct connections.
type Line struct {
	// From and To bound a size class, in bytes (To 0: no bound), or a quarter of a day, in hours of UTC.
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Prefix string `json:"prefix,omitempty"` // of clients; "": all others
	Class  string `json:"class,omitempty"`  // http1, http2 or other

	Carried uint32 `json:"carried"` // connections
	Direct  uint32 `json:"direct"`
	// FirstByte and Complete compare times, so less is better; Throughput compares rates. null: unknown.
	FirstByte  *Change `json:"first_byte"`
	Complete   *Change `json:"complete"`
	Throughput *Change `json:"throughput"`
}

// A Change is the effect of carrying, relative to direct connections: -0.2 is 20 % less. Low and
// High are the 95 % confidence interval.
type Change struct {
	Change float64 `json:"change"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// Unanswered counts connections in the groups that received nothing.
type Unanswered struct {
	Carried   uint32 `json:"carried"`
	CarriedOf uint32 `json:"carried_of"`
	Direct    uint32 `json:"direct"`
	DirectOf  uint32 `json:"direct_of"`
}

func (e effect) change() *Change {
	s := e.interval()
	if s == unknown {
		return nil
	}
	limit := func(x float64) float64 { return math.Expm1(min(x, 20)) } // JSON has no infinity
	return &Change{limit(e.mean), limit(s.low), limit(s.high)}
}

func (p *Proof) line(of part) Line {
	e := p.compare(of, complete)
	l := Line{Carried: e.carried, Direct: e.direct, Complete: e.change()}
	if of.prefix < 0 {
		l.FirstByte = p.compare(of, firstByte).change()
		l.Throughput = p.compare(of, throughput).change()
	}
	return l
}

func (p *Proof) kind(from, to Class) Line {
	e := p.sessions(from, to)
	return Line{Carried: e.carried, Direct: e.direct, Complete: e.change()}
}

// Report returns the state at a time.
func (p *Proof) Report(now time.Time) Report {
	r := Report{Auto: p.config.Auto, Sizes: []Line{}, Quarters: []Line{}, Clients: []Line{}, Kinds: []Line{}}
	if w := p.window(now); p.config.Share > 0 {
		r.Share = math.Round(1e4*float64(w.share)) / 1e4 // without the digits of a float32
	}
	for i := range p.windows {
		w := &p.windows[i]
		some := false
		for half := range w.tries {
			for quarter := range w.tries[half] {
				t := &w.tries[half][quarter]
				some = some || t[Carried].n+t[Direct].n > 0
				r.Unanswered.Carried += t[Carried].silent
				r.Unanswered.CarriedOf += t[Carried].n
				r.Unanswered.Direct += t[Direct].silent
				r.Unanswered.DirectOf += t[Direct].n
			}
		}
		if some {
			r.Days = max(r.Days, int(p.newest-w.day)+1)
		}
	}
	r.Overall = p.line(all)
	add := func(lines *[]Line, l Line) {
		if l.Carried+l.Direct > 0 {
			*lines = append(*lines, l)
		}
	}
	for size := range Sizes {
		l := p.line(part{size, -1, -1})
		if size > 0 {
			l.From = Limits[size-1]
		}
		if size < len(Limits) {
			l.To = Limits[size]
		}
		add(&r.Sizes, l)
	}
	for quarter := range Quarters {
		l := p.line(part{-1, quarter, -1})
		l.From, l.To = uint64(quarter*24/Quarters), uint64((quarter+1)*24/Quarters)
		add(&r.Quarters, l)
	}
	for i := range Prefixes {
		l := p.line(part{-1, -1, i})
		if i < len(p.prefixes) {
			l.Prefix = p.prefixes[i].String()
		}
		add(&r.Clients, l)
	}
	r.Pages = p.kind(HTTP1, HTTP2)
	for _, class := range []Class{HTTP1, HTTP2, Other} {
		l := p.kind(class, class)
		l.Class = class.String()
		add(&r.Kinds, l)
	}
	r.Verdict = p.verdict()
	return r
}

func (p *Proof) verdict() Verdict {
	time, pages := p.compare(all, complete).interval(), p.sessions(HTTP1, HTTP2).interval()
	switch {
	case p.config.Share == 0:
		return Off
	case p.spared:
		return Spared
	case p.answers(0).strict(doubt).low > 0:
		return Silent
	case time.low > 0 && pages.high >= 0:
		return Slower
	case time.high < 0 && pages.low <= 0:
		return Faster
	}
	return Unsure
}

// Anonymous returns the report without prefixes.
func (r Report) Anonymous() Report {
	r.Clients = slices.Clone(r.Clients)
	for i := range r.Clients {
		r.Clients[i].Prefix = ""
	}
	return r
}
