// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"net/netip"
)

// A Policy says which addresses a gateway connects to. Its zero value allows
// all but special ones.
//
// Special are: loopback, unspecified, link-local, multicast and broadcast
// addresses, IPv4-mapped forms, and Own. A special address is allowed only by
// a prefix in Allow that holds none but such addresses, as 127.0.0.0/8 does
// and 0.0.0.0/0 does not. Unspecified and IPv4-mapped ones are never allowed.
type Policy struct {
	// Allow limits targets to these prefixes. Empty: no limit.
	Allow []netip.Prefix
	// Own are the router's own addresses.
	Own []netip.Addr
}

var special = []struct {
	prefix netip.Prefix
	name   string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
}

// Allowed returns an error that names the reason when addr is no permitted target.
func (p *Policy) Allowed(addr netip.Addr) error {
	if !addr.IsValid() {
		return fmt.Errorf("no valid address")
	}
	if addr.Is4In6() {
		return fmt.Errorf("%s is an IPv4-mapped address", addr)
	}
	addr = addr.WithZone("") // a prefix contains no address with a zone
	// 0.0.0.0/8 (RFC 1122, section 3.2.1.3) and ::/96 (IPv4-compatible, RFC
	// 4291, section 2.5.5.1) but for ::1, are no destinations.
	if addr.Is4() && addr.As4()[0] == 0 || addr.Is6() && netip.PrefixFrom(netip.IPv6Unspecified(), 96).Contains(addr) && !addr.IsLoopback() {
		return fmt.Errorf("%s is an unspecified address", addr)
	}
	// What a translator further on would make of it.
	if v4, ok := embedded(addr); ok {
		if err := p.Allowed(v4); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
	}
	for _, s := range special {
		if s.prefix.Contains(addr) && !p.names(addr, s.prefix) {
			return fmt.Errorf("%s is a %s address", addr, s.name)
		}
	}
	for _, own := range p.Own {
		own = own.Unmap().WithZone("")
		if own == addr && !own.IsLoopback() && !p.names(addr, netip.PrefixFrom(own, own.BitLen())) {
			return fmt.Errorf("%s is an address of the gateway itself", addr)
		}
	}
	if len(p.Allow) == 0 {
		return nil
	}
	for _, a := range p.Allow {
		if a.Contains(addr) {
			return nil
		}
	}
	return fmt.Errorf("%s is in no allowed prefix", addr)
}

// names reports whether Allow has a prefix for addr that lies within the special one.
func (p *Policy) names(addr netip.Addr, special netip.Prefix) bool {
	for _, a := range p.Allow {
		if a.Contains(addr) && a.Bits() >= special.Bits() {
			return true
		}
	}
	return false
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
