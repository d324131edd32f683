// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

const (
	// together is the longest time between two packets of a burst, in ns, as in the
	// connection statistics (quic.BurstStats).
	together = 100e3

	longestGap  = 1 << 44 // ns; longer gaps count as this
	maxLost     = 1 << 16 // packets declared lost that may still be acknowledged
	maxRequests = 32      // ACK_FREQUENCY frames shown
)

var (
	// µs: half decades, so that 100 µs is a bound.
	gapBounds = []float64{1, 3, 10, 30, 100, 300, 1e3, 3e3, 10e3, 30e3, 100e3, 300e3, 1e6}
	// Packets, bounds not included: 1, 2, 3-4, 5-8, ...
	burstBounds = []float64{2, 3, 5, 9, 17, 33, 65, 129}
	// ms: within an A-MPDU, a round trip in a mesh, a page.
	dispersionWindows = []float64{1, 10, 100}
)

// analysis is the state of the analysis of one connection.
type analysis struct {
	r Report

	started     bool
	start, last float64 // ms

	sent, received flow
	noFrames       bool // a packet came without its frames

	cwnd, flight, rtt float64 // newest
	rtts              quantiles
	line              timeline

	slowStarting bool    // the newest state is slow start, or idle in slow start
	inferred     bool    // without states, inferred from ssthresh
	lossTime     float64 // time of the newest loss
	ends         bool    // slow start ended since the last metrics
	message      string

	lost     []float64 // packet numbers, ascending
	spurious struct{ seen, told uint64 }
}

// flow describes the ack-eliciting packets of the application data space that one side sent.
type flow struct {
	packets, acks uint64
	bytes         float64
	last          float64 // ms
	gaps          quantiles
	histogram     histogram
	run           uint64
	bursts        quantiles
	burstLengths  histogram
	close         uint64 // packets less than 100 µs after the previous one
	counts        []dispersion
}

func newFlow() flow {
	f := flow{histogram: newHistogram(gapBounds), burstLengths: newHistogram(burstBounds)}
	for _, w := range dispersionWindows {
		f.counts = append(f.counts, dispersion{window: w})
	}
	return f
}

func (f *flow) packet(t, bytes float64) {
	f.packets++
	f.bytes += bytes
	for i := range f.counts {
		f.counts[i].add(t)
	}
	if f.packets > 1 {
		gap := min(math.Round((t-f.last)*1e6), longestGap)
		f.gaps.add(uint64(gap))
		f.histogram.add(gap / 1e3)
		if gap < together {
			f.close++
		} else {
			f.endRun()
		}
	}
	f.run++
	f.last = t
}

func (f *flow) endRun() {
	if f.run > 0 {
		f.bursts.add(f.run)
		f.burstLengths.add(float64(f.run))
	}
	f.run = 0
}

func newAnalysis(vantage, group string) *analysis {
	return &analysis{
		r:        Report{VantagePoint: vantage, GroupID: group},
		sent:     newFlow(),
		received: newFlow(),
		lossTime: math.Inf(-1),
	}
}

// event takes one event. Time that runs backwards counts as standing still.
func (a *analysis) event(ev *event) error {
	_, name, ok := strings.Cut(ev.name, ":")
	if !ok {
		name = ev.name
	}
	take := events[name]
	if !a.started {
		a.started, a.start = true, float64(ev.time)
	}
	a.last = max(a.last, float64(ev.time)-a.start)
	a.r.Events++
	if take == nil || len(ev.raw) == 0 {
		return nil
	}
	var d data
	if err := json.Unmarshal(ev.raw, &d); err != nil {
		return err
	}
	take(a, &d)
	return nil
}

// events by name, without the schema prefix.
var events = map[string]func(*analysis, *data){
	"packet_sent":              (*analysis).packetSent,
	"packet_received":          (*analysis).packetReceived,
	"packet_lost":              (*analysis).packetLost,
	"spurious_loss":            func(a *analysis, _ *data) { a.spurious.told++ },
	"metrics_updated":          (*analysis).metrics,
	"recovery_metrics_updated": (*analysis).metrics,
	"congestion_state_updated": (*analysis).state,
	"slow_start_ended":         func(a *analysis, d *data) { a.message = d.Message },
}

func (d *data) application() bool {
	return d.Header.PacketType == "1RTT" || d.Header.PacketType == "0RTT"
}

func (d *data) bytes() float64 {
	switch {
	case d.Raw.Length != nil:
		return max(float64(*d.Raw.Length), 0)
	case d.Header.Length != nil:
		return max(float64(*d.Header.Length), 0)
	}
	return 0
}

// ackEliciting says if a packet asks for an ACK (RFC 9002, section 2).
func (d *data) ackEliciting() bool {
	for _, f := range d.Frames {
		switch f.Type {
		case "ack", "padding", "connection_close":
		default:
			return true
		}
	}
	return len(d.Frames) == 0 // frames not recorded: most packets are ack-eliciting
}

func (a *analysis) packetSent(d *data) {
	if bytes, ok := a.packet(d, &a.sent, &a.received, "sent"); ok {
		a.line.at(a.last).sent += bytes
	}
}

func (a *analysis) packetReceived(d *data) {
	if bytes, ok := a.packet(d, &a.received, &a.sent, "received"); ok {
		a.line.at(a.last).received += bytes
	}
	for _, f := range d.Frames {
		if d.application() && f.Type == "ack" {
			a.acked(f.Ranges)
		}
	}
}

