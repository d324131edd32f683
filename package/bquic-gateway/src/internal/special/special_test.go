// SPDX-License-Identifier: Apache-2.0

package special

import (
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	for addr, want := range map[string]Kind{
		"0.0.0.0": Nowhere, "0.1.2.3": Nowhere, "::": Nowhere, "::127.0.0.1": Nowhere, "::ffff:192.0.2.1": Nowhere,
		"127.8.8.8": Local, "::1": Local, "169.254.169.254": Local, "fe80::1": Local, "fe80::1%eth0": Local,
		"224.0.0.1": Local, "239.255.255.255": Local, "ff02::1": Local, "255.255.255.255": Local,
		"10.0.0.1": Private, "172.16.0.1": Private, "172.31.255.255": Private, "192.168.1.1": Private,
		"100.64.0.1": Private, "100.127.255.255": Private, "fc00::1": Private, "fdff::1": Private, "fec0::1": Private,
		"198.18.0.1": Private, "198.19.255.255": Private, "240.0.0.1": Private, "255.255.255.254": Private,
		"192.0.0.1": Private, "192.88.99.1": Private, "64:ff9b:1::1": Private, "100::1": Private,
		"2001::1": Private, "2001:1ff::1": Private, "::ffff:0:1.2.3.4": Private,
		// The addresses next to these ranges.
		"1.0.0.0": 0, "9.255.255.255": 0, "11.0.0.0": 0, "100.63.255.255": 0, "100.128.0.0": 0, "128.0.0.1": 0,
		"172.15.255.255": 0, "172.32.0.0": 0, "192.169.0.0": 0, "198.17.255.255": 0, "198.20.0.0": 0, "223.255.255.255": 0,
		"192.0.1.0": 0, "2001:200::1": 0, "2000::1": 0, "2002::1": 0, "2a00::1": 0, "64:ff9b::1": 0, "fb00::1": 0,
		// Documentation.
		"192.0.2.1": 0, "198.51.100.1": 0, "203.0.113.1": 0, "2001:db8::1": 0,
	} {
		r, ok := Of(netip.MustParseAddr(addr))
		if r.Kind != want || ok != (want != 0) {
			t.Errorf("%s: kind %d (%s), want %d", addr, r.Kind, r.Name, want)
		}
	}
	if r, ok := Of(netip.Addr{}); ok {
		t.Errorf("the zero Addr is %s", r.Name)
	}
	for i, p := range Prefixes() {
		if p != p.Masked() || p != ranges[i].Prefix {
			t.Errorf("%s", p)
		}
	}
}
