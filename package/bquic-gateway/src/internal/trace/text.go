// SPDX-License-Identifier: Apache-2.0

//go:build !router

package trace

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"bquic/internal/system"
)

// Text writes a readable report.
func (r *Report) Text(w io.Writer) error {
	var b bytes.Buffer
	who := r.VantagePoint
	if who == "" {
		who = "unknown side"
	}
	if r.GroupID != "" {
		who += ", connection " + system.Printable(r.GroupID)
	}
	fmt.Fprintf(&b, "%s: %d events in %.3f s", system.Printable(who), r.Events, r.Seconds)
	if r.Truncated {
		b.WriteString(", still being written")
	}
	b.WriteByte('\n')
	if !r.FramesRecorded {
		b.WriteString("  packets are recorded without their frames: all count as data, and ACKs cannot be counted\n")
	}
	r.Sent.text(&b, "sent", "received", r)
	r.Received.text(&b, "received", "sent", r)
	r.recovery(&b)
	r.Timeline.text(&b)
	_, err := w.Write(b.Bytes())
	return err
}

func (f *Flow) text(b *bytes.Buffer, verb, reverse string, r *Report) {
	fmt.Fprintf(b, "\n%s\n", verb)
	fmt.Fprintf(b, "  data           %d packets, %.3f MB", f.Packets, f.Bytes/1e6)
	if f.Bytes > 0 && r.Seconds > 0 {
		fmt.Fprintf(b, ", %.2f Mbit/s on average", f.Bytes*8/1e6/r.Seconds)
	}
	b.WriteByte('\n')
	if f.Packets == 0 {
		return
	}
	if r.FramesRecorded {
		fmt.Fprintf(b, "  ACKs %-9s %d", reverse, f.Acks)
		if f.Acks > 0 {
			fmt.Fprintf(b, ": %.1f data packets per ACK", f.DataPerAck)
		}
		b.WriteByte('\n')
	}
	if f.Packets < 2 {
		return
	}
	q := f.InterPacketUS
	fmt.Fprintf(b, "  between two    median %s, 90%% %s, 99%% %s, longest %s\n", us(q.Median), us(q.P90), us(q.P99), us(q.Max))
	bars(b, f.Histogram, func(lo, hi float64) string {
		switch {
		case hi == 0:
			return us(lo) + " or more"
		case lo == 0:
			return "below " + us(hi)
		}
		return us(lo) + " to " + us(hi)
	})
	fmt.Fprintf(b, "  bursts         %d (less than 100 µs between packets): mean %.1f packets, median %.0f, 90%% %.0f, longest %.0f\n",
		f.Bursts, f.BurstLength.Mean, f.BurstLength.Median, f.BurstLength.P90, f.BurstLength.Max)
	bars(b, f.BurstLengths, func(lo, hi float64) string {
		switch {
		case hi == 0:
			return fmt.Sprintf("%.0f packets or more", lo)
		case lo == 0:
			return "alone"
		case hi-lo == 1:
			return fmt.Sprintf("%.0f packets", lo)
		}
		return fmt.Sprintf("%.0f to %.0f packets", lo, hi-1)
	})
	for i, d := range f.Dispersion {
		if i == 0 {
			b.WriteString("  dispersion     ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%.1f in %.0f ms", d.Index, d.WindowMS)
	}
	if len(f.Dispersion) > 0 {
		b.WriteString(" (variance of packets per window over their mean; 1: Poisson)\n")
	}
}

// us writes a time in µs with a fitting unit.
func us(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.3g s", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.3g ms", v/1e3)
	}
	return fmt.Sprintf("%.3g µs", v)
}

func bars(b *bytes.Buffer, bins []Bin, label func(lo, hi float64) string) {
	var total, most uint64
	for _, x := range bins {
		total += x.Count
		most = max(most, x.Count)
	}
	lo := 0.0
	for _, x := range bins {
		if x.Count > 0 {
			bar := strings.Repeat("#", int((x.Count*40+most-1)/most))
			fmt.Fprintf(b, "    %-20s %5.1f%%  %s\n", label(lo, x.Below), 100*float64(x.Count)/float64(total), bar)
		}
		lo = x.Below
	}
}

