// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"bquic/internal/accesslog"
	"bquic/internal/history"
	"bquic/internal/metrics"
	"bquic/internal/status"
	"bquic/internal/tunnel"
)

// Status returns the gateway's current status.
func (s *Server) Status() Status {
	g := s.now.Load()
	st := Status{
		Daemon:   status.NewDaemon(s.until, "gateway", s.version, s.started, s.reload.Load()),
		Listen:   s.addr.String(),
		Pin:      s.pin().String(),
		Warning:  strings.Join(g.sites.Missing(), "; "),
		Profiles: []string{g.cfg.MeshProfile.Name, g.cfg.Standard.Name},
		TCP:      s.conns.tcp.Load(),
	}
	st.Sent, st.Received = s.bytes()
	for protocol := range accesslog.Protocols {
		for class := range 6 {
			st.Requests += s.access.Requests(protocol, class)
		}
	}
	st.Connections, st.Live, st.Total = s.conns.reports()
	st.Origins = g.sites.Origins()
	st.Refused = s.admit.refusals()
	if len(g.relays) > 0 {
		stats := s.tunnel.Stats()
		st.Tunnels = &stats
	}
	return st
}

// A summary is a Status without the list of connections.
type summary struct {
	Status
	Connections *Connection `json:"connections,omitempty"` // hides the list
	Live        status.Sum  `json:"live"`
}

func (s *Server) summarize() summary {
	var c history.Counters // the status has not all connections
	s.conns.history(&c)
	return summary{Status: s.Status(), Live: c.Live}
}

// counters returns the history's counters: the sums over all connections since the
// start.
func (s *Server) counters() (c history.Counters) {
	c.Down, c.Up = s.bytes()
	s.conns.history(&c)
	return c
}

// bytes returns how many bytes sites and tunnels have sent to clients and received
// from them.
func (s *Server) bytes() (sent, received uint64) {
	sent, received = s.access.Bytes()
	t := s.tunnel.Stats()
	return sent + t.Down, received + t.Up
}

// writePeers writes the metrics of the configured peers.
func writePeers(w *metrics.Writer, peers []*tunnel.Peer) {
	for _, m := range []struct {
		begin      func(name, help string) *metrics.Writer
		name, help string
		of         func(*tunnel.Peer) uint64
	}{
		{w.Gauge, "bquic_peer_tunnels", "Open tunnels of the peer.", func(p *tunnel.Peer) uint64 { return uint64(p.Open) }},
		{w.Counter, "bquic_peer_tunnels_total", "Tunnels that the peer has opened since it was configured.", func(p *tunnel.Peer) uint64 { return p.Total }},
		{w.Counter, "bquic_peer_refused_total", "Tunnels refused to the peer.", func(p *tunnel.Peer) uint64 { return p.Refused }},
		{w.Counter, "bquic_peer_sent_bytes_total", "Bytes sent to the peer in tunnels.", func(p *tunnel.Peer) uint64 { return p.Down }},
		{w.Counter, "bquic_peer_received_bytes_total", "Bytes received from the peer in tunnels.", func(p *tunnel.Peer) uint64 { return p.Up }},
	} {
		m.begin(m.name, m.help)
		for _, p := range peers {
			w.Value(float64(m.of(p)), "peer", p.Name)
		}
	}
}

// metrics writes the metrics that docs/gateway.md lists.
func (s *Server) metrics(w *metrics.Writer) {
	w.Process("bquic", s.version, s.started, s.reload.Load().OK())
	w.Gauge("bquic_memory_limit_bytes", "Memory above which the gateway refuses new connections.").Value(float64(s.admit.ceiling.Load()))
	live, total := s.conns.count()
	w.Gauge("bquic_connections", "Open connections.").
		Value(float64(live), "transport", "quic").
		Value(float64(s.conns.tcp.Load()), "transport", "tcp")
	w.Counter("bquic_quic_connections_total", "QUIC connections since the start.").Value(float64(total))
	r := s.admit.refusals()
	w.Counter("bquic_connections_refused_total", "Refused connections.").
		Value(float64(r.Full), "reason", "full").
		Value(float64(r.Source), "reason", "source").
		Value(float64(r.Rate), "reason", "rate").
		Value(float64(r.Memory), "reason", "memory")
	w.Counter("bquic_connections_shed_total", "Connections that were closed because memory was short.").Value(float64(r.Shed))
	w.Counter("bquic_requests_refused_total", "Requests answered with 503 because there were too many at a time.").Value(float64(r.Requests))
	w.Counter("bquic_retries_total", "QUIC clients whose address was validated with a Retry packet first.").Value(float64(r.Retry))
	w.Counter("bquic_requests_total", "Requests for sites.")
	for protocol, name := range accesslog.Protocols {
		for class := 1; class <= 5; class++ {
			w.Value(float64(s.access.Requests(protocol, class)), "protocol", name, "code", strconv.Itoa(class)+"xx")
		}
	}
	w.Counter("bquic_access_log_dropped_total", "Access log lines dropped because the file was too slow.").Value(float64(s.access.Dropped()))
	sent, received := s.bytes()
	w.Counter("bquic_sent_bytes_total", "Bytes sent to clients for sites and tunnels, without headers.").Value(float64(sent))
	w.Counter("bquic_received_bytes_total", "Bytes received from clients for sites and tunnels, without headers.").Value(float64(received))
	t := s.tunnel.Stats()
	w.Gauge("bquic_tunnels", "Open tunnels of relays.").Value(float64(t.Open))
	w.Gauge("bquic_tunnels_limit", "Limit on open tunnels.").Value(float64(t.Places))
	w.Counter("bquic_tunnels_total", "Tunnels that relays have opened since the start.").Value(float64(t.Total))
	w.Counter("bquic_tunnels_denied_total", "Requests for tunnels without a valid token.").Value(float64(t.Denied))
	w.Gauge("bquic_uplink_up", "0: no target of the tunnels answers, and the gateway tells relays so.").Value(metrics.Flag(t.Uplink))
	writePeers(w, t.Peers)
	w.Gauge("bquic_origin_up", "1: the origin answered the last request.")
	for _, o := range s.now.Load().sites.Origins() {
		w.Value(metrics.Flag(o.Up), "origin", o.URL)
	}

	sums := s.conns.sums()
	names := slices.Sorted(maps.Keys(sums))
	for _, m := range []struct {
		name, help string
		of         func(status.Sum) uint64
	}{
		{"bquic_packets_sent_total", "Ack-eliciting QUIC packets sent.", func(t status.Sum) uint64 { return t.PacketsSent }},
		{"bquic_packets_lost_total", "Ack-eliciting QUIC packets sent and declared lost.", func(t status.Sum) uint64 { return t.PacketsLost }},
		{"bquic_packets_acked_total", "Ack-eliciting QUIC packets sent and acknowledged.", func(t status.Sum) uint64 { return t.PacketsAcked }},
		{"bquic_acks_received_total", "Acknowledgements received.", func(t status.Sum) uint64 { return t.AcksReceived }},
		{"bquic_packets_received_total", "Ack-eliciting QUIC packets received.", func(t status.Sum) uint64 { return t.PacketsReceived }},
		{"bquic_acks_sent_total", "Acknowledgements sent.", func(t status.Sum) uint64 { return t.AcksSent }},
	} {
		w.Counter(m.name, m.help)
		for _, name := range names {
			w.Value(float64(m.of(sums[name])), "profile", name)
		}
	}
}
