// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/history"
	"bquic/internal/processor"
	"bquic/internal/proof"
	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

type counter struct {
	now   atomic.Int64
	total atomic.Uint64
	bytes tunnel.Bytes
}

// A Status is the state of a relay.
type Status struct {
	Gateway  string          `json:"gateway"`  // of new connections, the first of several, or the last one
	Gateways []GatewayStatus `json:"gateways"` // in order of preference
	State    string          `json:"state"`    // StateUp or StateAway
	Since    time.Time       `json:"since"`
	Taking   bool            `json:"taking"` // new connections; else the kernel forwards them
	// Unseen is given when clients are busy, and the relay has seen no connection of theirs.
	Unseen      *Unseen            `json:"unseen,omitempty"`
	BridgePorts []string           `json:"bridge_ports,omitempty"` // that bridged connections leave by
	LastError   string             `json:"last_error,omitempty"`
	Carried     Count              `json:"carried"`
	Direct      Count              `json:"direct"`
	Refused     uint64             `json:"refused"` // by the gateway, for their target
	Processor   processor.Status   `json:"processor"`
	UDP         FlowStatus         `json:"udp"`
	Proof       proof.Report       `json:"proof"` // carried connections against direct ones
	Connections []ConnectionStatus `json:"connections"`
	Clients     []ClientStatus     `json:"clients"` // latest first
	// Others sums the clients beyond maxClients.
	Others ClientStatus `json:"others"`
}

// A FlowStatus counts flows of UDP.
type FlowStatus struct {
	Now   int    `json:"now"`
	Total uint64 `json:"total"`
	Lost  uint64 `json:"lost"` // datagrams for which there was no room
}

// States of a gateway.
const (
	StateUp       = "up"        // it would carry connections
	StateNoUplink = "no uplink" // it is there, and says that it reaches nothing
	StateAway     = "away"      // it does not answer, or the last attempt to connect failed
	StateUnused   = "unused"    // it was not asked
)

// A GatewayStatus is the state of a gateway.
type GatewayStatus struct {
	Address string `json:"address"`
	Weight  int    `json:"weight"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"`
	Streams int    `json:"streams"` // connections and flows that it carries
}

// A Count is of TCP connections.
type Count struct {
	Now   int64  `json:"now"`
	Total uint64 `json:"total"`
	Up    uint64 `json:"up_bytes"`
	Down  uint64 `json:"down_bytes"`
}

// A ConnectionStatus is the state of a QUIC connection to the gateway.
type ConnectionStatus struct {
	Gateway string          `json:"gateway"`
	Remote  string          `json:"remote"`
	Since   time.Time       `json:"since"`
	Healthy bool            `json:"healthy"` // takes new connections
	State   string          `json:"state"`   // as upstream.State has it
	Streams int             `json:"streams"`
	RTT     time.Duration   `json:"rtt_ns"`
	Burst   quic.BurstStats `json:"burst"`
}

// Status tells what the relay is doing.
func (r *Relay) Status() Status {
	st := Status{
		Carried: r.carried.status(),
		Direct:  r.direct.status(),
		Refused: r.refused.Load(),

		Processor: r.load.status(),
	}
	r.gateways.status(&st)
	st.Proof = r.comparison.report()
	r.mu.Lock()
	st.Taking = r.taking && r.room()
	st.Unseen, st.BridgePorts = r.blind, portNames(r.world.Ports)
	r.mu.Unlock()
	st.UDP = FlowStatus{r.flows.now(), r.flows.total.Load(), r.flows.lost.Load()}
	st.Clients, st.Others = r.clients.status()
	return st
}

// Counters are for the history: of what is carried, and of the sessions that there are.
func (r *Relay) Counters() (c history.Counters) {
	carried := r.carried.status()
	c.Down, c.Up = carried.Down, carried.Up
	r.gateways.count(&c)
	return c
}

func (s *session) status() ConnectionStatus {
	state, _, streams := s.look()
	return ConnectionStatus{
		Gateway: s.gateway,
		Remote:  fmt.Sprint(s.conn.RemoteAddr()),
		Since:   s.since,
		Healthy: state == upstream.Up,
		State:   state.String(),
		Streams: streams,
		RTT:     s.conn.ConnectionStats().SmoothedRTT,
		Burst:   s.conn.BurstStats(),
	}
}

func (c *counter) status() Count {
	return Count{c.now.Load(), c.total.Load(), c.bytes.ToStream.Load(), c.bytes.FromStream.Load()}
}
