// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"net/netip"
)

// shareFactor is how many times the places that are still free one peer may hold,
// and one source of what is free to its peer. One peer alone comes to 8/9 of all
// places, n that all want more than there is to 8/(1+8n) each.
const shareFactor = 8

// Why there is no place.
var (
	ErrFull  = errors.New("all places for tunnels are taken")
	ErrMost  = errors.New("the peer has as many tunnels as it may")
	ErrShare = errors.New("places for tunnels are short, and the peer has its share")
)

// Places shares a number of places out to peers, and those of each peer to the
// sources that it comes from. The zero value has none. It is not safe for
// concurrent use.
//
// Who asks is refused while it holds shareFactor times as many places as are free
// (dynamic thresholds: A. K. Choudhury and E. L. Hahne, "Dynamic queue length
// thresholds for shared-memory packet switches", IEEE/ACM Transactions on
// Networking 6(2), 1998). So nobody is refused while there is room; when there is
// little, those with most are refused first, and as their tunnels end all who want
// more come to hold the same (max-min fair).
//
// Tunnels can last for hours. Who is refused and holds less than an equal part of
// all places gets one that the peer with most has to give up; and so does a source
// with less than an equal part of its peer's, from the peer's source with most.
type Places struct {
	total, used int
	holders     map[string]*holder
}

type holder struct {
	used    int
	sources map[netip.Prefix]int
}

// SetTotal sets the number of places. Who holds more than there are keeps them.
func (p *Places) SetTotal(n int) { p.total = n }

// Total returns the number of places, and Used how many are taken.
func (p *Places) Total() int { return p.total }
func (p *Places) Used() int  { return p.used }

// Held returns how many places a peer holds.
func (p *Places) Held(peer string) int {
	if h := p.holders[peer]; h != nil {
		return h.used
	}
	return 0
}

// A Claim is in whose name places are held.
type Claim struct {
	Peer   string
	Source netip.Prefix
}

// Take gives a place to a peer that comes from source, and may hold at most most
// (0: no limit of its own). The error says why there is none. With a victim, the
// place was this one's and counts as given back.
func (p *Places) Take(peer string, most int, source netip.Prefix) (*Claim, error) {
	h := p.holders[peer]
	if h == nil {
		h = &holder{} // of nothing; kept when it gets a place
	}
	err := p.refuse(h, most, source)
	var victim *Claim
	if err != nil {
		if victim = p.victim(peer, h, err, source); victim == nil {
			return nil, err
		}
		p.Give(victim.Peer, victim.Source)
	}
	if p.holders == nil {
		p.holders = make(map[string]*holder)
	}
	if p.holders[peer] == nil {
		h.sources = make(map[netip.Prefix]int)
		p.holders[peer] = h
	}
	p.used++
	h.used++
	h.sources[source]++
	return victim, nil
}

// refuse says why there is no place for h and source, or nil.
func (p *Places) refuse(h *holder, most int, source netip.Prefix) error {
	free := p.total - p.used
	switch {
	case most > 0 && h.used >= most:
		return ErrMost
	case free <= 0:
		return ErrFull
	case h.used >= shareFactor*free:
		return ErrShare
	}
	// What the peer would come to if all the others stayed as they are.
	space := shareFactor * (free + h.used) / (1 + shareFactor)
	if most > 0 {
		space = min(space, most)
	}
	if h.sources[source] >= shareFactor*max(space-h.used, 1) {
		return ErrShare
	}
	return nil
}

// victim returns who has to give up a place for a peer that was refused, nil when
// nobody has to.
func (p *Places) victim(peer string, h *holder, why error, source netip.Prefix) *Claim {
	active := len(p.holders)
	if h.used == 0 {
		active++
	}
	if why != ErrMost && h.used < p.total/active {
		from := peer
		for name, other := range p.holders {
			if n := p.Held(from); other.used > n || other.used == n && name < from {
				from = name
			}
		}
		if from != peer && p.Held(from) > h.used+1 {
			return &Claim{from, p.holders[from].largest()}
		}
	}
	active = len(h.sources)
	if h.sources[source] == 0 {
		active++
	}
	if largest := h.largest(); h.sources[source] < h.used/active && h.sources[largest] > h.sources[source]+1 {
		return &Claim{peer, largest}
	}
	return nil
}

// largest returns the source with the most places.
func (h *holder) largest() (largest netip.Prefix) {
	most := 0
	for source, n := range h.sources {
		if n > most || n == most && source.Compare(largest) < 0 {
			largest, most = source, n
		}
	}
	return largest
}

// Give returns a place that was taken.
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
