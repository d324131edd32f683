// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"bquic/internal/upstream"
)

const (
	// A client is busy if it has been given a session within justBegun, or has moved busyRate bytes a second since clients' traffic was last
	// looked at, lookEvery ago or more.
	justBegun = 2 * time.Second
	lookEvery = time.Second
	busyRate  = 16 << 10
)

// Queues on the way share a path between flows, and a session is one flow. So with a single one, all clients of a node would get as much of a path that
// other nodes' traffic fills as one download without the relay (lab/experiments/beside.py). If Config.Connections is 0, a gateway has at least
// leastSessions, and one more than there are busy clients, but a single one when no client has been busy for restAfter.
const (
	leastSessions = 4
	restAfter     = 5 * time.Minute
)

// need tells the lineup which places are needed: of a gateway that is back and on trial, only the first. It calls leave for idle sessions of
// others.
func (g *gateways) need(now time.Time, leave func(s *session, reason string)) {
	if g.set.Connections > 0 { // all are
		return
	}
	busy := g.clients.busy(now)
	if busy > 0 {
		g.busy = now
	}
	rest, tier := g.rests(now), g.tier(now)
	up, n := 0, 0 // places of the same gateway
	for i, p := range g.places {
		if i == 0 || p.gateway != g.places[i-1].gateway {
			up, n = 0, 0
		}
		g.lineup.Need(i, n == 0 || up > 0 && p.tier == tier && !rest && n < max(busy+1, leastSessions))
		n++
		if !p.up() {
			continue
		}
		if _, _, streams := p.session.look(); rest && up > 0 && streams == 0 {
			leave(p.session, idle)
			p.session = nil
			g.lineup.Session(now, i, upstream.Closed)
		} else {
			up++
		}
	}
}

// rests reports whether no client needs a session of its own.
func (g *gateways) rests(now time.Time) bool { return now.Sub(g.busy) >= restAfter }

// suit returns those of sessions that suit a client: a busy client stays where it is, another one goes where the fewest clients are busy.
func (c *clients) suit(cl *client, sessions []*session, now time.Time) (best []*session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(now)
	busy := make([]int, len(sessions))
	least := len(c.by)
	for i, s := range sessions {
		if s == cl.on && cl.busy(now) {
			return []*session{s}
		}
		for _, other := range c.by {
			if other != cl && other.on == s && other.busy(now) {
				busy[i]++
			}
		}
		least = min(least, busy[i])
	}
	for i, s := range sessions {
		if busy[i] == least {
			best = append(best, s)
		}
	}
	return best
}

// put records that a client has been given a session.
func (c *clients) put(cl *client, s *session, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.on, cl.begun = s, now
}

// busy returns the number of busy clients.
func (c *clients) busy(now time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(now)
	for _, cl := range c.by {
		if cl.busy(now) {
			n++
		}
	}
	return n
}

// look updates how much the clients have moved.
func (c *clients) look(now time.Time) {
	took := now.Sub(c.looked)
	if took < lookEvery {
		return
	}
	c.looked = now
	enough := busyRate * uint64(took/lookEvery)
	for _, cl := range c.by {
		moved := cl.carried.ToStream.Load() + cl.carried.FromStream.Load()
		cl.loads = moved-cl.moved >= enough
		cl.moved = moved
	}
}

func (cl *client) busy(now time.Time) bool {
	return cl.on != nil && (cl.loads || now.Sub(cl.begun) < justBegun)
}
