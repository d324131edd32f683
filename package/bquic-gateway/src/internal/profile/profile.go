// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"slices"

	"github.com/quic-go/quic-go"
)

// A Profile is a named set of transport parameters. Parameters that it does not name
// have the values of stock quic-go.
type Profile struct {
	Name   string
	Doc    string
	Values []Value
	Burst  quic.Burst // the values as quic-go takes them
}

// A Value is the value of one parameter, as in a UCI file.
type Value struct {
	Param  string
	Text   string
	Source string
}

// Standard is stock quic-go, except for settings that all profiles share.
const Standard = "standard"

// BQUIC is the profile meant for clients behind 802.11 links.
const BQUIC = "bquic"

const (
	wcnc   = "BQUIC, WCNC 2019, section IV"
	thesis = "thesis 2019, chapter 6"
)

var bquic2019 = []Value{
	{"ack_packets", "10", wcnc},
	{"ack_delay", "25", wcnc + ": min(25 ms, minRTT/4)"},
	{"ack_rtt_divisor", "4", wcnc + ": min(25 ms, minRTT/4)"},
	{"ack_rtt", "min", wcnc + ": min(25 ms, minRTT/4)"},
	{"ack_after", "100", wcnc},
	{"ack_reordering", "0", wcnc + ": out-of-order packets are acknowledged at once"},
	{"burst_packets", "unlimited", wcnc + ": no pacing"},
}

// builtin are the profiles that need no configuration.
var builtin = []Profile{
	{
		Name: Standard,
		Doc:  "Unmodified quic-go.",
	}, {
		Name: BQUIC,
		Doc:  "For clients behind 802.11n or later links.",
		Values: []Value{
			{"ack_packets", "0", "own measurement: the limit on the delay is enough"},
			{"ack_delay", "50", "own measurement: 25 ms causes a third more ACKs on a chain of 3 hops, and costs 2 % of throughput"},
			{"ack_rtt_divisor", "2", "own measurement: half the queueing delay leaves no link idle"},
			{"ack_rtt", "queue", "own measurement: half the smoothed RTT is slower than stock with random loss and with short buffers; half the queueing delay is not"},
			{"ack_after", "100", wcnc},
			{"ack_reordering", "8", "own measurement: early packets otherwise undo the decimation"},
			{"ask_peer", "1", "draft-ietf-quic-ack-frequency"},
			{"burst_packets", "64", "IEEE 802.11n: block ACK window, the largest A-MPDU"},
			{"congestion", "rate", "own measurement: slower than stock on fewer paths than NewReno with a different end of slow start, see docs/lab.md"},
			{"fast_pmtu", "1", "own measurement: packets have full size from the first round trips on"},
		},
	}, {
		Name:   "bquic-2019",
		Doc:    "Exactly what the 2019 paper measured.",
		Values: bquic2019,
	}, {
		Name: "bquic-thesis",
		Doc:  "As in the paper, with the thresholds that the thesis raised in addition.",
		Values: append(slices.Clone(bquic2019),
			Value{"slow_start_divisor", "2", thesis + ": raised; it gives no value, so this one is ours"},
			Value{"slow_start_min", "8", thesis + ": raised; it gives no value, so this one is ours"},
			Value{"slow_start_max", "64", thesis + ": raised; it gives no value, so this one is ours"},
			Value{"loss_eighths", "4", thesis + ": raised; it gives no value, so this one is ours"},
		),
	}, {
		Name:   "modquic",
		Doc:    "Unmodified quic-go, with a window update on every acknowledgement.",
		Values: []Value{{"window_updates", "1", "ModQUIC, IJIPT 2019, section 3"}},
	},
}

// A Set holds profiles by name.
type Set map[string]Profile

// Builtin returns the profiles that need no configuration, standard first.
func Builtin() []Profile {
	ps := slices.Clone(builtin)
	for i := range ps {
		for _, v := range ps[i].Values {
			if err := lookup(v.Param).Set(&ps[i].Burst, v.Text); err != nil {
				panic(fmt.Sprintf("profile %s: %s: %v", ps[i].Name, v.Param, err))
			}
		}
		// Costs no measurable time; `bquic status` shows it.
		ps[i].Burst.Stats = true
		// No connection may stall because a path has changed.
		ps[i].Burst.BlackHoles = true
	}
	return ps
}

// NewSet returns a Set of the built-in profiles.
func NewSet() Set {
	s := make(Set)
	for _, p := range Builtin() {
		s[p.Name] = p
	}
	return s
}

// Names returns the names of all profiles, the built-in ones first.
func (s Set) Names() []string {
	var names, own []string
	for _, p := range builtin {
		names = append(names, p.Name)
	}
	for name := range s {
		if !slices.Contains(names, name) {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	return append(names, own...)
}

// Get returns the profile with that name.
func (s Set) Get(name string) (Profile, error) {
	p, ok := s[name]
	if !ok {
		return p, fmt.Errorf("unknown profile %q: expected one of %q", name, s.Names())
	}
	return p, nil
}

// lookup returns the parameter with that name, or nil.
func lookup(name string) *Param {
	for i := range Params {
		if Params[i].Name == name {
			return &Params[i]
		}
	}
	return nil
}
