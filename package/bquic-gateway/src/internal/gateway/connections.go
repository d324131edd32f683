// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/history"
	"bquic/internal/site"
	"bquic/internal/status"
	"bquic/internal/tunnel"
)

const (
	maxShown  = 256 // live connections shown in a status
	maxClosed = 32  // closed connections kept for the status
)

// connections holds the live QUIC connections and the last closed ones.
type connections struct {
	mu     sync.Mutex
	total  uint64
	ended  map[string]status.Sum // sums of the closed connections, by profile
	live   map[uint64]*connection
	closed []Connection // the last maxClosed, oldest first

	tcp atomic.Int64 // without connections that became WebSocket tunnels
}

// sums returns the sums of all connections since the start, by profile.
func (cs *connections) sums() map[string]status.Sum {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	sums := maps.Clone(cs.ended)
	if sums == nil {
		sums = make(map[string]status.Sum)
	}
	for _, c := range cs.live {
		t := sums[c.profile]
		t.Add(c.conn.BurstStats())
		sums[c.profile] = t
	}
	return sums
}

// history adds all connections since the start to the history's counters.
func (cs *connections) history(c *history.Counters) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, t := range cs.ended {
		c.Packets += t.PacketsAcked + t.PacketsReceived
		c.Acks += t.AcksReceived + t.AcksSent
	}
	for _, live := range cs.live {
		c.Live.Add(live.conn.BurstStats())
	}
}

type connection struct {
	id       uint64
	conn     *quic.Conn
	profile  string
	since    time.Time
	received uint64    // packets, when silent last saw a new one
	heard    time.Time // when that was
}

func (cs *connections) open(conn *quic.Conn, profile string) *connection {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.total++
	c := &connection{id: cs.total, conn: conn, profile: profile, since: time.Now()}
	if cs.live == nil {
		cs.live = make(map[uint64]*connection)
	}
	cs.live[c.id] = c
	return c
}

func (cs *connections) close(c *connection) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.live, c.id)
	final := c.report()
	final.Closed = true
	if cs.ended == nil {
		cs.ended = make(map[string]status.Sum)
	}
	t := cs.ended[c.profile]
	t.Add(final.TransportStats)
	cs.ended[c.profile] = t
	if len(cs.closed) == maxClosed {
		cs.closed = slices.Delete(cs.closed, 0, 1)
	}
	cs.closed = append(cs.closed, final)
}

// silent returns the live connections that have sent nothing for some time. It sees what they send only when it is called.
func (cs *connections) silent(now time.Time, long time.Duration) (conns []*quic.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.live {
		if received := c.conn.ConnectionStats().PacketsReceived; received != c.received {
			c.received, c.heard = received, now
		}
		if now.Sub(c.heard) >= long {
			conns = append(conns, c.conn)
		}
	}
	return conns
}

// tcpState counts connections of the TCP side (http.Server.ConnState).
func (cs *connections) tcpState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		cs.tcp.Add(1)
	case http.StateClosed, http.StateHijacked:
		cs.tcp.Add(-1)
	}
}

// A Status is what `bquic status` shows.
type Status struct {
	status.Daemon
	Listen      string              `json:"listen"`
	Pin         string              `json:"pin"`
	Warning     string              `json:"warning,omitempty"` // sites that are not served
	Profiles    []string            `json:"profiles"`          // for mesh clients, then for all others
	Live        int                 `json:"connections_live"`
	Total       uint64              `json:"connections_total"`
	TCP         int64               `json:"connections_tcp"`
	Requests    uint64              `json:"requests"`
	Sent        uint64              `json:"sent"`     // bytes to clients, without headers, since the start
	Received    uint64              `json:"received"` // from clients
	Refused     Refusals            `json:"refused"`
	Origins     []site.OriginStatus `json:"origins,omitempty"`
	Connections []Connection        `json:"connections"` // live ones, newest first, then closed ones

	Tunnels *tunnel.Stats `json:"tunnels,omitempty"`
}

// A Connection is one QUIC connection.
type Connection struct {
	ID       uint64  `json:"id"`
	Remote   string  `json:"remote"`
	Profile  string  `json:"profile"`
	Protocol string  `json:"protocol"`
	Since    float64 `json:"since_s"` // seconds: its age or, once closed, how long it lasted
	Closed   bool    `json:"closed"`
	// DataPerAck is the number of data packets per ACK received.
	DataPerAck     float64         `json:"data_per_ack"`
	IPTBelow100us  float64         `json:"ipt_below_100us"`
	TransportStats quic.BurstStats `json:"stats"`
}

func (c *connection) report() Connection {
	stats := c.conn.BurstStats()
	return Connection{
		ID:             c.id,
		Remote:         c.conn.RemoteAddr().String(),
		Profile:        c.profile,
		Protocol:       "h3",
		Since:          time.Since(c.since).Seconds(),
		DataPerAck:     stats.DataPerAckReceived(),
		IPTBelow100us:  stats.ShareBelow100us(),
		TransportStats: stats,
	}
}

// count returns how many connections are live, and how many there were since the start.
func (cs *connections) count() (live int, total uint64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.live), cs.total
}

// reports returns the connections to show, how many are live, and how many there were
// since the start.
func (cs *connections) reports() (shown []Connection, live int, total uint64) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cons := make([]*connection, 0, len(cs.live))
	for _, c := range cs.live {
		cons = append(cons, c)
	}
	slices.SortFunc(cons, func(a, b *connection) int { return cmp.Compare(b.id, a.id) })
	cons = cons[:min(len(cons), maxShown)]
	shown = make([]Connection, 0, len(cons)+len(cs.closed))
	for _, c := range cons {
		shown = append(shown, c.report())
	}
	for _, c := range slices.Backward(cs.closed) {
		shown = append(shown, c)
	}
	return shown, len(cs.live), cs.total
}
