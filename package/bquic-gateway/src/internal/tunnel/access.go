// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"bquic/internal/peer"
)

// An Access says who may open tunnels, and where to.
type Access struct {
	// Peers may. Without any, nobody is let in.
	Peers []peer.Config
	// Allow limits targets, as Policy.Allow.
	Allow []netip.Prefix
	// Places is the largest number of tunnels at a time. 0: MaxStreams.
	Places int
}

// TunnelMemory is what one tunnel takes of a machine's memory, in bytes, from which
// the number of places follows. Measured with 2,000 of them (amd64, Linux 6): 27 KB
// of Go's memory while idle, 57 KB with 64 KiB on the way that nobody takes; of
// the kernel's, which Go's ceiling does not count, 14 KB and 27 KB more. When 8,000
// carry as fast as they can it is 70 KB with the garbage (fleet), and what else
// the gateway holds needs room, too.
const TunnelMemory = 80 << 10

// otherMemory is what a gateway takes without any tunnel, in bytes.
const otherMemory = 16 << 20

// PlacesIn returns how many tunnels have room in a gateway whose memory is to stay
// below ceiling, in bytes. Each has a file descriptor, too, and three of four are theirs.
func PlacesIn(ceiling uint64) int {
	places := (max(ceiling, 2*otherMemory) - otherMemory) / TunnelMemory
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		places = min(places, uint64(files.Cur)/4*3)
	}
	return int(max(places, 1))
}

var (
	errRevoked = errors.New("the peer's token is no longer valid")
	errYielded = errors.New("places for tunnels are short, and the peer has more than its share")
)

// A member is a peer, since it was first configured.
type member struct {
	name  string
	bytes Bytes
	// Of the Handler's mu:
	cfg    *peer.Config // never changed, but replaced
	limits *limits
	total  uint64 // tunnels

	refused atomic.Uint64
}

// A grant is the place of a tunnel.
type grant struct {
	*member
	token  peer.Hash
	claim  peer.Claim
	limits *limits
	ctx    context.Context // ends when the tunnel must
	end    context.CancelCauseFunc
	given  bool // the place is another's already
}

// SetAccess says who may open tunnels from now on, and where to. Those that are
// open stay, but for those of peers and tokens that are no longer valid.
func (h *Handler) SetAccess(a Access) {
	if a.Places == 0 {
		a.Places = MaxStreams
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.allow = a.Allow
	h.places.SetTotal(a.Places)
	old := h.members
	h.members = nil
	for _, cfg := range a.Peers {
		var m *member
		if i := slices.IndexFunc(old, func(m *member) bool { return m.name == cfg.Name }); i >= 0 {
			m = old[i]
		} else {
			m = &member{name: cfg.Name, cfg: &peer.Config{}}
			m.bytes.Under(&h.bytes)
		}
		if cfg.Rate != m.cfg.Rate {
			m.limits = newLimits(cfg.Rate) // of new tunnels
		}
		m.cfg = &cfg
		h.members = append(h.members, m)
	}
	for _, grants := range h.granted {
		for _, g := range grants {
			if !h.valid(g.member, g.token) {
				g.end(errRevoked)
			}
		}
	}
}

// valid reports whether m is a peer, with this token. The caller holds mu.
func (h *Handler) valid(m *member, token peer.Hash) bool {
	return slices.Contains(h.members, m) && slices.Contains(m.cfg.Tokens, token)
}

// authenticate returns who asks, nil for a stranger, and by which token. All tokens are compared, so
// that the time tells nothing.
func (h *Handler) authenticate(r *http.Request) (m *member, cfg *peer.Config, token peer.Hash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	scheme, shown, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	token = peer.HashOf(shown)
	for _, candidate := range h.members {
		for _, t := range candidate.cfg.Tokens {
			if t.Equal(token) {
				m, cfg = candidate, candidate.cfg
			}
		}
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, nil, token
	}
	return m, cfg, token
}

// enter takes a place for a tunnel of whoever asks, or returns a *Refusal.
// leave must be called when the tunnel has ended.
func (h *Handler) enter(m *member, token peer.Hash, client netip.Addr) (*grant, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A reload may have come in between.
	if !h.valid(m, token) {
		return nil, &Refusal{http.StatusProxyAuthRequired, RequestDenied, errRevoked.Error()}
	}
	if h.ending {
		return nil, errEnding
	}
	if h.Short != nil && h.Short() {
		return nil, &Refusal{http.StatusServiceUnavailable, LimitReached, "the gateway's memory is short"}
	}
	g := &grant{member: m, token: token, limits: m.limits, claim: peer.Claim{Peer: m.name, Source: peer.SourceOf(client)}}
	from, err := h.places.Take(m.name, m.cfg.Tunnels, g.claim.Source)
	if err != nil {
		return nil, &Refusal{http.StatusServiceUnavailable, LimitReached, err.Error()}
	}
	if from != nil {
		h.yield(*from)
	}
	g.ctx, g.end = context.WithCancelCause(context.Background())
	if h.granted == nil {
		h.granted = make(map[peer.Claim][]*grant)
	}
	h.granted[g.claim] = append(h.granted[g.claim], g)
	return g, nil
}

// yield ends the oldest tunnel of a claim that had to give up a place: of those
// that are open for long, most are idle. The caller holds mu.
func (h *Handler) yield(claim peer.Claim) {
	for _, g := range h.granted[claim] {
		if !g.given {
			g.given = true
			g.end(errYielded)
			return
		}
	}
}

// opened counts a tunnel.
func (h *Handler) opened(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total++
	g.total++
}

// leave gives a place back.
func (h *Handler) leave(g *grant) {
	g.end(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !g.given {
		h.places.Give(g.claim.Peer, g.claim.Source)
	}
	rest := slices.DeleteFunc(h.granted[g.claim], func(other *grant) bool { return other == g })
	if h.granted[g.claim] = rest; len(rest) == 0 {
		delete(h.granted, g.claim)
	}
}

// Stats are a Handler's figures. Bytes are as relays see them.
type Stats struct {
	Open   int    `json:"open"`
	Places int    `json:"places"` // for tunnels
	Total  uint64 `json:"total"`
	Up     uint64 `json:"up_bytes"`
	Down   uint64 `json:"down_bytes"`
	// Denied counts requests without a valid token.
	Denied uint64 `json:"denied"`
	Uplink bool   `json:"uplink"` // works
	Peers  []Peer `json:"peers"`
}

// A Peer are the figures of one peer since it was first configured.
type Peer struct {
	Name    string `json:"name"`
	Open    int    `json:"open"`
	Total   uint64 `json:"total"`
	Up      uint64 `json:"up_bytes"`
	Down    uint64 `json:"down_bytes"`
	Refused uint64 `json:"refused"` // tunnels
}

// Stats returns the figures; peers are in the order of their names.
func (h *Handler) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Stats{
		Open: h.places.Used(), Places: h.places.Total(), Total: h.total, Up: h.bytes.FromStream.Load(), Down: h.bytes.ToStream.Load(),
		Denied: h.denied.Load(), Uplink: !h.uplink.down(), Peers: make([]Peer, 0, len(h.members)),
	}
	for _, m := range h.members {
		st.Peers = append(st.Peers, Peer{m.name, h.places.Held(m.name), m.total, m.bytes.FromStream.Load(), m.bytes.ToStream.Load(), m.refused.Load()})
	}
	slices.SortFunc(st.Peers, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return st
}
