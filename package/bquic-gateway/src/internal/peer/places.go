// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"net/netip"
)

// shareFactor is how many times the number of free places one peer may hold.
// Within a peer, it is the same for a source and the places that are free to the
// peer. A single peer can hold 8/9 of all places, and each of n greedy peers
// 8/(1+8n).
const shareFactor = 8

// Reasons why Take refuses a place.
var (
	errFull  = errors.New("no places for tunnels are left")
	errMost  = errors.New("the peer has reached its limit on tunnels")
	errShare = errors.New("few places for tunnels are left, and the peer already has its share")
)

// Places divides a number of places among peers, and each peer's places among the
// sources from which it connects. The zero value has no places. It is not safe for
// concurrent use.
//
// A peer that asks for another place is refused while it holds at least
// shareFactor times as many places as are free (dynamic thresholds: A. K.
// Choudhury and E. L. Hahne, "Dynamic queue length thresholds for shared-memory
// packet switches", IEEE/ACM Transactions on Networking 6(2), 1998). So no peer is
// refused while there is room. When there is little, the peers with most places
// are refused first. As their tunnels end, all peers that ask for more converge to
// the same number (max-min fairness).
//
// Nobody loses a place for another peer, although tunnels can last for hours: a
// connection that is refused goes direct, but one that has lost its tunnel is lost.
type Places struct {
	total, used int
	holders     map[string]*holder
}

type holder struct {
	used    int
	sources map[netip.Prefix]int
}

// SetTotal sets the number of places. Places already taken stay taken, even if
// they are more than n.
func (p *Places) SetTotal(n int) { p.total = n }

// Total returns the number of places. Used returns how many of them are taken.
func (p *Places) Total() int { return p.total }
func (p *Places) Used() int  { return p.used }

// Held returns how many places a peer holds.
func (p *Places) Held(peer string) int {
	if h := p.holders[peer]; h != nil {
		return h.used
	}
	return 0
}

// Take allocates a place to a peer that connects from source and may hold at most
// most places (0: no limit of its own). The error says why there is no place.
func (p *Places) Take(peer string, most int, source netip.Prefix) error {
	h := p.holders[peer]
	if h == nil {
		h = &holder{sources: make(map[netip.Prefix]int)} // stored only when it gets a place
	}
	if err := p.refuse(h, most, source); err != nil {
		return err
	}
	if p.holders == nil {
		p.holders = make(map[string]*holder)
	}
	p.holders[peer] = h
	p.used++
	h.used++
	h.sources[source]++
	return nil
}

// refuse returns why there is no place for h and source, or nil if there is one.
func (p *Places) refuse(h *holder, most int, source netip.Prefix) error {
	free := p.total - p.used
	switch {
	case most > 0 && h.used >= most:
		return errMost
	case free <= 0:
		return errFull
	case h.used >= shareFactor*free:
		return errShare
	}
	// The number of places that the peer could reach if the other peers kept
	// theirs.
	space := shareFactor * (free + h.used) / (1 + shareFactor)
	if most > 0 {
		space = min(space, most)
	}
	if h.sources[source] >= shareFactor*max(space-h.used, 1) {
		return errShare
	}
	return nil
}

// Give gives back a place that was taken.
func (p *Places) Give(peer string, source netip.Prefix) {
	h := p.holders[peer]
	p.used--
	h.used--
	if h.sources[source]--; h.sources[source] == 0 {
		delete(h.sources, source)
	}
	if h.used == 0 {
		delete(p.holders, peer)
	}
}
