// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"bquic/internal/special"
)

// A Policy says which addresses a gateway connects to. The zero value allows all but
// special addresses.
//
// Special addresses are those that package special lists, the gateway's own, and those of networks behind it. A
// special address is allowed only by a prefix in Allow that contains nothing but special
// addresses of the same range: 127.0.0.0/8 or 10.1.0.0/16, but not 0.0.0.0/0. One of the
// gateway's own addresses is allowed only by a prefix for this address alone. Addresses
// that cannot be a destination (unspecified, IPv4-mapped) are never allowed.
type Policy struct {
	// Allow limits targets to these prefixes. Empty: no limit.
	Allow []netip.Prefix
	// Own returns the type of an address of the gateway itself ("local",
	// "broadcast"), or "" for any other address. If it returns an error, the address
	// is not allowed. nil: the gateway has no addresses.
	Own func(netip.Addr) (string, error)
	// Behind returns the prefix of a network behind the gateway that has an address, or the zero Prefix. nil: there are none.
	Behind func(netip.Addr) netip.Prefix
}

// Allowed returns nil if addr is a permitted target, or else the reason as an error.
func (p *Policy) Allowed(addr netip.Addr) error {
	if !addr.IsValid() {
		return errors.New("no valid address")
	}
	asked := addr
	addr = addr.WithZone("") // a prefix contains no address with a zone
	r, isSpecial := special.Of(addr)
	if r.Kind == special.Nowhere {
		return fmt.Errorf("%s is %s", asked, r.Name)
	}
	// A translator on the path may turn it into this IPv4 address.
	if v4, ok := embedded(addr); ok {
		if err := p.Allowed(v4); err != nil {
			return fmt.Errorf("%s: %w", asked, err)
		}
	}
	// For loopback and multicast, the kernel knows no more than their ranges, which
	// the next rule checks.
	if p.Own != nil && !addr.IsLoopback() && !addr.IsMulticast() {
		switch what, err := p.Own(asked); {
		case err != nil:
			return fmt.Errorf("%s: %w", asked, err)
		case what != "" && !p.names(addr, netip.PrefixFrom(addr, addr.BitLen())):
			return fmt.Errorf("%s is an address of the gateway itself (%s)", asked, what)
		}
	}
	if isSpecial && !p.names(addr, r.Prefix) {
		return fmt.Errorf("%s is %s", asked, r.Name)
	}
	if !isSpecial && p.Behind != nil {
		if network := p.Behind(addr); network.IsValid() && !p.names(addr, network) {
			return fmt.Errorf("%s is in a network behind the gateway (%s)", asked, network)
		}
	}
	if len(p.Allow) > 0 && !slices.ContainsFunc(p.Allow, func(a netip.Prefix) bool { return a.Contains(addr) }) {
		return fmt.Errorf("%s is not in an allowed prefix", asked)
	}
	return nil
}

// names reports whether Allow has a prefix that contains addr and lies within the
// special range.
func (p *Policy) names(addr netip.Addr, special netip.Prefix) bool {
	return slices.ContainsFunc(p.Allow, func(a netip.Prefix) bool { return a.Contains(addr) && a.Bits() >= special.Bits() })
}

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixTo4 = netip.MustParsePrefix("2002::/16")    // RFC 3056
)

// embedded returns the IPv4 address in a NAT64 or 6to4 address.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	switch {
	case nat64.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixTo4.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}
