// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"

	"bquic/internal/system"
)

// Geometry in px.
const (
	svgWidth    = 900
	plotLeft    = 70
	plotWidth   = svgWidth - plotLeft - 20
	plotHeight  = 130
	panelHeight = plotHeight + 70
	titleHeight = 50
)

// Colours that are distinguishable for the colour-blind (Okabe and Ito).
const (
	blue   = "#0072b2"
	orange = "#e69f00"
	green  = "#009e73"
	red    = "#d55e00"
	grey   = "#666"
)

// SVG draws the reports below each other: rates, window, RTT, times between
// packets and burst lengths.
func SVG(w io.Writer, reports []*Report) error {
	const panels = 5
	each := titleHeight + panels*panelHeight
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="#fff"/>
`, svgWidth, each*len(reports))
	for i, r := range reports {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n", i*each)
		r.svg(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) svg(b *bytes.Buffer) {
	title := r.VantagePoint
	if r.GroupID != "" {
		title += " " + system.Printable(r.GroupID)
	}
	fmt.Fprintf(b, `<text x="%d" y="22" font-size="15" font-weight="bold">%s: %.3f s</text>`+"\n", plotLeft, html.EscapeString(system.Printable(title)), r.Seconds)
	fmt.Fprintf(b, `<text x="%d" y="40" fill="%s">sent %d packets, %.1f per ACK; received %d packets, %.1f per ACK; %d lost, %d spuriously</text>`+"\n",
		plotLeft, grey, r.Sent.Packets, r.Sent.DataPerAck, r.Received.Packets, r.Received.DataPerAck, r.Losses.Packets, r.Losses.Spurious)

	t := &r.Timeline
	seconds := float64(len(t.Cwnd)) * t.BinMS / 1e3
	panels := []func(){
		func() {
			timePlot(b, "Mbit/s", seconds,
				series{"sent", blue, t.SentMbps, 1, false}, series{"received", orange, t.ReceivedMbps, 1, false})
		},
		func() {
			timePlot(b, "KB", seconds,
				series{"congestion window", blue, t.Cwnd, 1e-3, true}, series{"in flight, most", green, t.BytesInFlight, 1e-3, true})
			r.svgMarks(b, seconds)
		},
		func() {
			timePlot(b, "RTT, ms", seconds,
				series{"largest sample", orange, t.RTT, 1, true}, series{"smoothed", blue, t.SmoothedRTT, 1, true})
		},
		func() {
			barPlot(b, "packets", "time since the packet before: less than", r.Sent.Histogram, r.Received.Histogram, us)
		},
		func() {
			barPlot(b, "bursts", "packets in a burst, with less than 100 µs between them: less than", r.Sent.BurstLengths, r.Received.BurstLengths, decimal)
		},
	}
	for i, draw := range panels {
		fmt.Fprintf(b, `<g transform="translate(%d %d)">`+"\n", plotLeft, titleHeight+i*panelHeight+20)
		draw()
		b.WriteString("</g>\n")
	}
}

// svgMarks marks the end of slow start and losses in a plot over time.
func (r *Report) svgMarks(b *bytes.Buffer, seconds float64) {
	if s := r.SlowStart; s.Ended && seconds > 0 {
		why := s.Reason
		if why == "" {
			why = "unknown"
		}
		x := min(s.AtMS/1e3/seconds, 1) * plotWidth
		fmt.Fprintf(b, `<line x1="%.1f" x2="%[1]f" y1="0" y2="%d" stroke="%s" stroke-dasharray="4 3"/>`+"\n", x, plotHeight, grey)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="%s">slow start ends: %s</text>`+"\n", min(x+4, plotWidth-150), plotHeight-16, grey, why)
	}
	if r.Losses.Packets == 0 {
		return
	}
	for i, n := range r.Timeline.Lost {
		if n > 0 {
			x := (float64(i) + 0.5) / float64(len(r.Timeline.Lost)) * plotWidth
			fmt.Fprintf(b, `<line x1="%.1f" x2="%[1]f" y1="%d" y2="%d" stroke="%s"><title>%.0f packets lost</title></line>`+"\n", x, plotHeight-12, plotHeight, red, n)
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="-6" fill="%s" text-anchor="end">| packets lost</text>`+"\n", plotWidth, red)
}

// series is a line in a plot over time.
type series struct {
	name, colour string
	values       []float64
	unit         float64 // of the axis per unit of the values
	gaps         bool    // 0 means no value
}

func timePlot(b *bytes.Buffer, axis string, seconds float64, lines ...series) {
	top := 0.0
	for _, l := range lines {
		for _, v := range l.values {
			top = max(top, v*l.unit)
		}
	}
	top = yAxis(b, axis, top)
	if seconds > 0 {
		step := niceStep(seconds / 8)
		for x := 0.0; x <= seconds*1.0001; x += step {
			px := x / seconds * plotWidth
			fmt.Fprintf(b, `<line x1="%.1f" x2="%[1]f" y1="%d" y2="%d" stroke="%s"/>`, px, plotHeight, plotHeight+4, grey)
			fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%s</text>`+"\n", px, plotHeight+17, grey, decimal(x))
		}
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="%s">time, s</text>`+"\n", plotWidth/2, plotHeight+33, grey)
	var names []legend
	for _, l := range lines {
		names = append(names, legend{l.name, l.colour})
		var points strings.Builder
		for i, v := range l.values {
			if v == 0 && l.gaps {
				continue
			}
			x := (float64(i) + 0.5) / float64(len(l.values)) * plotWidth
			fmt.Fprintf(&points, "%.1f,%.1f ", x, plotHeight*(1-v*l.unit/top))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.3" points="%s"/>`+"\n", l.colour, strings.TrimSpace(points.String()))
	}
	legends(b, names)
}

