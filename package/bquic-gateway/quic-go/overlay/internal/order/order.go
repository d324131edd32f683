// SPDX-License-Identifier: Apache-2.0

// Package order decides which flow of a connection sends next, where the connection
// carries the flows of many clients. Clients share equally, however many flows each of
// them has: not packet by packet, but over the last second. One that has sent less than
// the others in that time goes first until it has made up for it.
//
// It is deficit round robin with new flows before old ones (RFC 8290, sections
// 4.1.1 and 4.2), on two levels: between clients, and between the flows of a client.
// Unlike in the RFC, a node without data is credited with the turns that it misses,
// up to those of the last second, instead of one turn whenever it returns. A node counts
// as new as long as such credit lasts. So a page goes before another client's download; when
// it would have ended with equal shares, the download has as much as with those. A client
// whose sender refills its buffer late makes up for the turns it has missed. A client that
// opens flow after flow gains nothing, because the client's own credit counts first.
//
// Each operation takes the same few instructions, however many flows there are.
package order

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
)

const (
	// Quantum is the share of each node per round, in bytes. No frame is larger, so one
	// quantum pays any debt.
	Quantum = 1500
	// memory is the time over which shares are equal: missed rounds of this time are credited,
	// or of half of it.
	memory = time.Second
	// leastMissed is how many missed rounds are credited in any case, also to a new node: 24 kB, which
	// a small answer needs, or a buffer that is refilled late.
	leastMissed = 16
	// spare is the time without data after which nobody is behind: there was room for all.
	spare = 10 * time.Millisecond
)

// A Node is a flow, a client with its flows below it, or the root with the clients
// below it. Its methods are not safe for concurrent use.
type Node struct {
	// Owner is the owner of the flow.
	Owner any

	up         *Node
	credit     int32  // bytes that it may send in this turn
	round      uint32 // up's round when it last got credit
	list       *list  // the list of up that it is in; nil: it has nothing to send
	next, prev *Node

	// Nodes below this one that have data to send:
	fresh list // nodes with credit for missed rounds: one frame each in turn
	old   list // the others: a quantum each in turn
	now   uint32
	past  [2]uint32     // the rounds of the last half of a memory, and of the half before, began here
	begun monotime.Time // this half
	empty monotime.Time // when the last frame was sent; if no node has data, since when
}

// New returns a node below up, with the least credit of one that has been absent. If all that is new had
// a second's credit, one flow or client after another would keep the old ones waiting. up is nil for the root.
func New(up *Node, owner any) *Node {
	n := &Node{up: up, Owner: owner}
	if up != nil {
		n.round = up.now - leastMissed
	}
	return n
}

// Empty says if no flow below n has data to send.
func (n *Node) Empty() bool { return n.fresh.first == nil && n.old.first == nil }

// Ready notes that flow n has data to send.
func (n *Node) Ready(now monotime.Time) {
	for ; n.up != nil && n.list == nil; n = n.up {
		n.up.remember(now)
		n.enter()
	}
}

// remember keeps the round that was under way a memory ago.
func (n *Node) remember(now monotime.Time) {
	switch {
	case n.Empty() && now.Sub(n.empty) > spare:
		n.past = [2]uint32{n.now, n.now}
	case now.Sub(n.begun) > memory/2:
		n.past = [2]uint32{n.now, n.past[0]}
	default:
		return
	}
	n.begun = now
}

// enter puts n into its parent's list of nodes with data to send.
func (n *Node) enter() {
	most := max(n.up.now-n.up.past[1], leastMissed)
	n.credit += int32(min(n.up.now-n.round, most)) * Quantum
	n.credit = min(n.credit, int32(most)*Quantum)
	n.round = n.up.now
	if n.credit > 0 {
		n.up.fresh.push(n)
	} else {
		n.refill()
	}
}

// refill gives n the quantum of the next round, and puts it last.
func (n *Node) refill() {
	n.credit += Quantum
	if n.round == n.up.now {
		n.up.now++
	}
	n.round = n.up.now
	n.up.old.push(n)
}

// Next returns the flow below n that sends the next frame, or nil if no flow has data.
func (n *Node) Next() *Node {
	for n != nil && !n.leaf() {
		if n.fresh.first != nil {
			n = n.fresh.first
		} else {
			n = n.old.first
		}
	}
	return n
}

func (n *Node) leaf() bool { return n.Owner != nil }

// Sent notes that flow n has sent a frame of size bytes, at most Quantum, and whether
// it has more to send. A size of 0 without more means that the flow turned out to have
// no data.
func (n *Node) Sent(now monotime.Time, size int, more bool) {
	for ; n.list != nil; n = n.up {
		n.up.remember(now)
		n.credit -= int32(size)
		switch {
		case !more:
			n.list.remove(n)
		case n.credit <= 0:
			n.list.remove(n)
			n.refill()
		case n.list == &n.up.fresh:
			n.list.remove(n)
			n.up.fresh.push(n)
		}
		more, n.up.empty = !n.up.Empty(), now
	}
}

// A list is a queue that any member can leave.
type list struct{ first, last *Node }

// Inlined, it would be hundreds of bytes of a router's flash.
//
//go:noinline
func (l *list) push(n *Node) {
	n.list, n.prev, n.next = l, l.last, nil
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
}

//go:noinline
func (l *list) remove(n *Node) {
	if n.prev == nil {
		l.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.list, n.prev, n.next = nil, nil, nil
}
