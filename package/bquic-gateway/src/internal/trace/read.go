// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"bquic/internal/system"
)

const (
	maxRecord = 16 << 20 // bytes of one event or one unknown field
	maxTraces = 64       // connections in one file
	maxDepth  = 8        // of objects around an event
	maxNumber = 1 << 64  // keeps sums finite
)

// Read computes a report for each connection in a qlog: one event after the
// other (JSON-SEQ or a JSON object per line, as quic-go and quinn write it) or
// one document (JSON, as aioquic writes it). It holds one event in memory.
//
// A file that ends within an event is still being written: its reports have Truncated
// set. Errors name the line, counted from 1.
func Read(r io.Reader) ([]*Report, error) {
	p := &parser{in: &input{r: r}, groups: map[string]*analysis{}}
	p.dec = json.NewDecoder(p.in)
	p.in.consumed = p.dec.InputOffset
	err := p.read()
	truncated := errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !truncated {
		if p.badLine == 0 {
			p.badLine = p.nextLine()
		}
		return nil, fmt.Errorf("line %d: %w", p.badLine, err)
	}
	p.endTrace()
	if len(p.reports) == 0 {
		return nil, errors.New("not a qlog: it has neither a qlog header nor events")
	}
	if truncated {
		p.reports[len(p.reports)-1].Truncated = true
	}
	return p.reports, nil
}

// nextLine returns the line of the next value.
func (p *parser) nextLine() int {
	rest, _ := io.ReadAll(p.dec.Buffered())
	blank := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,:"))
	return p.in.lineAt(p.dec.InputOffset() + int64(blank))
}

// input feeds the decoder. It turns JSON-SEQ's record separators (RFC 7464) into blanks,
// and remembers the positions of lines that were not decoded yet.
type input struct {
	r        io.Reader
	consumed func() int64 // bytes that the decoder is done with

	offset int64   // bytes read
	lines  int     // lines that end before the first of ends
	ends   []int64 // offsets of newlines, ascending
}

func (in *input) Read(b []byte) (int, error) {
	if in.offset-in.consumed() > maxRecord {
		return 0, fmt.Errorf("an event or field is larger than %d MiB", maxRecord>>20)
	}
	in.lineAt(in.consumed()) // discards earlier lines
	n, err := in.r.Read(b)
	for i, c := range b[:n] {
		switch c {
		case 0x1e:
			b[i] = ' '
		case '\n':
			in.ends = append(in.ends, in.offset+int64(i))
		}
	}
	in.offset += int64(n)
	return n, err
}

// lineAt returns the line of an offset. Offsets must not decrease.
func (in *input) lineAt(offset int64) int {
	n, _ := slices.BinarySearch(in.ends, offset)
	in.lines += n
	in.ends = append(in.ends[:0], in.ends[n:]...)
	return in.lines + 1
}

// parser walks through the objects of a qlog in any of its forms.
type parser struct {
	in  *input
	dec *json.Decoder

	badLine int // line of an invalid value, 0 for none

	raw json.RawMessage // the value decoded last

	seen     bool // there was a field that only a qlog has
	vantage  string
	delta    bool    // times are relative to the previous event
	lastTime float64 // ms
	groups   map[string]*analysis
	order    []*analysis
	reports  []*Report
}

func (p *parser) read() error {
	for {
		t, err := p.dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return syntax(err)
		}
		if t != json.Delim('{') {
			return errors.New("not a qlog: not a JSON object")
		}
		if err := p.object(0); err != nil {
			return err
		}
	}
}

