// SPDX-License-Identifier: Apache-2.0

// Package order decides which flow of a connection sends next, where the connection
// carries the flows of many clients. Clients that have sent little lately go first,
// and all others share equally, however many flows each of them has.
//
// It is deficit round robin with new flows before old ones (RFC 8290, sections
// 4.1.1 and 4.2), on two levels: between clients, and between the flows of a client.
// Unlike in the RFC, a node without data is credited with the turns that it misses,
// up to a limit, instead of one turn whenever it returns. A flow counts as new as long
// as such credit lasts. A client whose sender refills its buffer late makes up for the
// turns it has missed. A client that opens flow after flow gains nothing, because
// the client's own credit counts first.
//
// Each operation takes the same few instructions, however many flows there are.
package order

const (
	// Quantum is the share of each node per round, in bytes. No frame is larger, so one
	// quantum pays any debt.
	Quantum = 1500
	// maxMissed is the most rounds that a node without data is credited with, and
	// therefore how far a new flow goes ahead: 24 kB.
	maxMissed = 16
	maxCredit = maxMissed * Quantum
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
}

// New returns a node below up. As a new node, it may send 24 kB ahead of its
// siblings. up is nil for the root.
func New(up *Node, owner any) *Node {
	n := &Node{up: up, Owner: owner, credit: maxCredit}
	if up != nil {
		n.round = up.now
	}
	return n
}

// Empty says if no flow below n has data to send.
func (n *Node) Empty() bool { return n.fresh.first == nil && n.old.first == nil }

// Ready notes that flow n has data to send.
func (n *Node) Ready() {
	for ; n.up != nil && n.list == nil; n = n.up {
		n.enter()
	}
}

// enter puts n into its parent's list of nodes with data to send.
func (n *Node) enter() {
	missed := min(n.up.now-n.round, maxMissed)
	n.credit = min(n.credit+int32(missed)*Quantum, maxCredit)
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
func (n *Node) Sent(size int, more bool) {
	for ; n.up != nil && n.list != nil; n = n.up {
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
		more = !n.up.Empty()
	}
}

// A list is a queue that any member can leave.
type list struct{ first, last *Node }

func (l *list) push(n *Node) {
	n.list, n.prev, n.next = l, l.last, nil
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
}

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
