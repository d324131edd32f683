// SPDX-License-Identifier: Apache-2.0

// Package order decides whose bytes a connection sends next, where it carries
// the flows of many clients: who has had little lately goes first, and all others
// share equally, however many flows each of them has.
//
// It is deficit round robin with new flows before old ones (RFC 8290, sections
// 4.1.1 and 4.2), twice: between clients, and between the flows of a client. What
// differs is that a place which has nothing to send is credited with the turns
// that it misses, up to a limit, and not with one turn whenever it comes back. So
// a flow is new as long as it has credit from then, a client whose sender refills
// its buffer late gets what it has missed, and one that opens flow after flow
// gains nothing by it: the credit that counts first is its own.
//
// Each operation takes the same few instructions, whatever there is to choose from.
package order

const (
	// Quantum is what each gets per round, in bytes. A frame is no larger, so one
	// quantum ends any debt.
	Quantum = 1500
	// maxMissed is how many rounds are made up for to who had nothing to send, and
	// so how much of a new flow goes ahead: 24 kB.
	maxMissed = 16
	maxCredit = maxMissed * Quantum
)

// A Node is a place in the order: a flow, a client, whose flows are nodes below it,
// or the root, below which the clients are. Its methods are not safe for concurrent use.
type Node struct {
	// Owner is what the flow is of.
	Owner any

	up         *Node
	credit     int32  // bytes that it may send in this turn
	round      uint32 // of up, when it last got something
	list       *list  // of up's that it is in; nil: it has nothing to send
	next, prev *Node

	// Of what is below it and has something to send:
	fresh list // who has credit from rounds that it has missed: one frame each in turn
	old   list // the others: a quantum each in turn
	now   uint32
}

// New returns a place below up, for which it is new: it may send 24 kB ahead
// of who is served already. up is nil for the root.
func New(up *Node, owner any) *Node {
	n := &Node{up: up, Owner: owner, credit: maxCredit}
	if up != nil {
		n.round = up.now
	}
	return n
}

// Empty says that no flow below n has something to send.
func (n *Node) Empty() bool { return n.fresh.first == nil && n.old.first == nil }

// Ready notes that flow n has something to send.
func (n *Node) Ready() {
	for ; n.up != nil && n.list == nil; n = n.up {
		n.enter()
	}
}

// enter puts n among those of its parent that have something to send.
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

// Next returns the flow below n that is to send the next frame, nil if none has
// anything to send.
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

// Sent notes that flow n has sent a frame of size bytes, at most Quantum, and
// whether it has more to send. Size 0 with nothing more is a flow that has turned
// out to have nothing.
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

// A list is a queue of which any member can leave.
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
