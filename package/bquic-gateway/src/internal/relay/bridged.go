// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync"
	"time"

	"bquic/internal/divert"
)

const (
	// avoidTime is how long the relay avoids a target.
	avoidTime = 10 * time.Minute
	// maxAvoided is the limit on such targets; the oldest is dropped.
	maxAvoided = 256
)

// avoided holds targets that a gateway could not reach, and those of bridged connections that the node could not reach.
// The kernel forwards connections to them, or bridges them to the clients' router: so they do not wait for the gateway, and
// the client learns what becomes of its SYN.
type avoided struct {
	mu sync.Mutex
	by map[netip.AddrPort]time.Time
}

func (a *avoided) add(target netip.AddrPort, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = make(map[netip.AddrPort]time.Time)
	}
	if len(a.by) >= maxAvoided {
		oldest := target
		for t, at := range a.by {
			if first, ok := a.by[oldest]; !ok || at.Before(first) {
				oldest = t
			}
		}
		delete(a.by, oldest)
	}
	a.by[target] = now
}

func (a *avoided) has(target netip.AddrPort, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.by[target]
	if ok && now.Sub(at) >= avoidTime {
		delete(a.by, target)
		return false
	}
	return ok
}

// clear forgets all targets: another gateway may reach them.
func (a *avoided) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.by)
}

// reaches reports whether a bridged connection can be taken. If so, the caller must call
// diverter.Release later.
func (r *Relay) reaches(p *divert.Packet) bool {
	set := r.now.Load()
	// In mode redirect, packets are first routed towards their target, so a route is needed.
	without := set.Bridge == BridgeAll && set.Mode == divert.TProxy
	if err := r.diverter.Reach(p, without); err != nil {
		r.logger.Debug("bridged connection not taken", "client", p.Client, "target", p.Target, "error", err)
		return false
	}
	return true
}
