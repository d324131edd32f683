// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"bquic/internal/divert"
)

const (
	// unseenTime is how long clients have to be busy without a connection that could be taken.
	unseenTime = 30 * time.Second
	// unseenBytes is what they have to send meanwhile: the acknowledgements of some MB. What
	// they get does not count, as a bridge sends them the noise of all of the mesh.
	unseenBytes = 64 << 10
)

// Why a relay may see no connection of its clients.
const (
	UnseenKernel    = "kernel"    // it cannot take what is bridged
	UnseenOff       = "off"       // option bridge is 0
	UnseenNoPort    = "no port"   // of a bridge, none is known to lead to a router
	UnseenNoDevice  = "no device" // one that was named is not there
	UnseenElsewhere = "elsewhere" // their packets go by other devices
)

// An Unseen says that clients are busy, and that none of their connections comes by.
type Unseen struct {
	Why    string `json:"why"`
	Reason string `json:"reason"`
}

// An unseen watches for that.
type unseen struct {
	meter *divert.Meter
	since time.Time // when this while of taking without having seen a connection began
	first uint64    // bytes that the clients had sent then
	now   *Unseen
}

// look is called now and then. seen is the number of connections that could have been taken.
func (u *unseen) look(now time.Time, taking bool, seen uint64, bytes func() uint64, why func() Unseen) (changed bool) {
	was := u.now
	switch {
	case !taking || seen > 0:
		u.since, u.now = time.Time{}, nil
	case u.since.IsZero():
		u.since, u.first = now, bytes()
	case now.Sub(u.since) >= unseenTime:
		sent := bytes()
		if sent >= u.first+unseenBytes {
			w := why()
			u.now = &w
		}
		u.since, u.first = now, sent
	}
	return (was == nil) != (u.now == nil) || was != nil && *was != *u.now
}

// busy are the devices that clients' bytes come by.
func (w *world) busy() []string {
	if len(w.Members) == 0 {
		return w.Clients
	}
	return slices.DeleteFunc(slices.Clone(w.Members), func(name string) bool {
		return slices.ContainsFunc(w.Ports, func(p divert.BridgePort) bool { return p.Name == name })
	})
}

// why says what may be the reason for seeing nothing.
func (w *world) why(set *settings, problem error) Unseen {
	for _, name := range set.Interfaces {
		if _, err := net.InterfaceByName(name); err != nil {
			return Unseen{UnseenNoDevice, fmt.Sprintf("there is no device %s", name)}
		}
	}
	switch {
	case w.Bridges > 0 && set.Bridge == BridgeOff:
		return Unseen{UnseenOff, "their router may be beyond the bridge, and option bridge is 0"}
	case w.Bridges > 0 && problem != nil:
		return Unseen{UnseenKernel, problem.Error()}
	case w.Bridges > 0 && len(w.Ports) == 0:
		return Unseen{UnseenNoPort, "no port of the bridge is known to lead to a router: list uplink can name it"}
	}
	return Unseen{UnseenElsewhere, fmt.Sprintf("their connections do not come by %s and leave by %s",
		strings.Join(w.Clients, ", "), strings.Join(slices.Concat(w.uplinks, portNames(w.Ports)), ", "))}
}

func portNames(ports []divert.BridgePort) (names []string) {
	for _, p := range ports {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// watch looks whether connections are seen, and says so.
func (r *Relay) watch(w *world, taking bool, logger *slog.Logger) {
	changed := r.unseen.look(time.Now(), taking, r.seen.Load(), func() uint64 {
		moved, err := r.unseen.meter.Read(w.busy())
		if err != nil {
			return 0
		}
		return moved.In.Bytes
	}, func() Unseen { return w.why(r.now.Load(), r.diverter.BridgeProblem()) })
	if !changed {
		return
	}
	r.mu.Lock()
	r.blind = r.unseen.now
	r.mu.Unlock()
	if u := r.unseen.now; u != nil {
		logger.Warn("clients are busy, and no connection of theirs comes by", "reason", u.Reason)
	} else {
		logger.Info("connections of clients come by")
	}
}
