// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"slices"
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
	Gateway  string          `json:"gateway"`  // the first gateway for new connections; if there is none, the last one used
	Gateways []GatewayStatus `json:"gateways"` // in order of preference
	State    string          `json:"state"`    // StateUp or StateAway
	Since    time.Time       `json:"since"`
	Taking   bool            `json:"taking"` // new connections are taken; else the kernel forwards them
	// Unseen is set if clients are busy but the relay sees none of their connections, or none that it takes arrives.
	Unseen      *Unseen            `json:"unseen,omitempty"`
	BridgePorts []string           `json:"bridge_ports,omitempty"` // ports by which bridged connections leave
	LastError   string             `json:"last_error,omitempty"`
	Carried     Count              `json:"carried"`
	Direct      Count              `json:"direct"`
	Limit       int                `json:"limit"`   // of carried and direct connections at a time; the kernel forwards the others
	Refused     uint64             `json:"refused"` // connections whose target the gateway refused
	Late        uint64             `json:"late"`    // connections that went direct after answerTimeout, in which the gateway did not answer
	Avoided     int                `json:"avoided"` // targets that the gateway does not reach: the kernel forwards connections to them
	Processor   processor.Status   `json:"processor"`
	UDP         FlowStatus         `json:"udp"`
	Proof       proof.Report       `json:"proof"` // comparison of carried and direct connections
	Connections []ConnectionStatus `json:"connections"`
	Clients     []ClientStatus     `json:"clients"` // latest first
	// Others is the sum of all clients beyond maxClients.
	Others ClientStatus `json:"others"`
}

// A FlowStatus counts UDP flows.
type FlowStatus struct {
	Now   int    `json:"now"`
	Total uint64 `json:"total"`
	Lost  uint64 `json:"lost"` // datagrams dropped for lack of room
}

// States of a gateway.
const (
	StateUp       = "up"        // carries connections, or would
	StateNoUplink = "no uplink" // answers, but does not reach the Internet
	StateAway     = "away"      // does not answer, or the last attempt to connect failed
	StateUnused   = "unused"    // not contacted
)

// A GatewayStatus is the state of a gateway.
type GatewayStatus struct {
	Address string `json:"address"`
	Weight  int    `json:"weight"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"`
	Streams int    `json:"streams"` // connections and flows that it carries
}

// A Count counts TCP connections and their bytes.
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
	State   string          `json:"state"`   // name of the upstream.State
	Streams int             `json:"streams"`
	RTT     time.Duration   `json:"rtt_ns"`
	Burst   quic.BurstStats `json:"burst"`
}

// Status returns the relay's current status.
func (r *Relay) Status() Status {
	st := Status{
		Carried: r.carried.status(),
		Direct:  r.direct.status(),
		Limit:   r.now.Load().Limit,
		Refused: r.refused.Load(),
		Late:    r.late.Load(),
		Avoided: r.avoided.count(time.Now()) + r.flows.avoided.count(time.Now()),

		Processor: r.load.status(),
	}
	r.gateways.status(&st)
	st.Proof = r.comparison.report()
	_, paused := r.expected.paused(time.Now())
	r.mu.Lock()
	st.Taking = r.taking && r.room() && !paused && !r.ending.Load()
	st.Unseen, st.BridgePorts = r.blind, portNames(r.world.Ports)
	r.mu.Unlock()
	st.UDP = FlowStatus{r.flows.now(), r.flows.total.Load(), r.flows.lost.Load()}
	st.Clients, st.Others = r.clients.status()
	return st
}

// Counters returns the history's counters, of carried connections and of current sessions.
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
		Since:   time.Now().Add(-time.Since(s.since)).Truncate(time.Second), // the clock may have been set since
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

// gateway returns the state of a gateway.
func (g *gateways) gateway(u Upstream) GatewayStatus {
	st := GatewayStatus{Address: u.Gateway, Weight: u.Weight, State: StateUnused}
	if k := g.known[u.Gateway]; k != nil && k.problem != "" {
		st.State, st.Error = StateAway, k.problem
	}
	for _, p := range g.places {
		if p.session == nil || p.gateway != u.Gateway {
			continue
		}
		switch state, reason, _ := p.session.look(); {
		case state == upstream.Up:
			st.State, st.Error = StateUp, ""
			if g.of(u.Gateway).itself {
				st.Error = itselfReason
			} else if p.session.full() {
				st.Error = fullReason
			} else if !p.session.free() {
				st.Error = slowReason
			}
		case st.State == StateUp:
		case state == upstream.NoUplink:
			st.State, st.Error = StateNoUplink, reason
		case state == upstream.Silent:
			st.State, st.Error = StateAway, reason
		}
	}
	for _, s := range g.all() {
		if s.gateway == u.Gateway {
			_, _, streams := s.look()
			st.Streams += streams
		}
	}
	if st.State == StateAway && slices.Contains(g.used(), u.Gateway) {
		st.State, st.Error = StateUp, formerReason+st.Error
	}
	return st
}

// status fills in the status of the gateways.
func (g *gateways) status(st *Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st.Gateway, st.State, st.LastError = g.last, StateAway, g.problem
	st.Since = time.Now().Add(-time.Since(g.since)).Truncate(time.Second) // the clock may have been set since
	if g.using != "" {
		st.State = StateUp
	}
	if st.Gateway == "" {
		st.Gateway = g.set.Gateways[0].Gateway
	}
	st.Connections = []ConnectionStatus{}
	for _, u := range g.set.Gateways {
		st.Gateways = append(st.Gateways, g.gateway(u))
	}
	for _, s := range g.all() {
		st.Connections = append(st.Connections, s.status())
	}
}

// count adds the sessions to the history's counters.
func (g *gateways) count(c *history.Counters) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.all() {
		c.Live.Add(s.conn.BurstStats())
	}
}
