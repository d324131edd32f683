// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestPolicy(t *testing.T) {
	own := ownTable{"198.51.100.1": "local", "198.51.100.255": "broadcast", "2001:db8::1": "local", "2001:db8::1%eth0": "local", "2001:db8::": "anycast",
		"127.0.0.1": "local", "127.0.0.2": "local", "10.0.0.1": "local", "fe80::1%eth0": "local", "239.1.1.1": "multicast"}
	for _, tc := range []struct {
		name    string
		allow   string // prefixes
		addr    string
		because string // part of the error; empty: allowed
	}{
		{"public", "", "192.0.2.1", ""},
		{"public v6", "", "2001:db8:1::1", ""},
		{"private", "", "10.1.2.3", "private"},
		{"private 172", "", "172.20.2.3", "private"},
		{"private 192", "", "192.168.2.3", "private"},
		{"a carrier's", "", "100.64.0.1", "private"},
		{"private v6", "", "fd00::1", "private"},
		{"reserved", "", "240.0.0.1", "reserved"},
		{"benchmarks", "", "198.18.0.1", "reserved"},
		{"NAT64 of a private address", "", "64:ff9b::a01:203", "private"},
		{"6to4 of a private address", "", "2002:a01:203::1", "private"},
		{"a translator's own prefix", "", "64:ff9b:1::1", "private"},
		{"loopback", "", "127.0.0.1", "loopback"},
		{"all of loopback", "", "127.255.1.2", "loopback"},
		{"loopback v6", "", "::1", "loopback"},
		{"unspecified", "", "0.0.0.0", "unspecified"},
		{"this network", "", "0.1.2.3", "unspecified"},
		{"unspecified v6", "", "::", "unspecified"},
		{"IPv4-compatible", "", "::127.0.0.1", "unspecified"},
		{"link-local", "", "169.254.169.254", "link-local"},
		{"link-local v6", "", "fe80::1", "link-local"},
		{"link-local v6, zone", "", "fe80::9%eth0", "link-local"},
		{"own v6 with a zone", "", "2001:db8::1%eth0", "gateway itself"},
		{"multicast", "", "239.1.1.1", "multicast"},
		{"multicast v6", "", "ff02::1", "multicast"},
		{"broadcast", "", "255.255.255.255", "broadcast"},
		{"mapped loopback", "", "::ffff:127.0.0.1", "IPv4-mapped"},
		{"mapped public", "", "::ffff:192.0.2.1", "IPv4-mapped"},
		{"mapped, allowed", "::ffff:0:0/96", "::ffff:192.0.2.1", "IPv4-mapped"},
		{"NAT64 of loopback", "", "64:ff9b::7f00:1", "loopback"},
		{"NAT64 of an own address", "", "64:ff9b::c633:6401", "gateway itself"},
		{"NAT64 of a public address", "", "64:ff9b::c000:201", ""},
		{"6to4 of loopback", "", "2002:7f00:1::1", "loopback"},
		{"own", "", "198.51.100.1", "gateway itself"},
		{"own v6", "", "2001:db8::1", "gateway itself"},
		{"broadcast of a link", "", "198.51.100.255", "gateway itself (broadcast)"},
		{"subnet-router anycast", "", "2001:db8::", "gateway itself (anycast)"},
		{"the kernel does not say", "", "192.0.2.99", "out of order"},

		{"in a prefix", "192.0.2.0/24 2001:db8::/32", "192.0.2.9", ""},
		{"in the other prefix", "192.0.2.0/24 2001:db8::/32", "2001:db8:2::9", ""},
		{"in no prefix", "192.0.2.0/24 2001:db8::/32", "192.0.3.1", "not in an allowed prefix"},
		{"everything is not loopback", "0.0.0.0/0", "127.0.0.1", "loopback"},
		{"everything is not own", "0.0.0.0/0", "198.51.100.1", "gateway itself"},
		{"a network is not the own address in it", "198.51.100.0/24", "198.51.100.1", "gateway itself"},
		{"loopback by name", "127.0.0.0/8", "127.0.0.1", ""},
		{"one loopback address", "127.0.0.1/32", "127.0.0.1", ""},
		{"another loopback address", "127.0.0.1/32", "127.0.0.2", "loopback"},
		{"own by name", "198.51.100.1/32", "198.51.100.1", ""},
		{"own link-local by name of all", "fe80::/10", "fe80::1%eth0", "gateway itself"},
		{"link-local by name, zone", "fe80::/10", "fe80::9%eth0", ""},
		{"multicast by name", "239.0.0.0/8", "239.1.1.1", ""},
		{"everything is not private", "0.0.0.0/0", "10.1.2.3", "private"},
		{"more than private", "10.0.0.0/7", "10.1.2.3", "private"},
		{"private by name", "10.0.0.0/8", "10.1.2.3", ""},
		{"part of private by name", "10.1.0.0/16", "10.1.2.3", ""},
		{"another part of private", "10.1.0.0/16", "10.2.2.3", "private"},
		{"own in private by name", "10.0.0.0/8", "10.0.0.1", "gateway itself"},
		{"private v6 by name", "fd00::/8", "fd00::1", ""},
		{"private by name beside everything", "0.0.0.0/0 10.0.0.0/8", "10.1.2.3", ""},
		{"NAT64 of private by name of one", "64:ff9b::/96", "64:ff9b::a01:203", "private"},
		{"NAT64 of private by name of both", "64:ff9b::/96 10.0.0.0/8", "64:ff9b::a01:203", ""},
		{"mapped private by name", "10.0.0.0/8 ::ffff:0:0/96", "::ffff:10.1.2.3", "IPv4-mapped"},
		{"unspecified by name", "0.0.0.0/32", "0.0.0.0", "unspecified"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Policy{Own: own.kind}
			for a := range strings.FieldsSeq(tc.allow) {
				p.Allow = append(p.Allow, netip.MustParsePrefix(a))
			}
			err := p.Allowed(netip.MustParseAddr(tc.addr))
			switch {
			case tc.because == "" && err != nil:
				t.Errorf("%s refused: %v", tc.addr, err)
			case tc.because != "" && err == nil:
				t.Errorf("%s allowed", tc.addr)
			case tc.because != "" && !strings.Contains(err.Error(), tc.because):
				t.Errorf("%s refused because %q, not because of %q", tc.addr, err, tc.because)
			}
		})
	}
	if p := new(Policy); p.Allowed(netip.Addr{}) == nil || p.Allowed(netip.MustParseAddr("192.0.2.1")) != nil {
		t.Error("the zero Addr is allowed, or a public one is not")
	}
}

// An ownTable stands in for the kernel.
type ownTable map[string]string

func (o ownTable) kind(addr netip.Addr) (string, error) {
	if addr.String() == "192.0.2.99" {
		return "", errors.New("out of order")
	}
	return o[addr.String()], nil
}
