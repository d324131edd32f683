// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"
	"time"

	"bquic/internal/tunnel"
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
