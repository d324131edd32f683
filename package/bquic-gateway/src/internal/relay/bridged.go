// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"sync"
	"time"

	"bquic/internal/divert"
)

const (
	// avoidTime is how long a target is left alone that neither a gateway nor the node reached.
	avoidTime = 10 * time.Minute
	// maxAvoided bounds such targets; the oldest is forgotten.
	maxAvoided = 256
)

// avoided are targets of bridged connections, which the clients' router may reach although
// neither a gateway nor the node does.
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

// reaches says whether a bridged connection can be taken. If so, it has to be released.
func (r *Relay) reaches(p *divert.Packet) bool {
	if r.avoided.has(p.Target.Addr(), time.Now()) {
		return false
	}
	set := r.now.Load()
	// Redirected packets are routed towards their target first.
	without := set.Bridge == BridgeAll && set.Mode == divert.TProxy
	if err := r.diverter.Reach(p, without); err != nil {
		r.logger.Debug("bridged connection not taken", "client", p.Client, "target", p.Target, "error", err)
		return false
	}
	return true
}
