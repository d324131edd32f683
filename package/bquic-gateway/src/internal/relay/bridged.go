// SPDX-License-Identifier: Apache-2.0

package relay

import "bquic/internal/divert"

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
