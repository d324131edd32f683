// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync"
	"time"

	"bquic/internal/divert"
)

const (
	// avoidTime is how long the relay avoids a target that neither a gateway nor the node could reach.
	avoidTime = 10 * time.Minute
	// maxAvoided is the limit on such targets; the oldest is dropped.
	maxAvoided = 256
)

// avoided holds targets of bridged connections that neither a gateway nor the node could reach.
// The clients' router may reach them, so the relay leaves them to it.
type avoided struct {
	mu sync.Mutex
	by map[netip.Addr]time.Time
}

func (a *avoided) add(target netip.Addr, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = make(map[netip.Addr]time.Time)
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

func (a *avoided) has(target netip.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.by[target]
	if ok && now.Sub(at) >= avoidTime {
		delete(a.by, target)
		return false
	}
	return ok
}

// reaches reports whether a bridged connection can be taken. If so, the caller must call
// diverter.Release later.
func (r *Relay) reaches(p *divert.Packet) bool {
	if r.avoided.has(p.Target.Addr(), time.Now()) {
		return false
	}
	set := r.now.Load()
	// In mode redirect, packets are first routed towards their target, so a route is needed.
	without := set.Bridge == BridgeAll && set.Mode == divert.TProxy
	if err := r.diverter.Reach(p, without); err != nil {
		r.logger.Debug("bridged connection not taken", "client", p.Client, "target", p.Target, "error", err)
		return false
	}
	return true
}
