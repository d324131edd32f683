// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"reflect"
	"testing"
)

// TestUpgrade reads a configuration of version 0.1.0: every option of that
// version is known and has the same meaning.
func TestUpgrade(t *testing.T) {
	const file = "testdata/0.1.0.conf"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	if !cfg.Gateway.Enabled || !cfg.Relay.Enabled || cfg.Gateway.Listen != ":8443" || len(cfg.Gateway.Sites) != 2 {
		t.Errorf("gateway: %+v", cfg.Gateway)
	}
	if relays := cfg.Gateway.Relays(); len(relays) != 1 || len(cfg.Gateway.Peers) > 0 ||
		!reflect.DeepEqual(relays[0].Prefixes, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) {
		t.Errorf("the gateway's only token: %+v", relays)
	}
	own, ok := cfg.Profiles["own"]
	if !ok || len(own.Values) < 16 || !reflect.DeepEqual(own, cfg.Gateway.MeshProfile) || !reflect.DeepEqual(own, cfg.Relay.Profile) {
		t.Errorf("the profile own: %+v", own)
	}
}
