// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestList checks that nft can list the tables. nft fails on keys with unknown data
// types, and the node's own firewall would fail with it.
func TestList(t *testing.T) {
	table := tableApart(t)
	defer table.close()
	if err := table.openBridge(); err != nil {
		t.Fatal(err)
	}
	r := bridgedRules()
	r.Bridges = nil // not every kernel can queue bridged packets
	if err := table.apply(&r); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil || strings.Count(string(out), "@taken") < 4 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestListed checks that the kernel has the rules that are shown. nft words other lines than these in its own way.
func TestListed(t *testing.T) {
	table := tableApart(t)
	defer table.close()
	same := regexp.MustCompile(`(?m)^\t\t((ip6? daddr|ct zone|oifname|iifname \S+ oifname) .*|iifname .* (goto uplink|notrack)|meta .* (dnat ip6? to .*|notrack))$`)
	r := Rules{
		Port: 12443, TCP: true, UDP: []Ports{{53, 53}}, Flows: []string{"br-lan", "mesh"}, Clients: []string{"br-lan", "mesh"}, Uplinks: []string{"mesh", "wan"},
		Node: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
	}
	for _, p := range []string{"192.0.2.0/25", "192.0.3.1/32", "10.0.0.0/8", "100.64.0.0/10", "fc00::/7", "2001:db8::/35", "2001:db8::1/128"} {
		r.Exclude = append(r.Exclude, netip.MustParsePrefix(p))
	}
	r.Mode = Redirect
	if err := table.apply(&r); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile("/(32|128) return") // nft shows an address without its length
	lines := same.FindAllString(r.String(), -1)
	for _, line := range lines {
		if line = whole.ReplaceAllString(line, " return"); !strings.Contains(string(out), line+"\n") {
			t.Errorf("no %q in %s", line, out)
		}
	}
	if len(lines) != len(r.Exclude)+11 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}
