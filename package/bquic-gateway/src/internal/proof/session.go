// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// SessionGap: connections that a client opens to a server within this time of the first are a session.
	SessionGap = 5 * time.Second
	// sessionQuiet: a session accepts no more flows once its client has waited for none of them for that long. A person seldom
	// opens another page sooner, and a browser has mostly opened the connections that a page needs. While data is on its way, the client waits.
	sessionQuiet = 500 * time.Millisecond
	// maxIdle bounds the flows that are asked for that: the last ones.
	maxIdle = 16
	// maxYoung bounds the sessions that flows can join. Without room, the oldest accepts no more flows.
	maxYoung = 64
	// maxWaits bounds the separate waits of a session. Without room, the first one is only counted.
	maxWaits = 8
)

// A Session is the set of flows that one client opens to one server at about the same time, usually a
// page load. All its flows go the same way: a page split between both ways would compare nothing. nil
// is the session of flows in no group.
type Session struct {
	ticket         Ticket
	client, server netip.Addr
	began, joined  time.Time
	young          bool                   // flows can join
	ended          bool                   // the client has waited for nothing for a while
	idle           []func() time.Duration // of its flows: how long the client has not waited
	flows, open    int
	bytes          [Classes]uint64 // to the client
	waits          []wait          // when the client waited for any flow; disjoint, and in order
	// Of the time before counted, the client waited for before.
	counted, before time.Duration
}

// A wait is an interval, relative to the beginning of the session.
type wait struct{ from, to time.Duration }

// Arm returns the way that its flows go.
func (s *Session) Arm() Arm {
	if s == nil {
		return Carried
	}
	return s.ticket.Arm
}

// Ticket returns the result of its draw.
func (s *Session) Ticket() Ticket { return s.ticket }

// Measured says if its flows are measured: then Open and Close must be called for them.
func (s *Session) Measured() bool { return s != nil && s.ticket.Measured }

// Waited notes that the client has waited for data of a flow. It must be called before the client waits for the flow again.
func (s *Session) Waited(from, to time.Time) {
	s.ended = s.ended || s.quiet()
	w := wait{max(from.Sub(s.began), 0), to.Sub(s.began)}
	if w.to <= w.from {
		return
	}
	if w.from < s.counted { // a long wait, told late, and the others before may be anywhere: as if spread evenly
		other := 1 - s.before.Seconds()/s.counted.Seconds()
		s.before += time.Duration(other * float64(min(w.to, s.counted)-w.from))
		if w.from = s.counted; w.to <= w.from {
			return
		}
	}
	s.waits = append(s.waits, w) // not by package slices, whose code for it would take 4 KB of a router's flash
	for i := len(s.waits) - 1; i > 0 && s.waits[i].from < s.waits[i-1].from; i-- {
		s.waits[i], s.waits[i-1] = s.waits[i-1], s.waits[i]
	}
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
		s.before += joined[0].to - joined[0].from
		s.counted = joined[0].to
		s.waits = append(joined[:0], joined[1:]...)
	}
}

// outcome returns the totals of the session, and the class of most of its bytes.
func (s *Session) outcome() (bytes uint64, all time.Duration, class Class) {
	for c, n := range s.bytes {
		bytes += n
		if n > s.bytes[class] {
			class = Class(c)
		}
	}
	all = s.before
	for _, w := range s.waits {
		all += w.to - w.from
	}
	return bytes, all, class
}

// Sessions groups flows into sessions (Manzoor 2019, algorithm 1; its key also has the server's name, which would
// require a look into the flow, and a quiet session goes on there). It is not safe for concurrent use.
type Sessions struct {
	young []*Session // oldest first
}

// Join returns the session of a flow that is about to begin. It calls draw for the first flow of a
// session. The session is nil if it is carried and in no group.
func (s *Sessions) Join(now time.Time, client, server netip.Addr, draw func() Ticket) *Session {
	for _, x := range slices.Backward(s.young) {
		if x.client == client && x.server == server {
			if now.Sub(x.began) > SessionGap || x.ended || now.Sub(x.joined) > sessionQuiet && x.quiet() {
				break
			}
			x.joined = now
			return x
		}
	}
	t := draw()
	if t == (Ticket{}) {
		return nil
	}
	x := &Session{ticket: t, client: client, server: server, began: now, joined: now, young: true, waits: make([]wait, 0, maxWaits+1)}
	s.young = append(s.young, x)
	return x
}

// quiet says if the client has not waited for any of the session's flows of late.
func (s *Session) quiet() bool {
	for _, idle := range slices.Backward(s.idle) {
		if idle() <= sessionQuiet {
			return false
		}
	}
	return len(s.idle) > 0
}

// Open notes that a flow begins, and says if it is the first of its session. idle returns how long the client has not waited
// for the flow.
func (s *Session) Open(idle func() time.Duration) (first bool) {
	if s.young {
		if len(s.idle) == maxIdle {
			s.idle = slices.Delete(s.idle, 0, 1)
		}
		s.idle = append(s.idle, idle)
	}
	s.flows++
	s.open++
	return s.flows == 1
}

// A Flow is the record of a connection: the bytes in both directions, and the packets that carried them. It does not
// include the duration, which depends on the way and does not improve the classes (lab/experiments/flows.py).
type Flow struct {
	ClientBytes, ServerBytes     uint64 // from the client, and to it
	ClientPackets, ServerPackets uint32
}

// Close notes that a flow has ended, and says if that ends the session. A flow without data has an empty
// record.
func (s *Session) Close(f Flow) (over bool) {
	s.open--
	s.bytes[f.Class()] += f.ServerBytes
	return s.over()
}

// RecordSession records a session that is over. A session without an answer has no time; its unanswered connections are
// counted elsewhere.
func (p *Proof) RecordSession(s *Session) {
	w, half, ok := p.of(s.ticket)
	s.ticket.Measured = false // flows that join later are not measured
	bytes, all, class := s.outcome()
	if !ok || bytes == 0 {
		return
	}
	c := &w.sessions[half][sizeOf(bytes)][class][s.ticket.Arm]
	c.n++
	c.by.add(c.n, logOf(all))
}

// over says if no flow is open, and none can join.
func (s *Session) over() bool { return !s.young && s.open == 0 && s.flows > 0 }

// Age closes sessions that are old enough to new flows. It returns those that are over now.
func (s *Sessions) Age(now time.Time) (over []*Session) {
	old := max(len(s.young)-maxYoung, 0)
	for old < len(s.young) && now.Sub(s.young[old].began) > SessionGap {
		old++
	}
	for _, x := range s.young[:old] {
		x.young, x.idle = false, nil
		if x.over() {
			over = append(over, x)
		}
	}
	s.young = slices.Delete(s.young, 0, old)
	return over
}
