// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bquic/internal/metrics"
	"bquic/internal/proof"
)

// Metrics writes the metrics that docs/gateway.md lists.
func (r *Relay) Metrics(w *metrics.Writer) {
	st := r.Status()
	w.Gauge("bquic_relay_up", "1: a gateway answers.").Value(metrics.Flag(st.State == StateUp))
	w.Gauge("bquic_relay_taking", "1: the relay takes new connections.").Value(metrics.Flag(st.Taking))
	w.Gauge("bquic_relay_unseen", "1: clients are busy, but the relay sees none of their connections.").Value(metrics.Flag(st.Unseen != nil))
	w.Gauge("bquic_relay_gateway_up", "1: this gateway carries new connections, or is ready to.")
	for _, g := range st.Gateways {
		w.Value(metrics.Flag(g.State == StateUp), "gateway", g.Address)
	}
	w.Gauge("bquic_relay_gateway_streams", "Connections and flows that this gateway carries.")
	for _, g := range st.Gateways {
		w.Value(float64(g.Streams), "gateway", g.Address)
	}
	ways := []struct {
		name string
		Count
	}{{"carried", st.Carried}, {"direct", st.Direct}}
	w.Gauge("bquic_relay_connections", "Open TCP connections.")
	for _, way := range ways {
		w.Value(float64(way.Now), "way", way.name)
	}
	w.Counter("bquic_relay_connections_total", "TCP connections since the start.")
	for _, way := range ways {
		w.Value(float64(way.Total), "way", way.name)
	}
	w.Counter("bquic_relay_sent_bytes_total", "Bytes that clients have sent.")
	for _, way := range ways {
		w.Value(float64(way.Up), "way", way.name)
	}
	w.Counter("bquic_relay_received_bytes_total", "Bytes that clients have received.")
	for _, way := range ways {
		w.Value(float64(way.Down), "way", way.name)
	}
	w.Counter("bquic_relay_refused_total", "Connections whose target the gateway refused.").Value(float64(st.Refused))
	w.Counter("bquic_relay_late_total", "Connections that went direct after 1.5 s, in which the gateway did not answer.").Value(float64(st.Late))
	w.Gauge("bquic_relay_udp_flows", "Open UDP flows.").Value(float64(st.UDP.Now))
	w.Counter("bquic_relay_udp_lost_total", "UDP datagrams dropped for lack of room.").Value(float64(st.UDP.Lost))
	cpu := st.Processor
	w.Gauge("bquic_relay_processor_free", "1: the processor is as fast as the path, so the relay takes TCP.").Value(metrics.Flag(cpu.Why == ""))
	w.Gauge("bquic_relay_processor_bytes_per_second", "Rate that the processor can carry now.").Value(cpu.Carries / 8)
	w.Gauge("bquic_relay_path_bytes_per_second", "Rate that the path has shown that it can carry; 0: none yet.").Value(cpu.Path / 8)
	w.Gauge("bquic_relay_processor_used_ratio", "Share of one processor that the relay uses.").Value(cpu.Used)
	w.Gauge("bquic_relay_clients", "Clients that the relay has seen, at most 255.").Value(float64(len(st.Clients)))
	w.Gauge("bquic_relay_rtt_seconds", "Smoothed RTT to the gateway: the largest of all sessions.")
	rtt := 0.0
	for _, c := range st.Connections {
		rtt = max(rtt, c.RTT.Seconds())
	}
	w.Value(rtt)
	writeProof(w, &st.Proof)
}

// writeProof writes the first two lines of `bquic report`.
func writeProof(w *metrics.Writer, p *proof.Report) {
	w.Gauge("bquic_relay_verdict", "1: the result of the comparison with direct connections is this one.")
	for _, v := range []proof.Verdict{proof.Off, proof.Unsure, proof.Faster, proof.Slower, proof.Silent, proof.Spared} {
		w.Value(metrics.Flag(v == p.Verdict), "verdict", string(v))
	}
	lines := []struct {
		what string
		proof.Line
	}{{"connections", p.Overall}, {"pages", p.Pages}}
	w.Gauge("bquic_relay_compared", "Connections and page loads in the comparison, of seven days.")
	for _, l := range lines {
		w.Value(float64(l.Carried), "what", l.what, "way", "carried").Value(float64(l.Direct), "what", l.what, "way", "direct")
	}
	for _, m := range []struct {
		name, help string
		of         func(*proof.Change) float64
	}{
		{"bquic_relay_change_ratio", "How much longer carried connections take than direct ones (-0.2: 20 % less time).", func(c *proof.Change) float64 { return c.Change }},
		{"bquic_relay_change_low_ratio", "Its lower bound (95 %).", func(c *proof.Change) float64 { return c.Low }},
		{"bquic_relay_change_high_ratio", "Its upper bound (95 %).", func(c *proof.Change) float64 { return c.High }},
	} {
		w.Gauge(m.name, m.help)
		for _, l := range lines {
			if l.Complete != nil {
				w.Value(m.of(l.Complete), "what", l.what)
			}
		}
	}
}
