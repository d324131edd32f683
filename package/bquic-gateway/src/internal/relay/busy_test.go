// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

// TestSuit checks that busy clients have equal parts of the sessions, that one is left for the next client, and that a client's connections spread
// over its part.
func TestSuit(t *testing.T) {
	var c clients
	var direct, carried tunnel.Bytes
	client := func(i byte) *client { return c.enter(netip.AddrFrom4([4]byte{10, 0, 0, i}), &carried, &direct) }
	sessions := make([]*session, 8)
	for i := range sessions {
		sessions[i] = new(session)
	}
	now := time.Unix(1000, 0)
	is := func(what string, i byte, want ...int) {
		t.Helper()
		for _, k := range want {
			cl := client(i)
			s := c.suit(cl, sessions, now)[0]
			c.assign(cl, s, now)
			if got := slices.Index(sessions, s); got != k {
				t.Errorf("%s: client %d is on session %d instead of %d", what, i, got, k)
			}
		}
	}
	ends := func(i byte, sessions ...*session) {
		for _, s := range sessions {
			c.release(client(i), s)
		}
	}
	load := func(i byte) { // for 10 s
		for range 10 {
			now = now.Add(time.Second)
			client(i).carried.FromStream.Add(1 << 20)
			if !c.busy(now) {
				t.Errorf("client %d is not busy", i)
			}
		}
	}
	is("a single client, and all sessions but one", 1, 0, 1, 2, 3, 4, 5, 6, 0, 1)
	is("a second one, first where no other is, then up to its part", 2, 7, 0, 1, 7)
	is("the first one, where the second one is not", 1, 2, 3, 4, 5, 6)
	is("a third one, up to a smaller part, where the fewest others are", 3, 2, 3, 2)
	load(1)
	ends(2, sessions[0], sessions[1], sessions[7], sessions[7])
	is("beside a single one that is still busy", 2, 7)
	ends(1, sessions...)
	is("a client whose connections have ended in part, where it still has some", 1, 0, 1)
	sessions = sessions[:2]
	is("fewer sessions", 2, 0)
	sessions = sessions[:1]
	is("a single session", 4, 0, 0)
	if now = now.Add(time.Minute); c.busy(now) {
		t.Error("a client is busy")
	}
}

// TestNeed checks how many sessions a gateway has: while a client is busy, when none has been for long, and on trial.
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
	busy := func(place int) {
		cl := g.clients.enter(netip.AddrFrom4([4]byte{10, 0, 0, 1}), new(tunnel.Bytes), new(tunnel.Bytes))
		g.clients.assign(cl, g.places[place].session, now)
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
	busy(0)
	dials("a client", "[1 2 3 4 5 6 7]")
	up(1, 2, 3, 4, 5)
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
	busy(MaxConnections)
	dials("one on trial", "[9 10 11 12 13 14 15]")

	up(9, 10) // it goes on without an uplink, each of whose sessions asks for it
	for _, i := range []int{MaxConnections, 9, 10} {
		g.places[i].session.health.Answered(now, upstream.Uplink, upstream.UplinkDown, "")
	}
	g.places[10].session.health.Opened(now)
	left, now = 0, now.Add(2*restAfter)
	dials("without an uplink, and without clients", "[]")
	if left != 1 || g.places[9].session != nil {
		t.Errorf("%d sessions have been left without an uplink", left)
	}
}

// severalSessions has a bench whose gateway has MaxConnections, of which none carries anything.
func severalSessions(t *testing.T, p *puppet) *bench {
	t.Helper()
	b := newBenchOf(t, 0, InOrder(p.address), p)
	b.awaitUse(p)
	b.pick(b.clients.enter(netip.MustParseAddr("10.0.0.1"), new(tunnel.Bytes), new(tunnel.Bytes)))
	b.await("further sessions", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.best()) == MaxConnections
	})
	return b
}

// TestSessionsTellEachOther has a gateway with several sessions that loses its uplink. What one of them learns from a client's connection, no other
// client's connection has to find out.
func TestSessionsTellEachOther(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	b := severalSessions(t, p)
	p.will(noUplink)
	asked, err := b.pick(nil).answered()
	if err == nil {
		t.Fatal("it has connected")
	}
	b.await("all sessions to know", func() bool { return !b.works() })
	if n := p.times("192.0.2.1:80"); n != asked {
		t.Errorf("%d connections have found out", n)
	}
}

// TestSessionsShareWhatIsKnown has a gateway with several sessions that has no place for a connection, or whose answers come too late. That holds for
// all of them.
func TestSessionsShareWhatIsKnown(t *testing.T) {
	t.Parallel()
	p := newPuppet(t)
	b := severalSessions(t, p)
	p.will(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == tunnel.ProbeTarget {
			fine(w, r)
			return
		}
		refuse(w, http.StatusServiceUnavailable, tunnel.LimitReached)
	})
	if _, err := b.pick(nil).answered(); err == nil || b.room() {
		t.Error("after a refusal, another session asks the same gateway")
	}
	b.mu.Lock()
	all := b.best()
	b.mu.Unlock()
	for i, target := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"} {
		if judge := all[i].late(netip.MustParseAddr(target)); judge != (i == lateNetworks-1) {
			t.Errorf("after %d late answers, each to another session: %v", i+1, judge)
		}
	}
}
