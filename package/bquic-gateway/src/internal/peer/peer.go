// SPDX-License-Identifier: Apache-2.0

package peer

import "net/netip"

// Shared is the name of the peer that all relays with the one shared token are.
const Shared = "shared"

// A Config is one relay, or several that have their tokens in common.
type Config struct {
	Name string
	// Tokens are those that it may show, several at a time while they are changed.
	Tokens []Hash
	// Prefixes are where it may come from. Empty: anywhere.
	Prefixes []netip.Prefix
	// Tunnels is how many it may have open. 0: its fair share of all.
	Tunnels int
	// Rate is the limit of all its tunnels together, bytes a second in each
	// direction. 0: none.
	Rate float64
}

// MayComeFrom reports whether addr is where the peer may come from.
func (c *Config) MayComeFrom(addr netip.Addr) bool {
	if len(c.Prefixes) == 0 {
		return true
	}
	addr = addr.Unmap().WithZone("")
	for _, p := range c.Prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// SourceOf returns the addresses that belong to the same subscriber as addr:
// itself, or an IPv6 /56.
func SourceOf(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 56
	}
	p, _ := addr.Prefix(bits) // the zero Prefix of the zero Addr
	return p
}
