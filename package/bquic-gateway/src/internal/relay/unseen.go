// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bquic/internal/divert"
)

const (
	// unseenTime is how long clients must be busy without a connection that could be taken.
	unseenTime = 30 * time.Second
	// unseenBytes is how much they must send in this time: the acknowledgements of several MB.
	// Received bytes do not count, because a bridge floods clients with broadcasts of the whole mesh.
	unseenBytes = 64 << 10
)

// Reasons why a relay may see none of its clients' connections.
const (
	UnseenKernel    = "kernel"    // the kernel cannot divert bridged connections
	UnseenOff       = "off"       // option bridge is 0
	UnseenNoPort    = "no port"   // no port of the bridge is known to lead to a router
	UnseenNoDevice  = "no device" // a named device does not exist
	UnseenElsewhere = "elsewhere" // their packets use other devices
	UnseenMissing   = "missing"   // what the relay takes does not arrive
	UnseenApart     = "apart"     // the relay cannot make connections as the kernel forwards theirs
)

// An Unseen says why the relay sees none of its clients' connections.
type Unseen struct {
	Why    string `json:"why"`
	Reason string `json:"reason"`
}

// An unseen detects this condition.
type unseen struct {
	since time.Time // start of the current period in which the relay takes connections but has seen none
	first uint64    // bytes that clients had sent at since
	blind bool      // as look was last told
	now   *Unseen
}

// look checks the condition; it is called periodically. seen is the number of connections that
// could have been taken. blind says that none of the clients' devices exists, so that nothing is taken or counted.
func (u *unseen) look(now time.Time, taking, blind bool, seen uint64, bytes func() uint64, why func() Unseen) {
	switch {
	case !blind && (seen > 0 || !taking):
		u.since, u.now = time.Time{}, nil
	case u.since.IsZero():
		u.since, u.first = now, bytes()
	case now.Sub(u.since) >= unseenTime:
		sent := bytes()
		if blind || sent >= u.first+unseenBytes {
			w := why()
			u.now = &w
		} else if u.blind {
			u.now = nil
		}
		u.since, u.first, u.blind = now, sent, blind
	}
}

// busy returns the devices by which clients' packets arrive.
func (w *world) busy() []string {
	if len(w.Members) == 0 {
		return w.Clients
	}
	return slices.DeleteFunc(slices.Clone(w.Members), func(name string) bool {
		return slices.ContainsFunc(w.Ports, func(p *divert.BridgePort) bool { return p.Name == name })
	})
}

// why returns the likely reason for seeing no connections.
func (w *world) why(set *settings, problem error) Unseen {
	switch {
	case len(w.Missing) > 0:
		return Unseen{UnseenNoDevice, fmt.Sprintf("there is no device %s: name others in list interface", strings.Join(w.Missing, ", "))}
	case w.Bridges > 0 && set.Bridge == BridgeOff:
		return Unseen{UnseenOff, "their router may be beyond the bridge, but option bridge is 0"}
	case w.Bridges > 0 && problem != nil:
		return Unseen{UnseenKernel, problem.Error()}
	case w.Bridges > 0 && len(w.Ports) == 0:
		return Unseen{UnseenNoPort, "no port of the bridge is known to lead to a router: name it in list uplink"}
	}
	return Unseen{UnseenElsewhere, fmt.Sprintf("their connections do not arrive on %s and leave through %s",
		strings.Join(w.Clients, ", "), strings.Join(slices.Concat(w.Uplinks, portNames(w.Ports)), ", "))}
}

func portNames(ports []*divert.BridgePort) (names []string) {
	for _, p := range ports {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// watch checks whether connections are seen, and logs a change.
func (r *Relay) watch(w *world, taking bool) {
	set, now := r.now.Load(), time.Now()
	r.unseen.look(now, taking, len(w.Missing) == len(set.Interfaces), r.seen.Load(), func() uint64 {
		moved, err := r.meter.Read(w.busy())
		if err != nil {
			return 0
		}
		return moved.In.Bytes
	}, func() Unseen {
		if r.apart.Load() > 0 {
			return Unseen{UnseenApart, "routing rules of this node send them another way than its own connections"}
		}
		return w.why(set, r.diverter.BridgeProblem())
	})
	is := r.unseen.now
	if some, _ := r.expected.paused(now); some {
		is = &Unseen{UnseenMissing, "those that it takes do not reach it: other rules of this node refuse their packets, change their marks, or do not track them"}
	}
	r.mu.Lock()
	was := r.blind
	r.blind = is
	r.mu.Unlock()
	switch {
	case is != nil && (was == nil || *was != *is):
		r.logger.Warn("the relay sees none of its clients' connections", "reason", is.Reason)
	case is == nil && was != nil && r.seen.Load() > 0:
		r.logger.Info("the relay sees its clients' connections")
	}
}
