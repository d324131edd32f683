// SPDX-License-Identifier: Apache-2.0

package special

import "net/netip"

// A Kind says what is special about an address.
type Kind int

const (
	// Nowhere: cannot be a destination.
	Nowhere Kind = iota + 1
	// Local: this machine, or hosts on one of its links.
	Local
	// Private: has a meaning within one network only.
	Private
)

// A Range is a block of special addresses.
type Range struct {
	Prefix netip.Prefix
	Kind   Kind
	Name   string // with an article: "a loopback address"
}

// ranges lists all special addresses: multicast, and those in the registries of
// RFC 6890 (iana-ipv4-special-registry, iana-ipv6-special-registry) that are not
// globally reachable.
//
// Documentation prefixes (RFC 5737, RFC 3849, RFC 9637) are not among them: they
// hold nothing that needs protection, and tests use them as public addresses. The
// globally reachable blocks within 2001::/23 are not excluded either: they belong
// to special protocols.
var ranges = parse()

// table is parsed at the start: as code, its prefixes would take 4 KB of a router's flash.
var table = []struct {
	prefix string
	kind   Kind
	name   string
}{
	{"0.0.0.0/8", Nowhere, "an unspecified address"},  // RFC 1122, section 3.2.1.3
	{"::/96", Nowhere, "an unspecified address"},      // and IPv4-compatible: RFC 4291, section 2.5.5.1
	{"::ffff:0:0/96", Nowhere, "IPv4-mapped"},         // RFC 4291, section 2.5.5.2
	{"127.0.0.0/8", Local, "a loopback address"},      // RFC 1122, section 3.2.1.3
	{"::1/128", Local, "a loopback address"},          // RFC 4291, section 2.5.3
	{"169.254.0.0/16", Local, "a link-local address"}, // RFC 3927
	{"fe80::/10", Local, "a link-local address"},      // RFC 4291, section 2.5.6
	{"224.0.0.0/4", Local, "a multicast address"},     // RFC 1112
	{"ff00::/8", Local, "a multicast address"},        // RFC 4291, section 2.7
	{"255.255.255.255/32", Local, "a broadcast address"},

	{"10.0.0.0/8", Private, "a private address"},       // RFC 1918
	{"172.16.0.0/12", Private, "a private address"},    // RFC 1918
	{"192.168.0.0/16", Private, "a private address"},   // RFC 1918
	{"100.64.0.0/10", Private, "a private address"},    // carrier-grade NAT: RFC 6598
	{"fc00::/7", Private, "a private address"},         // RFC 4193
	{"fec0::/10", Private, "a private address"},        // site-local: RFC 3879
	{"64:ff9b:1::/48", Private, "a private address"},   // translators' own: RFC 8215
	{"5f00::/16", Private, "a private address"},        // segment routing: RFC 9602
	{"192.0.0.0/24", Private, "a reserved address"},    // RFC 6890, section 2.1
	{"192.88.99.0/24", Private, "a reserved address"},  // 6to4 relays: RFC 7526
	{"198.18.0.0/15", Private, "a reserved address"},   // RFC 2544
	{"240.0.0.0/4", Private, "a reserved address"},     // RFC 1112, section 4
	{"::ffff:0:0:0/96", Private, "a reserved address"}, // IPv4-translated: RFC 2765
	{"100::/64", Private, "a reserved address"},        // discard: RFC 6666
	{"100:0:0:1::/64", Private, "a reserved address"},  // RFC 9780
	{"2001::/23", Private, "a reserved address"},       // RFC 2928; Teredo and others
}

func parse() (ranges []Range) {
	for _, r := range table {
		ranges = append(ranges, Range{netip.MustParsePrefix(r.prefix), r.kind, r.name})
	}
	return ranges
}

// Of returns the smallest range that contains addr. ok is false if no range does.
func Of(addr netip.Addr) (r Range, ok bool) {
	addr = addr.WithZone("") // a prefix contains no address with a zone
	for _, candidate := range ranges {
		if candidate.Prefix.Contains(addr) && candidate.Prefix.Bits() > r.Prefix.Bits() { // the zero Prefix has -1
			r, ok = candidate, true
		}
	}
	return r, ok
}

// Prefixes returns the prefixes of all ranges. Some lie within others.
func Prefixes() []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(ranges))
	for _, r := range ranges {
		prefixes = append(prefixes, r.Prefix)
	}
	return prefixes
}
