// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestPolicy(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:198.51.100.2"), netip.MustParseAddr("127.0.0.1")}
	for _, tc := range []struct {
		name    string
		allow   string // prefixes
		addr    string
		because string // part of the error; empty: allowed
	}{
		{"public", "", "192.0.2.1", ""},
		{"public v6", "", "2001:db8:1::1", ""},
		{"private", "", "10.1.2.3", ""},
		{"loopback", "", "127.0.0.1", "loopback"},
		{"all of loopback", "", "127.255.1.2", "loopback"},
		{"loopback v6", "", "::1", "loopback"},
		{"unspecified", "", "0.0.0.0", "unspecified"},
		{"this network", "", "0.1.2.3", "unspecified"},
		{"unspecified v6", "", "::", "unspecified"},
		{"IPv4-compatible", "", "::127.0.0.1", "unspecified"},
		{"link-local", "", "169.254.169.254", "link-local"},
		{"link-local v6", "", "fe80::1", "link-local"},
		{"link-local v6, zone", "", "fe80::1%eth0", "link-local"},
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
		{"own, listed as mapped", "", "198.51.100.2", "gateway itself"},

		{"in a prefix", "192.0.2.0/24 2001:db8::/32", "192.0.2.9", ""},
		{"in the other prefix", "192.0.2.0/24 2001:db8::/32", "2001:db8:2::9", ""},
		{"in no prefix", "192.0.2.0/24 2001:db8::/32", "192.0.3.1", "no allowed prefix"},
		{"everything is not loopback", "0.0.0.0/0", "127.0.0.1", "loopback"},
		{"everything is not own", "0.0.0.0/0", "198.51.100.1", "gateway itself"},
		{"a network is not the own address in it", "198.51.100.0/24", "198.51.100.1", "gateway itself"},
		{"loopback by name", "127.0.0.0/8", "127.0.0.1", ""},
		{"one loopback address", "127.0.0.1/32", "127.0.0.1", ""},
		{"another loopback address", "127.0.0.1/32", "127.0.0.2", "loopback"},
		{"own by name", "198.51.100.1/32", "198.51.100.1", ""},
		{"unspecified by name", "0.0.0.0/32", "0.0.0.0", "unspecified"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Policy{Own: own}
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
	for link, want := range map[string]string{
		"10.78.3.9/22": "[10.78.0.0 10.78.3.255]", "192.0.2.1/30": "[192.0.2.0 192.0.2.3]", "192.0.2.1/31": "[]", "192.0.2.1/32": "[]", "2001:db8::1/64": "[]",
	} {
		if got := fmt.Sprint(broadcast(netip.MustParsePrefix(link))); got != want {
			t.Errorf("broadcast addresses of %s: %s, want %s", link, got, want)
		}
	}
	if (&Policy{}).Allowed(netip.Addr{}) == nil {
		t.Error("the zero Addr is allowed")
	}
}
