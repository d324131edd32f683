// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

const (
	// SessionGap: what a client opens at a server within so long of the first is a session.
	SessionGap = 5 * time.Second
	// maxYoung bounds the sessions that flows can join. Without room, the oldest takes no more.
	maxYoung = 64
	// maxWaits bounds the waits that a session tells apart. Without room, the two that are closest become one.
	maxWaits = 8
)

// A Session is what one client opens at one server at a time, which mostly is a page load. Its flows
// go one way: half a page by each would compare nothing. nil is the session of what is in no group.
type Session struct {
	ticket         Ticket
	client, server netip.Addr
	began          time.Time
	young          bool // flows can join
	flows, open    int
	bytes          [Classes]uint64 // for the client
	waits          []wait          // of the client, for any of its flows; apart, and in order
}

// A wait is from a time to another, both since the session began.
type wait struct{ from, to time.Duration }

// Arm is what is to become of its flows.
func (s *Session) Arm() Arm {
	if s == nil {
		return Carried
	}
	return s.ticket.Arm
}

// Ticket is what was drawn for it.
func (s *Session) Ticket() Ticket { return s.ticket }

// Measured says that its flows' ends matter: they are to be opened and closed.
func (s *Session) Measured() bool { return s != nil && s.ticket.Measured }

// Waited notes that the client has waited for something of a flow.
func (s *Session) Waited(from, to time.Time) {
	w := wait{max(from.Sub(s.began), 0), to.Sub(s.began)}
	if w.to <= w.from {
		return
	}
	i, _ := slices.BinarySearchFunc(s.waits, w, func(a, b wait) int { return cmp.Compare(a.from, b.from) })
	s.waits = slices.Insert(s.waits, i, w)
	joined := s.waits[:1]
	for _, w := range s.waits[1:] {
		if last := &joined[len(joined)-1]; w.from <= last.to {
			last.to = max(last.to, w.to)
		} else {
			joined = append(joined, w)
		}
	}
	s.waits = joined
	if len(joined) > maxWaits {
		least := 1
		for i := 2; i < len(joined); i++ {
			if joined[i].from-joined[i-1].to < joined[least].from-joined[least-1].to {
				least = i
			}
		}
		joined[least-1].to = joined[least].to
		s.waits = slices.Delete(joined, least, least+1)
	}
}

// outcome is what became of all, and the class of most of its bytes.
func (s *Session) outcome() (bytes uint64, all time.Duration, class Class) {
	for c, n := range s.bytes {
		bytes += n
		if n > s.bytes[class] {
			class = Class(c)
		}
	}
	for _, w := range s.waits {
		all += w.to - w.from
	}
	return bytes, all, class
}

// Sessions puts flows together (Manzoor 2019, algorithm 1, whose key has the server's name as well: that would be
// a look into the flow). It is not safe for concurrent use.
type Sessions struct {
	young []*Session // oldest first
}

// Join returns the session of a flow that is about to begin. draw is called for the first of one.
// It is nil where that is in no group, and carried.
func (s *Sessions) Join(now time.Time, client, server netip.Addr, draw func() Ticket) *Session {
	for _, x := range slices.Backward(s.young) {
		if x.client == client && x.server == server && now.Sub(x.began) <= SessionGap {
			return x
		}
	}
	t := draw()
	if t == (Ticket{}) {
		return nil
	}
	x := &Session{ticket: t, client: client, server: server, began: now, young: true, waits: make([]wait, 0, maxWaits+1)}
	s.young = append(s.young, x)
	return x
}

// Open notes that a flow begins, and says whether it is the first of its session.
func (s *Session) Open() (first bool) {
	s.flows++
	s.open++
	return s.flows == 1
}

// A Flow is the record of a connection: its streams' bytes, and the packets that bore them. It does not have its duration:
// that is what the way decides, and it tells classes no better (lab/experiments/flows.py).
type Flow struct {
	ClientBytes, ServerBytes     uint64 // from the client, and for it
	ClientPackets, ServerPackets uint32
}

// Close notes that a flow has ended, and says whether the session is over by that. A flow of which nothing is known has
// an empty record.
func (s *Session) Close(f Flow) (over bool) {
	s.open--
	s.bytes[f.Class()] += f.ServerBytes
	return s.over()
}

// RecordSession notes a session that is over. One without an answer has no time; that its connections had none is counted.
func (p *Proof) RecordSession(s *Session) {
	w, half, ok := p.of(s.ticket)
	s.ticket.Measured = false // what was about to join it comes too late
	bytes, all, class := s.outcome()
	if !ok || bytes == 0 {
		return
	}
	c := &w.sessions[half][sizeOf(bytes)][class][s.ticket.Arm]
	c.n++
	c.by.add(c.n, logOf(all))
}

// over says that no flow is open, and none can join.
func (s *Session) over() bool { return !s.young && s.open == 0 && s.flows > 0 }

// Age lets no more flows join those that are old enough. It returns what is over by that.
func (s *Sessions) Age(now time.Time) (over []*Session) {
	old := max(len(s.young)-maxYoung, 0)
	for old < len(s.young) && now.Sub(s.young[old].began) > SessionGap {
		old++
	}
	for _, x := range s.young[:old] {
		x.young = false
		if x.over() {
			over = append(over, x)
		}
	}
	s.young = slices.Delete(s.young, 0, old)
	return over
}
