// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"bquic/internal/peer"
)

// An Access says which peers may open tunnels, and to which targets.
type Access struct {
	// Peers are the peers that may open tunnels. If empty, all requests are refused.
	Peers []peer.Config
	// Allow limits the targets like Policy.Allow.
	Allow []netip.Prefix
	// Places is the limit on open tunnels. 0: MaxStreams.
	Places int
}

// tunnelMemory is the memory that one tunnel takes, in bytes. It determines the number of places.
// With 2,000 tunnels (amd64, Linux 6), each takes 27 KB of Go's memory while idle, and 57 KB with 64
// KiB in flight that its client does not read. Each takes another 14 KB and 27 KB in the kernel,
// which Go's memory limit does not count. With 8,000 tunnels at full speed, each takes 70 KB
// including garbage (test/stress, fleet). The rest is for what else the gateway holds.
const tunnelMemory = 80 << 10

// otherMemory is the memory of a gateway without tunnels, in bytes.
const otherMemory = 16 << 20

// PlacesIn returns how many tunnels fit into a gateway whose memory must stay below ceiling, in
// bytes. Each tunnel also needs a file descriptor; tunnels may use three quarters of them.
func PlacesIn(ceiling uint64) int {
	return int(max(min((max(ceiling, 2*otherMemory)-otherMemory)/tunnelMemory, Files()/4*3), 1))
}

// Files returns how many file descriptors this process may have.
func Files() uint64 {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return math.MaxUint64
	}
	return uint64(files.Cur)
}

var errRevoked = &Refusal{http.StatusProxyAuthRequired, RequestDenied, "the peer's token is no longer valid"}

// A member is the state of a peer since it was first configured.
type member struct {
	name  string
	bytes Bytes
	// Guarded by the Handler's mu:
	cfg    *peer.Config // immutable; replaced by SetAccess
	limits *limits
	total  uint64 // tunnels

	refused atomic.Uint64
}

// A grant is a tunnel's place.
type grant struct {
	*member
	token  peer.Hash
	source netip.Prefix
	limits *limits
	ctx    context.Context // canceled when the tunnel must end
	end    context.CancelCauseFunc
	udp    *net.UDPConn // of an open tunnel; nil: TCP. Guarded by the Handler's mu
}

// SetAccess sets which peers may open tunnels from now on, and to which targets. Open tunnels
// continue, except tunnels of peers or tokens that are no longer valid.
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
			m.limits = newLimits(cfg.Rate) // for new tunnels
		}
		m.cfg = &cfg
		h.members = append(h.members, m)
	}
	for g := range h.granted {
		if !h.valid(g.member, g.token) {
			g.end(errRevoked)
		}
	}
}

// valid reports whether m is still configured, with this token. The caller holds mu.
func (h *Handler) valid(m *member, token peer.Hash) bool {
	return slices.Contains(h.members, m) && slices.Contains(m.cfg.Tokens, token)
}

// authenticate returns the peer that sent the request, or nil if its token is wrong or missing, and
// the token's hash. It compares all tokens, so that the time it takes reveals nothing.
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

// enter takes a place for a tunnel of m, or returns a *Refusal. The caller must call leave when the
// tunnel has ended.
func (h *Handler) enter(m *member, token peer.Hash, client netip.Addr) (*grant, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A reload may have removed the peer since authenticate.
	if !h.valid(m, token) {
		return nil, errRevoked
	}
	if h.ending {
		return nil, errEnding
	}
	if h.Short != nil && h.Short() {
		return nil, &Refusal{http.StatusServiceUnavailable, LimitReached, "the gateway's memory is short"}
	}
	g := &grant{member: m, token: token, limits: m.limits, source: peer.SourceOf(client)}
	if err := h.places.Take(m.name, m.cfg.Tunnels, g.source); err != nil {
		return nil, &Refusal{http.StatusServiceUnavailable, LimitReached, err.Error()}
	}
	g.ctx, g.end = context.WithCancelCause(context.Background())
	if h.granted == nil {
		h.granted = make(map[*grant]bool)
	}
	h.granted[g] = true
	return g, nil
}

// opened counts an opened tunnel.
func (h *Handler) opened(g *grant, conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total++
	g.total++
	g.udp, _ = conn.(*net.UDPConn)
}

// leave gives the tunnel's place back.
func (h *Handler) leave(g *grant) {
	g.end(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.places.Give(g.name, g.source)
	delete(h.granted, g)
}

// Stats are a Handler's counters. Up and Down are seen from the relay.
type Stats struct {
	Open   int    `json:"open"`
	Places int    `json:"places"` // limit on open tunnels
	Total  uint64 `json:"total"`
	Up     uint64 `json:"up_bytes"`
	Down   uint64 `json:"down_bytes"`
	// Denied counts requests without a valid token.
	Denied uint64  `json:"denied"`
	Uplink bool    `json:"uplink"` // the uplink works
	Peers  []*Peer `json:"peers"`
}

// A Peer holds the counters of one peer since it was first configured.
type Peer struct {
	Name    string `json:"name"`
	Open    int    `json:"open"`
	Total   uint64 `json:"total"`
	Up      uint64 `json:"up_bytes"`
	Down    uint64 `json:"down_bytes"`
	Refused uint64 `json:"refused"` // tunnels
}

// Stats returns the counters. Peers are sorted by name.
func (h *Handler) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Stats{
		Open: h.places.Used(), Places: h.places.Total(), Total: h.total, Up: h.bytes.FromStream.Load(), Down: h.bytes.ToStream.Load(),
		Denied: h.denied.Load(), Uplink: !h.uplink.down(), Peers: make([]*Peer, 0, len(h.members)),
	}
	for _, m := range h.members {
		st.Peers = append(st.Peers, &Peer{m.name, h.places.Held(m.name), m.total, m.bytes.FromStream.Load(), m.bytes.ToStream.Load(), m.refused.Load()})
	}
	slices.SortFunc(st.Peers, func(a, b *Peer) int { return cmp.Compare(a.Name, b.Name) })
	return st
}
