// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"slices"
)

// Shared is the name of the peer that stands for all relays with the shared token.
const Shared = "shared"

// A Config describes a peer: one relay, or several relays that share their tokens.
type Config struct {
	Name string
	// Tokens are the tokens that it may present. There are several while a token
	// is being replaced.
	Tokens []Hash
	// Prefixes are the addresses from which it may connect. Empty: any address.
	Prefixes []netip.Prefix
	// Tunnels is the limit on its open tunnels. 0: its fair share of all places.
	Tunnels int
	// Rate is the limit on all its tunnels together, in bytes per second in each
	// direction. 0: none.
	Rate float64
}

// MayComeFrom reports whether the peer may connect from addr.
func (c *Config) MayComeFrom(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return len(c.Prefixes) == 0 || slices.ContainsFunc(c.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// SourceOf returns the addresses that belong to the same subscriber as addr: the
// address itself or, for IPv6, its /56.
func SourceOf(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 56
	}
	p, _ := addr.Prefix(bits) // the zero Prefix of the zero Addr
	return p
}
