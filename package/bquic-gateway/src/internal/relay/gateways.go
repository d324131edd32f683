// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"time"
)

// known is what is known of a gateway.
type known struct {
	addresses []netip.Prefix // never taken
	problem   string         // of the last attempt to connect, "" if it went well
}

// addresses returns those of the gateways.
func (r *Relay) addresses(set *settings) (prefixes []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, gateway := range set.Gateways {
		if k := r.known[gateway]; k != nil {
			prefixes = append(prefixes, k.addresses...)
		}
	}
	return prefixes
}

// learn notes something of a gateway.
func (r *Relay) learn(gateway string, note func(*known)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.known[gateway]
	if k == nil {
		k = new(known)
		r.known[gateway] = k
	}
	note(k)
}

// away notes why a session could not be made, or has ended.
func (r *Relay) away(reason string) {
	r.reason.Store(&reason)
	r.kick()
}

// report logs when the gateway comes or goes, and when the reason for its
// being away changes.
func (r *Relay) report(used *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	up := used != nil
	if up != r.up || up && used.gateway != r.using {
		r.up, r.since = up, time.Now()
		r.logged = false
		if up {
			r.using = used.gateway
			r.logger.Info("gateway reached, connections are carried", "gateway", r.using)
		}
	}
	reason := r.reason.Load()
	switch {
	case up:
		r.reason.Store(nil)
	case reason != nil && (!r.logged || *reason != r.problem):
		r.problem, r.logged = *reason, true
		r.logger.Warn("gateway away, connections go direct", "gateways", r.now.Load().Gateways, "reason", *reason)
	}
}

// pick returns the next healthy session, or nil.
func (r *Relay) pick() *session {
	n := uint32(len(r.sessions))
	turn := r.turn.Add(1)
	for i := range n {
		if s := r.sessions[(turn+i)%n].Load(); s != nil && s.healthy() {
			return s
		}
	}
	return nil
}