func (r *Report) recovery(b *bytes.Buffer) {
	b.WriteString("\nrecovery (of what was sent)\n")
	if t := r.RTT; t.Samples > 0 {
		fmt.Fprintf(b, "  RTT            %.2f ms minimum, %.2f ms smoothed at the end; samples: median %.2f, 90%% %.2f, 99%% %.2f, longest %.2f ms\n",
			t.MinMS, t.SmoothedMS, t.LatestMS.Median, t.LatestMS.P90, t.LatestMS.P99, t.LatestMS.Max)
	}
	l := r.Losses
	fmt.Fprintf(b, "  lost           %d packets (%d by reordering, %d by time), %d of them spuriously", l.Packets, l.ByReordering, l.ByTime, l.Spurious)
	if l.MTUProbes > 0 {
		fmt.Fprintf(b, "; %d probes of the MTU", l.MTUProbes)
	}
	b.WriteByte('\n')
	if c := r.CongestionWindow; c.First > 0 {
		fmt.Fprintf(b, "  window         %.1f KB at first, %.1f KB at most, %.1f KB at the end\n", c.First/1e3, c.Max/1e3, c.Last/1e3)
	}
	fmt.Fprintf(b, "  slow start     %s\n", r.SlowStart.text())
	if a := r.AckFrequency; a.Frames > 0 {
		fmt.Fprintf(b, "  ACK_FREQUENCY  %d frames\n", a.Frames)
		for _, f := range a.First {
			fmt.Fprintf(b, "    %8.1f ms  %-8s  threshold %.0f, delay %.1f ms, reordering %.0f\n", f.AtMS, f.Direction, f.Threshold, f.DelayMS, f.Reordering)
		}
		if n := a.Frames - uint64(len(a.First)); n > 0 {
			fmt.Fprintf(b, "    and %d more\n", n)
		}
	}
}

func (s *SlowStart) text() string {
	switch {
	case !s.Ended && s.Recorded:
		return "not ended"
	case !s.Ended:
		return "not recorded"
	}
	why := map[string]string{
		"delay": "the RTT rose",
		"loss":  "packets were lost",
		"ecn":   "no packet was lost: the path marked one (ECN-CE)",
		"":      "the file does not say why",
	}[s.Reason]
	t := fmt.Sprintf("ended after %.1f ms at %.1f KB: %s", s.AtMS, s.Cwnd/1e3, why)
	switch {
	case s.Detail != "":
		t += " (" + system.Printable(s.Detail) + ")"
	case s.RTTMS > 0:
		t += fmt.Sprintf(" (RTT %.2f ms, minimum %.2f ms)", s.RTTMS, s.MinRTTMS)
	}
	if s.Restarts > 0 {
		t += fmt.Sprintf("; %d more afterwards", s.Restarts)
	}
	return t
}

// text writes at most 16 rows.
func (t *Timeline) text(b *bytes.Buffer) {
	n := len(t.Cwnd)
	if n == 0 {
		return
	}
	step := (n + 15) / 16
	b.WriteString("\nover time\n       until       sent   received     window  in flight        RTT   lost\n" +
		"          ms     Mbit/s     Mbit/s         KB   KB, most         ms\n")
	for i := 0; i < n; i += step {
		end := min(i+step, n)
		var sent, received, lost, flight float64
		for j := i; j < end; j++ {
			sent += t.SentMbps[j]
			received += t.ReceivedMbps[j]
			lost += t.Lost[j]
			flight = max(flight, t.BytesInFlight[j])
		}
		k := float64(end - i)
		fmt.Fprintf(b, "  %10.0f %10.2f %10.2f %10.1f %10.1f %10.2f %6.0f\n", float64(end)*t.BinMS,
			sent/k, received/k, t.Cwnd[end-1]/1e3, flight/1e3, t.SmoothedRTT[end-1], lost)
	}
}