// syntax translates a decoder's error within a value.
func syntax(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	var s *json.SyntaxError
	if errors.As(err, &s) {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	return err
}

// object reads the rest of an object after its brace: a file, a trace or an event.
func (p *parser) object(depth int) error {
	if depth > maxDepth {
		return errors.New("objects are nested too deeply")
	}
	var ev event
	for p.dec.More() {
		t, err := p.dec.Token()
		if err != nil {
			return syntax(err)
		}
		key, _ := t.(string)
		switch key {
		case "trace":
			p.seen = true
			err = p.delim('{', func() error { return p.object(depth + 1) })
		case "traces":
			p.seen = true
			err = p.array(func() error {
				p.endTrace()
				return p.object(depth + 1)
			})
		case "events":
			p.seen = true
			err = p.array(func() error { return p.object(depth + 1) })
		case "vantage_point":
			var v struct{ Type string }
			if err = p.decode(key, &v); err == nil && v.Type != "" {
				p.seen, p.vantage = true, v.Type
			}
		case "common_fields":
			var c struct {
				TimeFormat string `json:"time_format"`
			}
			if err = p.decode(key, &c); err == nil {
				p.delta = c.TimeFormat == "delta" || c.TimeFormat == "relative_to_previous_event"
			}
		case "time":
			err = p.decode(key, &ev.time)
		case "name":
			err = p.decode(key, &ev.name)
		case "group_id":
			err = p.decode(key, &ev.group)
		case "data":
			if err = p.next(); err == nil {
				ev.raw = append(ev.raw[:0], p.raw...)
			}
		default:
			err = p.next()
		}
		if err != nil {
			return err
		}
	}
	if _, err := p.dec.Token(); err != nil {
		return syntax(err)
	}
	if ev.name == "" {
		return nil
	}
	p.seen = true
	return p.event(&ev)
}

// delim expects an opening brace or bracket, and leaves the rest to read.
func (p *parser) delim(d json.Delim, read func() error) error {
	t, err := p.dec.Token()
	if err != nil {
		return syntax(err)
	}
	if t != d {
		return fmt.Errorf("a %s is missing", d)
	}
	return read()
}

// array reads an array of objects. It calls read after the opening brace of each.
func (p *parser) array(read func() error) error {
	return p.delim('[', func() error {
		for p.dec.More() {
			if t, err := p.dec.Token(); err != nil {
				return syntax(err)
			} else if t != json.Delim('{') {
				return errors.New("an event is not an object (qlog before version 0.3 is not supported)")
			}
			if err := read(); err != nil {
				return err
			}
		}
		if _, err := p.dec.Token(); err != nil {
			return syntax(err)
		}
		return nil
	})
}

// next reads any value.
func (p *parser) next() error {
	if err := p.dec.Decode(&p.raw); err != nil {
		return syntax(err)
	}
	return nil
}

func (p *parser) decode(key string, v any) error {
	if err := p.next(); err != nil {
		return err
	}
	if err := json.Unmarshal(p.raw, v); err != nil {
		return p.bad(key, err)
	}
	return nil
}

// bad returns an error about the value decoded last, which is invalid.
func (p *parser) bad(what string, err error) error {
	p.badLine = p.in.lineAt(p.dec.InputOffset())
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field != "" {
			what += ": " + wrong.Field
		}
		err = fmt.Errorf("unexpected %s", wrong.Value)
	}
	return fmt.Errorf("%s: %w", system.Printable(what), err)
}

func (p *parser) event(ev *event) error {
	if p.delta {
		ev.time += number(p.lastTime)
	}
	p.lastTime = float64(ev.time)
	a := p.groups[ev.group]
	if a == nil {
		if len(p.reports)+len(p.order) == maxTraces {
			return fmt.Errorf("more than %d connections in one file", maxTraces)
		}
		a = newAnalysis(p.vantage, ev.group)
		p.groups[ev.group] = a
		p.order = append(p.order, a)
	}
	if err := a.event(ev); err != nil {
		return p.bad(ev.name, err)
	}
	return nil
}

// endTrace makes reports from the trace read so far.
func (p *parser) endTrace() {
	if len(p.order) == 0 && p.seen && p.vantage != "" {
		p.order = append(p.order, newAnalysis(p.vantage, "")) // a header only
	}
	for _, a := range p.order {
		if a.r.VantagePoint == "" {
			a.r.VantagePoint = p.vantage // aioquic writes it after the events
		}
		p.reports = append(p.reports, a.report())
	}
	p.order, p.vantage, p.delta, p.lastTime = nil, "", false, 0
	clear(p.groups)
}

// An event is an event of a qlog. Events that decode does not know are ignored.
type event struct {
	time  number // ms
	name  string
	group string
	raw   json.RawMessage
}

// data has the fields of all events that are used.
type data struct {
	Header struct {
		PacketType   string  `json:"packet_type"`
		PacketNumber number  `json:"packet_number"`
		Length       *number `json:"length"` // until qlog 0.3
	} `json:"header"`
	Raw struct {
		Length *number `json:"length"`
	} `json:"raw"`
	Frames []frame `json:"frames"`

	IsMTUProbe bool   `json:"is_mtu_probe_packet"`
	Trigger    string `json:"trigger"`

	MinRTT           *number `json:"min_rtt"` // ms, as the next two
	SmoothedRTT      *number `json:"smoothed_rtt"`
	LatestRTT        *number `json:"latest_rtt"`
	CongestionWindow *number `json:"congestion_window"`
	Cwnd             *number `json:"cwnd"` // its name in aioquic
	BytesInFlight    *number `json:"bytes_in_flight"`
	SSThresh         *number `json:"ssthresh"`

	New     string `json:"new"`
	Message string `json:"message"`
}

type frame struct {
	Type       string     `json:"frame_type"`
	Ranges     [][]number `json:"acked_ranges"` // [first, last] or [only]
	Threshold  number     `json:"ack_eliciting_threshold"`
	Delay      number     `json:"request_max_ack_delay"` // ms
	Reordering number     `json:"reordering_threshold"`
}

// A number may be in quotes: some programs write 64-bit numbers this way.
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" {
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v-v != 0 { // NaN, infinity
		return fmt.Errorf("%.40s is not a number", b)
	}
	if v < -maxNumber || v > maxNumber {
		return fmt.Errorf("%.40s is too large", b)
	}
	*n = number(v)
	return nil
}