// barPlot draws two histograms with the same bounds side by side, without empty bins at the ends.
func barPlot(b *bytes.Buffer, axis, below string, sent, received []Bin, bound func(float64) string) {
	first, last := len(sent), 0
	most := 0.0
	for i := range sent {
		if n := max(sent[i].Count, received[i].Count); n > 0 {
			first, last = min(first, i), i+1
			most = max(most, float64(n))
		}
	}
	top := yAxis(b, axis, most)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>`+"\n", plotWidth/2, plotHeight+33, grey, below)
	legends(b, []legend{{"sent", blue}, {"received", orange}})
	for i := first; i < last; i++ {
		width := float64(plotWidth) / float64(last-first)
		x := float64(i-first) * width
		for j, c := range []struct {
			n      uint64
			colour string
		}{{sent[i].Count, blue}, {received[i].Count, orange}} {
			h := plotHeight * float64(c.n) / top
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%d</title></rect>`,
				x+width*(0.1+0.4*float64(j)), plotHeight-h, width*0.38, h, c.colour, c.n)
		}
		label := "more"
		if sent[i].Below > 0 {
			label = bound(sent[i].Below)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%s</text>`+"\n", x+width/2, plotHeight+17, grey, label)
	}
}

// yAxis draws the vertical axis and returns its upper end.
func yAxis(b *bytes.Buffer, axis string, most float64) float64 {
	if most <= 0 {
		most = 1
	}
	step := niceStep(most / 4)
	top := math.Ceil(most/step) * step
	for i := 0; float64(i)*step <= top*1.0001; i++ {
		y := plotHeight * (1 - float64(i)*step/top)
		fmt.Fprintf(b, `<line x1="0" x2="%d" y1="%.1f" y2="%[2]f" stroke="#ddd"/>`, plotWidth, y)
		fmt.Fprintf(b, `<text x="-6" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n", y+4, grey, decimal(float64(i)*step))
	}
	fmt.Fprintf(b, `<text x="%d" y="-6" font-weight="bold">%s</text>`+"\n", 0, axis)
	return top
}

type legend struct{ name, colour string }

func legends(b *bytes.Buffer, names []legend) {
	for i, n := range names {
		x := 140 + 160*i
		fmt.Fprintf(b, `<rect x="%d" y="-14" width="12" height="8" fill="%s"/><text x="%d" y="-6">%s</text>`+"\n", x, n.colour, x+16, n.name)
	}
}

// niceStep returns 1, 2 or 5 times a power of ten, at least v and a billionth.
func niceStep(v float64) float64 {
	v = max(v, 1e-9)
	p := 1.0
	for p > v {
		p /= 10
	}
	for 10*p <= v {
		p *= 10
	}
	switch {
	case p >= v:
		return p
	case 2*p >= v:
		return 2 * p
	case 5*p >= v:
		return 5 * p
	}
	return 10 * p
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
