// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"bquic/internal/tunnel"
)

// maxClients is the limit on clients that are counted individually and have a number.
const maxClients = math.MaxUint8

// clients counts the traffic of each client since the start.
type clients struct {
	mu     sync.Mutex
	by     map[netip.Addr]*client
	taken  [maxClients + 1]bool // numbers in use
	rest   client               // all clients without a place
	others ClientStatus
	looked time.Time // when all clients' traffic was last looked at
}

type client struct {
	addr    netip.Addr
	number  uint8     // unique among clients with a place; 0: no place
	now     int       // connections
	last    time.Time // when a connection last began or ended
	carried tunnel.Bytes
	direct  tunnel.Bytes

	on    map[*session]int // its connections with each session
	begun time.Time        // when one was last given a session
	moved uint64           // bytes carried when its traffic was last looked at
	loads bool             // it had moved much since the time before
}

// A ClientStatus is a client's traffic, in bytes without headers.
type ClientStatus struct {
	Address     string `json:"address,omitempty"`
	Connections int    `json:"connections"`
	Sent        uint64 `json:"sent"`     // by the client
	Received    uint64 `json:"received"` // by the client
	Direct      uint64 `json:"direct"`   // the part of Received that was not carried
}

// enter records the start of a client's connection; leave records its end. Traffic of the
// client also counts in carried and direct.
func (c *clients) enter(addr netip.Addr, carried, direct *tunnel.Bytes) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[netip.Addr]*client)
		c.rest.carried.Under(carried)
		c.rest.direct.Under(direct)
	}
	cl := c.by[addr]
	if cl == nil && len(c.by) >= maxClients && !c.forget() {
		cl = &c.rest
	} else if cl == nil {
		cl = &client{addr: addr, number: c.free()}
		cl.carried.Under(carried)
		cl.direct.Under(direct)
		c.by[addr] = cl
	}
	cl.now++
	cl.last = time.Now()
	return cl
}

func (c *clients) leave(cl *client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.now--
	cl.last = time.Now()
}

// free allocates an unused number.
func (c *clients) free() uint8 {
	n := 1 + slices.Index(c.taken[1:], false)
	c.taken[n] = true
	return uint8(n)
}

// forget frees a place. It moves the client that has been without a connection longest to
// the others.
func (c *clients) forget() bool {
	var oldest *client
	for _, cl := range c.by {
		if cl.now == 0 && (oldest == nil || cl.last.Before(oldest.last)) {
			oldest = cl
		}
	}
	if oldest == nil {
		return false
	}
	c.others.add(oldest)
	delete(c.by, oldest.addr)
	c.taken[oldest.number] = false
	return true
}

func (s *ClientStatus) add(cl *client) {
	s.Connections += cl.now
	s.Sent += cl.carried.ToStream.Load() + cl.direct.ToStream.Load()
	direct := cl.direct.FromStream.Load()
	s.Received += cl.carried.FromStream.Load() + direct
	s.Direct += direct
}

// status returns the clients, latest first, and the sum of all clients without a place.
func (c *clients) status() (shown []ClientStatus, others ClientStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*client, 0, len(c.by))
	for _, cl := range c.by {
		all = append(all, cl)
	}
	slices.SortFunc(all, func(a, b *client) int {
		if n := b.last.Compare(a.last); n != 0 {
			return n
		}
		return a.addr.Compare(b.addr)
	})
	shown = make([]ClientStatus, 0, len(all))
	for _, cl := range all {
		st := ClientStatus{Address: cl.addr.String()}
		st.add(cl)
		shown = append(shown, st)
	}
	others = c.others
	others.add(&c.rest)
	return shown, others
}
