// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"
	"time"

	"bquic/internal/upstream"
)

const (
	// A client is busy if one of its connections has been given a session within justBegun, or if it has moved busyRate bytes a second since clients'
	// traffic was last looked at, lookEvery ago or more.
	justBegun = 2 * time.Second
	lookEvery = time.Second
	busyRate  = 16 << 10
)

// Queues on the way share a path between flows, and a session is one flow. So with a single one, all clients of a node would get as much of a path that
// other nodes' traffic fills as one download without the relay (lab/experiments/beside.py). If Config.Connections is 0, a gateway has MaxConnections
// sessions, but a single one when no client has been busy for restAfter.
const restAfter = 5 * time.Minute

// need tells the lineup which places are needed: of a gateway that is back and on trial, only the first. It calls leave for idle sessions of
// others.
func (g *gateways) need(now time.Time, leave func(s *session, reason string)) {
	if g.set.Connections > 0 { // all are
		return
	}
	if g.clients.busy(now) {
		g.busy = now
	}
	rest, tier := g.rests(now), g.tier(now)
	up, answers := false, false // a place before it of the same gateway
	for i, p := range g.places {
		first := i == 0 || p.gateway != g.places[i-1].gateway
		up, answers = up && !first, answers && !first
		g.lineup.Need(i, first || up && p.tier == tier && !rest)
		if p.session == nil {
			continue
		}
		state, _, streams := p.session.look()
		if rest && streams == 0 && (state == upstream.Up && up || state == upstream.NoUplink && answers) {
			leave(p.session, idle)
			p.session = nil
			g.lineup.Session(now, i, upstream.Closed)
			continue
		}
		up = up || state == upstream.Up
		answers = answers || up || state == upstream.NoUplink
	}
}

// rests reports whether clients need no further sessions.
func (g *gateways) rests(now time.Time) bool { return now.Sub(g.busy) >= restAfter }

// pick returns a session for a new connection, or nil, and assigns it to the client, if any, which releases it. Among the working gateways with the largest
// weight, it chooses the one whose session should deliver first, and of this gateway's sessions the first one of those that suit the client.
func (g *gateways) pick(cl *client) *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	up := g.candidates()
	if len(up) == 0 {
		return nil
	}
	g.turn++ // rotates among equal paths
	up = slices.Concat(up[g.turn%len(up):], up[:g.turn%len(up)])
	// A full gateway carries few of this relay's connections, and would seem the best.
	if free := slices.DeleteFunc(slices.Clone(up), func(s *session) bool { return !s.free() }); len(free) > 0 {
		up = free
	}
	if cl == nil {
		return first(up)
	}
	now := time.Now()
	if g.set.Connections == 0 {
		if g.rests(now) {
			g.kick() // for further sessions
		}
		gateway := first(up).gateway
		up = slices.DeleteFunc(slices.Clone(up), func(s *session) bool { return s.gateway != gateway })
		up = g.clients.suit(cl, up, now)
	}
	s := first(up)
	g.clients.assign(cl, s, now)
	return s
}

// first returns the session that should deliver a new connection's data first.
func first(sessions []*session) *session {
	if len(sessions) == 1 {
		return sessions[0]
	}
	paths := make([]upstream.Path, len(sessions))
	for i, s := range sessions {
		paths[i] = s.path()
	}
	return sessions[upstream.First(paths)]
}

// suit returns those of sessions that suit a client's next connection. Busy clients have equal parts of all sessions but one, which is there for the
// next client. A client's connections go to further sessions until it has its part, and where the fewest other clients are busy.
func (c *clients) suit(cl *client, sessions []*session, now time.Time) (best []*session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(now)
	busy, others := 1, make(map[*session]int)
	for _, other := range c.by {
		if other == cl || !other.busy(now) {
			continue
		}
		busy++
		for s := range other.on {
			others[s]++
		}
	}
	held := 0
	for _, s := range sessions {
		held += min(cl.on[s], 1)
	}
	further := held < max(1, (len(sessions)-1)/busy)
	least := 0
	for _, s := range sessions {
		own := cl.on[s]
		if further == (own > 0) {
			continue
		}
		cost := others[s]<<16 + own
		if len(best) == 0 || cost < least {
			best, least = best[:0], cost
		}
		if cost == least {
			best = append(best, s)
		}
	}
	return best
}

// assign records that a client's connection has been given a session; release records that the connection has ended.
func (c *clients) assign(cl *client, s *session, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.on == nil {
		cl.on = make(map[*session]int)
	}
	cl.on[s]++
	cl.begun = now
}

func (c *clients) release(cl *client, s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.on[s]--; cl.on[s] == 0 {
		delete(cl.on, s)
	}
}

// busy reports whether a client is busy.
func (c *clients) busy(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look(now)
	for _, cl := range c.by {
		if cl.busy(now) {
			return true
		}
	}
	return false
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

func (cl *client) busy(now time.Time) bool { return cl.loads || now.Sub(cl.begun) < justBegun }
