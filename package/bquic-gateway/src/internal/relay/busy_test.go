// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

// TestSuit checks that each busy client has a session of its own, as long as there are enough, and stays there.
func TestSuit(t *testing.T) {
	var c clients
	var direct, carried tunnel.Bytes
	client := func(i byte) *client { return c.enter(netip.AddrFrom4([4]byte{10, 0, 0, i}), &carried, &direct) }
	sessions := []*session{new(session), new(session), new(session)}
	now := time.Unix(1000, 0)
	assign := func(i byte) int {
		cl := client(i)
		s := c.suit(cl, sessions, now)[0]
		c.put(cl, s, now)
		for k := range sessions {
			if sessions[k] == s {
				return k
			}
		}
		t.Fatal("another session")
		return 0
	}
	is := func(what string, i byte, want int) {
		t.Helper()
		if got := assign(i); got != want {
			t.Errorf("%s: client %d is on session %d instead of %d", what, i, got, want)
		}
	}
	is("the first client", 1, 0)
	is("a second one", 2, 1)
	is("the first one again", 1, 0)
	is("a third one", 3, 2)
	is("more clients than sessions", 4, 0)
	for range 10 { // clients 2 and 3 load, the others do nothing more
		now = now.Add(time.Second)
		client(2).carried.FromStream.Add(1 << 20)
		client(3).carried.ToStream.Add(1 << 20)
		c.busy(now)
	}
	if n := c.busy(now); n != 2 {
		t.Errorf("%d clients are busy", n)
	}
	is("a busy client", 2, 1)
	is("a busy client that sends", 3, 2)
	is("a client that begins beside them", 5, 0)
	is("a client that was idle, where each session has a busy one", 1, 0)
	sessions = sessions[:2]
	is("a busy client whose session has gone", 3, 1)
}

// TestNeed checks how many sessions a gateway has: by how many clients are busy, when none has been for long, and on trial.
func TestNeed(t *testing.T) {
	now := time.Unix(1000, 0)
	tiers := make([]int, 2*MaxConnections)
	g := &gateways{set: &settings{}, clients: new(clients)}
	for i := range tiers {
		tiers[i] = i / MaxConnections
		g.places = append(g.places, &place{gateway: string(rune('a' + tiers[i])), tier: tiers[i]})
	}
	g.lineup = upstream.NewLineup(now, tiers, func() float64 { return 0.5 })
	up := func(places ...int) {
		for _, i := range places {
			s := &session{health: upstream.NewSession(now)}
			s.health.Answered(now, upstream.Uplink, upstream.Fine, "")
			g.places[i].session = s
			g.lineup.Dialled(i)
			g.lineup.Session(now, i, upstream.Up)
		}
	}
	busy := func(clients, place int) {
		for i := range clients {
			cl := g.clients.enter(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), new(tunnel.Bytes), new(tunnel.Bytes))
			g.clients.put(cl, g.places[place].session, now)
		}
	}
	left := 0
	dials := func(what, want string) {
		t.Helper()
		g.need(now, func(*session, string) { left++ })
		if dial, _ := g.lineup.Decide(now); fmt.Sprint(dial) != want {
			t.Errorf("%s: dials for %v instead of %s", what, dial, want)
		}
	}
	dials("at first", "[0]")
	up(0)
	dials("without clients", "[]")
	busy(1, 0)
	dials("a client", "[1 2 3]")
	up(1, 2, 3)
	busy(5, 0)
	dials("five clients", "[4 5]")
	up(4, 5)
	g.places[2].session.health.Opened(now)
	now = now.Add(2 * restAfter)
	dials("without clients again", "[]")
	if left != 4 || !g.places[0].up() || !g.places[2].up() {
		t.Errorf("%d sessions have been left", left)
	}

	for i := range MaxConnections { // the gateway fails for a minute
		g.places[i].session = nil
		g.lineup.Session(now, i, upstream.Closed)
	}
	up(MaxConnections)
	now = now.Add(time.Minute)
	up(0)
	busy(1, MaxConnections)
	dials("one on trial", "[9 10 11]")
}
