// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	good := Config{
		Gateways: InOrder("gateway.example:443"), Pins: []string{"sha256/" + strings.Repeat("A", 43) + "="},
		Token: "x", Interfaces: []string{"br-lan"},
	}
	if _, err := New(good, nil); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		option string
		change func(*Config)
	}{
		{"gateway", func(c *Config) { c.Gateways = nil }},
		{"gateway", func(c *Config) { c.Gateways = InOrder("gateway.example") }},
		{"gateway", func(c *Config) { c.Gateways = InOrder("gateway.example:0") }},
		{"gateway", func(c *Config) { c.Gateways = InOrder("gateway.example:70000") }},
		{"pin", func(c *Config) { c.Pins = nil }},
		{"pin", func(c *Config) { c.CAFile = "/etc/ssl/cert.pem" }},
		{"pin", func(c *Config) { c.Pins = []string{"sha256/AAAA"} }},
		{"pin", func(c *Config) { c.Pins = []string{strings.Repeat("A", 43) + "="} }},
		{"ca", func(c *Config) { c.Pins, c.CAFile = nil, "/nonexistent" }},
		{"ca", func(c *Config) { c.Pins, c.CAFile = nil, "/dev/null" }},
		{"token", func(c *Config) { c.Token = "" }},
		{"token", func(c *Config) { c.Token = "a\nb" }},
		{"connections", func(c *Config) { c.Connections = 9 }},
		{"connections", func(c *Config) { c.Connections = -1 }},
		{"mode", func(c *Config) { c.Mode = "nat" }},
		{"port", func(c *Config) { c.Port = 70000 }},
		{"interface", func(c *Config) { c.Interfaces = nil }},
		{"interface", func(c *Config) { c.Interfaces = []string{`x" } accept; `} }},
		{"interface", func(c *Config) { c.Interfaces = []string{"a-name-that-is-too-long"} }},
		{"exclude", func(c *Config) { c.Exclude = []netip.Prefix{{}} }},
		{"limit", func(c *Config) { c.Limit = -1 }},
	} {
		c := good
		tc.change(&c)
		_, err := New(c, nil)
		if err == nil || !strings.HasPrefix(err.Error(), tc.option) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v", tc.option, err)
		}
	}
}

func TestClientHello(t *testing.T) {
	for _, tc := range []struct {
		data []byte
		want int
	}{
		{nil, 0},
		{[]byte{22, 3, 1, 0}, 0},
		{[]byte{22, 3, 1, 0, 3}, 5},
		{[]byte{22, 3, 1, 0, 3, 'a'}, 6},
		{[]byte{22, 3, 1, 0, 3, 'a', 'b', 'c'}, 8},
		{[]byte{22, 3, 1, 0, 3, 'a', 'b', 'c', 23, 3, 3}, 8}, // early data waits
		{[]byte("POST / HTTP/1.1\r\n"), 0},
		{[]byte("SSH-2.0-OpenSSH_9.2\r\n"), 0},
	} {
		if got := clientHello(tc.data); got != tc.want {
			t.Errorf("%q: %d, not %d", tc.data, got, tc.want)
		}
	}
}
