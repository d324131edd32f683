// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/tunnel"
)

type counter struct {
	now   atomic.Int64
	total atomic.Uint64
	bytes tunnel.Bytes
}

// A Status is the state of a relay.
type Status struct {
	Gateway     string             `json:"gateway"`  // of new connections, or the last one
	Gateways    []GatewayStatus    `json:"gateways"` // in order of preference
	State       string             `json:"state"`    // "up" or "away"
	Since       time.Time          `json:"since"`
	Taking      bool               `json:"taking"` // new connections; else the kernel forwards them
	LastError   string             `json:"last_error,omitempty"`
	Carried     Count              `json:"carried"`
	Direct      Count              `json:"direct"`
	Refused     uint64             `json:"refused"` // by the gateway, for their target
	UDP         FlowStatus         `json:"udp"`
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

// A GatewayStatus is the state of a gateway: "up" with a session, "away" when the
// last attempt failed, else "unused".
type GatewayStatus struct {
	Address string `json:"address"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"`
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
	Remote  string          `json:"remote"`
	Since   time.Time       `json:"since"`
	Healthy bool            `json:"healthy"`
	Streams int64           `json:"streams"`
	RTT     time.Duration   `json:"rtt_ns"`
	Burst   quic.BurstStats `json:"burst"`
}

// Status tells what the relay is doing.
func (r *Relay) Status() Status {
	st := Status{
		State:       "away",
		Carried:     r.carried.status(),
		Direct:      r.direct.status(),
		Refused:     r.refused.Load(),
		Connections: []ConnectionStatus{},
	}
	r.mu.Lock()
	st.LastError, st.Gateway = r.problem, r.using
	set := r.now.Load()
	if st.Gateway == "" {
		st.Gateway = set.Gateways[0]
	}
	for _, gateway := range set.Gateways {
		g := GatewayStatus{Address: gateway, State: "unused"}
		if k := r.known[gateway]; k != nil && k.problem != "" {
			g.State, g.Error = "away", k.problem
		}
		for i := range r.sessions {
			if s := r.sessions[i].Load(); s != nil && s.gateway == gateway && s.healthy() {
				g.State, g.Error = "up", ""
			}
		}
		st.Gateways = append(st.Gateways, g)
	}
	if r.up {
		st.State = "up"
	}
	st.Since, st.Taking = r.since, r.taking && r.room()
	r.mu.Unlock()
	st.UDP = FlowStatus{r.flows.now(), r.flows.total.Load(), r.flows.lost.Load()}
	st.Clients, st.Others = r.clients.status()
	for i := range r.sessions {
		if s := r.sessions[i].Load(); s != nil {
			st.Connections = append(st.Connections, ConnectionStatus{
				Remote:  fmt.Sprint(s.conn.RemoteAddr()),
				Since:   s.since,
				Healthy: s.healthy(),
				Streams: s.streams.Load(),
				RTT:     s.conn.ConnectionStats().SmoothedRTT,
				Burst:   s.conn.BurstStats(),
			})
		}
	}
	return st
}

func (c *counter) status() Count {
	return Count{c.now.Load(), c.total.Load(), c.bytes.ToStream.Load(), c.bytes.FromStream.Load()}
}