// packet counts a packet of flow f. Its ACK is for the other flow.
func (a *analysis) packet(d *data, f, other *flow, direction string) (bytes float64, ok bool) {
	if !d.application() {
		return 0, false
	}
	if len(d.Frames) == 0 {
		a.noFrames = true
	}
	bytes = d.bytes()
	if d.ackEliciting() {
		f.packet(a.last, bytes)
	}
	ack := false
	for _, fr := range d.Frames {
		switch fr.Type {
		case "ack":
			ack = true
		case "ack_frequency":
			a.r.AckFrequency.Frames++
			if len(a.r.AckFrequency.First) < maxRequests {
				a.r.AckFrequency.First = append(a.r.AckFrequency.First,
					AckFrequency{a.last, direction, float64(fr.Threshold), float64(fr.Delay), float64(fr.Reordering)})
			}
		}
	}
	if ack {
		other.acks++
	}
	return bytes, true
}

// acked looks for acknowledged packets that were declared lost.
func (a *analysis) acked(ranges [][]number) {
	for _, r := range ranges {
		if len(a.lost) == 0 {
			return
		}
		if len(r) == 0 {
			continue
		}
		first, last := float64(r[0]), float64(r[len(r)-1])
		i, _ := slices.BinarySearch(a.lost, first)
		j, found := slices.BinarySearch(a.lost, last)
		if found {
			j++
		}
		if i < j {
			a.spurious.seen += uint64(j - i)
			a.lost = append(a.lost[:i], a.lost[j:]...)
		}
	}
}

func (a *analysis) packetLost(d *data) {
	if !d.application() {
		return
	}
	if d.IsMTUProbe {
		a.r.Losses.MTUProbes++
		return
	}
	switch d.Trigger {
	case "reordering_threshold":
		a.r.Losses.ByReordering++
	case "time_threshold":
		a.r.Losses.ByTime++
	}
	a.r.Losses.Packets++
	a.lossTime = a.last
	a.line.at(a.last).lost++
	pn := float64(d.Header.PacketNumber)
	if i, found := slices.BinarySearch(a.lost, pn); !found {
		a.lost = append(a.lost, 0)
		copy(a.lost[i+1:], a.lost[i:])
		a.lost[i] = pn
		if len(a.lost) > maxLost {
			a.lost = a.lost[1:] // the oldest
		}
	}
}

func (a *analysis) metrics(d *data) {
	b := a.line.at(a.last)
	if v := d.LatestRTT; v != nil && *v > 0 {
		a.rtts.add(uint64(min(float64(*v)*1e6, longestGap)))
		b.rtt = max(b.rtt, float64(*v))
		a.rtt = float64(*v)
	}
	if v := d.MinRTT; v != nil && *v > 0 {
		a.r.RTT.MinMS = float64(*v)
	}
	if v := d.SmoothedRTT; v != nil && *v > 0 {
		a.r.RTT.SmoothedMS = float64(*v)
		b.srtt = float64(*v)
	}
	if a.ends {
		a.ends = false
		a.r.SlowStart.RTTMS, a.r.SlowStart.MinRTTMS = a.rtt, a.r.RTT.MinMS
	}
	if v := cmp.Or(d.CongestionWindow, d.Cwnd); v != nil && *v > 0 {
		a.window(float64(*v))
		b.cwnd = a.cwnd
	}
	if v := d.BytesInFlight; v != nil && *v >= 0 {
		a.flight = float64(*v)
		b.flight = max(b.flight, a.flight)
	}
	// Without states, a threshold below the window says that slow start is over.
	if v := d.SSThresh; v != nil && !a.r.SlowStart.Recorded && !a.inferred && *v > 0 && a.cwnd >= float64(*v) {
		a.inferred = true
		a.endSlowStart(a.cwnd)
		a.r.SlowStart.Reason = ""
		if a.r.Losses.Packets > 0 {
			a.r.SlowStart.Reason = "loss"
		}
	}
}

func (a *analysis) window(bytes float64) {
	c := &a.r.CongestionWindow
	if c.First == 0 {
		c.First = bytes
	}
	c.Max, c.Last = max(c.Max, bytes), bytes
	a.cwnd = bytes
}

func (a *analysis) state(d *data) {
	s := &a.r.SlowStart
	s.Recorded = true
	switch d.New {
	case "slow_start":
		if s.Ended && !a.slowStarting {
			s.Restarts++
		}
		a.slowStarting = true
	case "recovery", "congestion_avoidance":
		if a.slowStarting && !s.Ended {
			a.endSlowStart(a.cwnd)
			if d.New == "congestion_avoidance" {
				s.Reason = "delay"
			}
		}
		a.slowStarting = false
	}
}

// endSlowStart records the end of slow start; a loss just before is the reason.
func (a *analysis) endSlowStart(cwnd float64) {
	s := &a.r.SlowStart
	s.Ended, s.AtMS, s.Cwnd, s.Detail = true, a.last, cwnd, a.message
	s.Reason = "ecn"
	if a.last-a.lossTime < 1 {
		s.Reason = "loss"
	}
	a.ends = true
}

func (a *analysis) report() *Report {
	r := &a.r
	r.Seconds = a.last / 1e3
	r.FramesRecorded = !a.noFrames
	r.Sent, r.Received = a.sent.report(), a.received.report()
	r.Losses.Spurious = max(a.spurious.seen, a.spurious.told)
	r.RTT.Samples = a.rtts.n
	r.RTT.LatestMS = a.rtts.report(1e6)
	r.Timeline = a.line.report()
	return r
}
