// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"bquic/internal/peer"
	"bquic/internal/profile"
	"bquic/internal/relay"
	"bquic/internal/uci"
)

const defaultFile = "../../../../../files/etc/config/bquic"

// example matches the commented examples in the default file.
var example = regexp.MustCompile(`(?m)^#((config|\toption|\tlist) )`)

// TestDefaultFile compares the file that packages install with the schema.
func TestDefaultFile(t *testing.T) {
	data, err := os.ReadFile(defaultFile)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Parse(defaultFile, data)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Gateway.Enabled || cfg.Relay.Enabled || len(cfg.Gateway.Sites) > 0 {
		t.Error("the default file starts something")
	}
	none, err := Parse("none", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cfg, none) {
		t.Errorf("the default file says\n%+v\nno file says\n%+v", cfg, none)
	}
	f, err := uci.Parse(defaultFile, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Sections {
		for _, o := range s.Options {
			var texts []string
			for _, v := range o.Values {
				texts = append(texts, v.Text)
			}
			if want := schemaOf(s.Type).option(o.Name).Default; !slices.Equal(texts, want) {
				t.Errorf("%s.%s: %q, the schema has %q", s, o.Name, texts, want)
			}
		}
	}

	// With its examples, the file is still valid, and names every option except
	// the parameters of profiles. A relay may have only one of pin and ca, and
	// its gateways either in a list or in sections.
	all := example.ReplaceAll(data, []byte("$1"))
	if _, err := Parse(defaultFile, all); err != nil {
		t.Errorf("with its examples: %v", err)
	}
	f, err = uci.Parse(defaultFile, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range Schema {
		for _, o := range schema.Options {
			named := slices.ContainsFunc(f.Sections, func(s *uci.Section) bool { return s.Type == schema.Type && s.Option(o.Name) != nil })
			if !named && schema.Type != "profile" && schema.Type != "upstream" && o.Name != "ca" {
				t.Errorf("%s.%s is not in the default file", schema.Type, o.Name)
			}
		}
	}
}

func TestSchema(t *testing.T) {
	for _, s := range Schema {
		for _, o := range s.Options {
			for _, text := range o.Default {
				if _, err := o.Type.parse(text); err != nil {
					t.Errorf("%s.%s: default: %v", s.Type, o.Name, err)
				}
			}
			if (len(o.Default) == 0) == (o.Note == "") {
				t.Errorf("%s.%s has not exactly one of Default and Note", s.Type, o.Name)
			}
		}
	}
}

// TestPorts checks that listeners at different addresses can have the same port.
func TestPorts(t *testing.T) {
	if _, err := Parse("conf", []byte("config gateway\n\toption listen '192.0.2.1:443'\n\toption metrics '127.0.0.1:443'\n\toption redirect '[::1]:443'\n")); err != nil {
		t.Error(err)
	}
}

func TestGateway(t *testing.T) {
	cfg, err := Parse("conf", []byte(`
config profile 'fast'
	option base 'calm'
	option burst_packets 'unlimited'
	option gso 'off'
config profile 'calm'
	option base 'bquic'
	option ack_packets 10
	option ack_delay 5
	option ask_peer no
config gateway
	option enabled yes
	option listen '[::1]:443'
	option certificate /c
	option key /k/../k
	option mesh '10.0.0.0/8 192.0.2.7'
	option mesh_profile fast
	option token 12345678
	list connect_to 127.0.0.0/8
	option log_level debug
config site
	list host Example.ORG.
	list host '[2001:DB8::0]'
	option root /www/
config site
	list host '*'
	option origin 'http://[::1]:8080/base'
`))
	if err != nil {
		t.Fatal(err)
	}
	g := cfg.Gateway
	mesh := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")}
	if !g.Enabled || g.Listen != "[::1]:443" || g.Certificate != "/c" || g.Key != "/k" || g.StateDir != "/etc/bquic" ||
		!slices.Equal(g.Mesh, mesh) || g.MeshProfile.Name != "fast" || g.Standard.Name != "standard" || g.Token != "12345678" ||
		!slices.Equal(g.ConnectFrom, mesh) || len(g.ConnectTo) != 1 || g.LogLevel.String() != "DEBUG" || len(g.Sites) != 2 {
		t.Errorf("got %+v", g)
	}
	if s := g.Sites[0]; !slices.Equal(s.Hosts, []string{"example.org", "2001:db8::"}) || s.Root != "/www" || s.Origins != nil {
		t.Errorf("got %+v", s)
	}
	if s := g.Sites[1]; s.Hosts[0] != "*" || s.Root != "" || len(s.Origins) != 1 || s.Origins[0].String() != "http://[::1]:8080/base" {
		t.Errorf("got %+v", s)
	}
	b := g.MeshProfile.Burst
	base := cfg.Profiles[profile.BQUIC].Burst
	base.AckPackets, base.AckDelay, base.AskPeer = 10, 5*time.Millisecond, false
	base.BurstPackets, base.NoGSO = quic.BurstUnlimited, true
	if b != base {
		t.Errorf("got %+v\nwant %+v", b, base)
	}
	var names []string
	for _, v := range g.MeshProfile.Values {
		names = append(names, v.Param)
	}
	if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) || !slices.Contains(names, "fast_pmtu") {
		t.Errorf("values of %q", names)
	}
}

func TestRelay(t *testing.T) {
	cfg, err := Parse("conf", []byte(`
config relay
	option enabled 1
	option gateway 'gw.example.org:8443'
	option pin 'sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
	option token abcdefgh
	option connections 8
	option mode tproxy
	option port 1
	list interface wlan0
	list interface br-lan.5
	list exclude fd00::/8
	option profile modquic
`))
	if err != nil {
		t.Fatal(err)
	}
	r := cfg.Relay.Relay
	if !slices.Equal(r.Gateways, relay.InOrder("gw.example.org:8443")) || len(r.Pins) != 1 || r.Pins[0].String() != "sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" || r.Token != "abcdefgh" ||
		r.Connections != 8 || r.Mode != "tproxy" || r.Port != 1 || !slices.Equal(r.Interfaces, []string{"wlan0", "br-lan.5"}) ||
		len(r.Exclude) != 1 || !r.Burst.WindowUpdates || cfg.Relay.Profile.Name != "modquic" || !cfg.Relay.Enabled {
		t.Errorf("got %+v", r)
	}
}

// TestUpstreams checks a relay's gateways and their order of preference.
func TestUpstreams(t *testing.T) {
	relayed := `
config relay
	option enabled 1
	option pin 'sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8='
	option token abcdefgh
`
	for _, tc := range []struct {
		name, text string
		want       []relay.Upstream
		mistakes   []string
	}{
		{"a list", relayed + "\tlist gateway a:1\n\tlist gateway b:2\n", []relay.Upstream{{Gateway: "a:1", Weight: 1000}, {Gateway: "b:2", Weight: 999}}, nil},
		{"sections", relayed + `
config upstream 'near'
	option gateway 'a:1'
	option weight 200
config upstream
	option gateway 'b:2'
config upstream
	option gateway 'c:3'
	option enabled 0
`, []relay.Upstream{{Gateway: "a:1", Weight: 200}, {Gateway: "b:2", Weight: 100}}, nil},
		{"none", relayed, nil, []string{"conf:2: @relay[0].gateway: missing"}},
		{"none that is enabled", relayed + "config upstream\n\toption gateway a:1\n\toption enabled 0\n", nil, []string{"conf:2: @relay[0].gateway: missing"}},
		{"both", relayed + "\tlist gateway a:1\nconfig upstream x\n\toption gateway b:1\n", nil,
			[]string{"conf:7: x: the relay already has gateways in its list, in line 6: use either the list or sections of type upstream"}},
		{"twice in the list", relayed + "\tlist gateway a:1\n\tlist gateway a:1\n", nil, []string{`conf:7: @relay[0].gateway: "a:1" is given twice: first in line 6`}},
		{"twice in sections", relayed + "config upstream\n\toption gateway a:1\nconfig upstream\n\toption gateway a:1\n", nil,
			[]string{`conf:9: @upstream[1].gateway: "a:1" is given twice: first in line 7`}},
		{"all that can be wrong with one", relayed + "config upstream\n\toption weight 0\n\toption enabled x\nconfig upstream\n\toption gateway a\n", nil, []string{
			"conf:2: @relay[0].gateway: missing", "conf:6: @upstream[0].gateway: missing", "conf:7: @upstream[0].weight: 0 is not in the range 1 to 1000",
			`conf:8: @upstream[0].enabled: "x" is neither 0 nor 1`, `conf:10: @upstream[1].gateway: "a" is not host:port, such as 10.1.2.3:8443 or [fd00::1]:8443`,
		}},
	} {
		cfg, err := Parse("conf", []byte(tc.text))
		if err != nil {
			if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, tc.mistakes) {
				t.Errorf("%s: mistakes %q, not %q", tc.name, got, tc.mistakes)
			}
		} else if got := cfg.Relay.Relay.Gateways; tc.mistakes != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, not %v, mistakes %q", tc.name, got, tc.want, tc.mistakes)
		}
	}
}

// TestMistakes checks that all mistakes are found, at the right lines, in order.
func TestMistakes(t *testing.T) {
	fourth := strings.TrimPrefix(peer.HashOf("fourth-token").String(), "sha256:")
	long := strings.Repeat("x", 64)
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"unclosed quote", "config gateway\n\toption listen ':443\n", []string{"conf:2: quote ' is never closed"}},
		{"unknown section type", "config gatway\n\toption x y\n", []string{`conf:1: @gatway[0]: unknown section type "gatway": expected one of gateway, site, peer, relay, upstream, profile`}},
		{"unknown option", "config gateway 'g'\n\toption lisen ':443'\n", []string{"conf:2: g.lisen: unknown option"}},
		{"duplicate section", "config gateway 'g'\nconfig gateway 'g'\n", []string{"conf:2: g: duplicate section: first in line 1"}},
		{"second gateway", "config gateway 'g'\nconfig gateway 'h'\n", []string{"conf:2: h: duplicate section: only one of type gateway is allowed, first in line 1"}},
		{"second relay", "config relay\nconfig relay\n", []string{"conf:2: @relay[1]: duplicate section: only one of type relay is allowed, first in line 1"}},
		{"duplicate option", "config gateway\n\toption enabled 0\n\toption enabled 1\n", []string{"conf:3: @gateway[0].enabled: given twice: first in line 2"}},
		{"list for option", "config gateway\n\tlist listen :443\n", []string{"conf:2: @gateway[0].listen: is not a list: write option instead of list"}},
		{"all at once", `config gateway 'gateway'
	option enabled 'maybe'
	option listen '443'
	list mesh '10.0.0.1/8'
	list mesh '10.0.0.0/33'
	option mesh_profile 'turbo'
	option state_dir 'etc'
	option token 'short'
	option log_level 'loud'
`, []string{
			`conf:2: gateway.enabled: "maybe" is neither 0 nor 1`,
			`conf:3: gateway.listen: "443" is not [address]:port, such as :8443 or 192.0.2.1:443`,
			`conf:4: gateway.mesh: 10.0.0.1/8 has bits set beyond its length: write 10.0.0.0/8`,
			`conf:5: gateway.mesh: "10.0.0.0/33" is not a prefix such as 10.0.0.0/8 or fd00::/8`,
			`conf:6: gateway.mesh_profile: unknown profile "turbo": expected one of ["standard" "bquic" "bquic-2019" "bquic-thesis" "modquic"]`,
			`conf:7: gateway.state_dir: "etc" is not an absolute path`,
			`conf:8: gateway.token: has 5 characters, expected 8 to 256`,
			`conf:9: gateway.log_level: "loud" is not debug, info, warn or error`,
		}},
		{"listen", "config gateway\n\toption listen 'localhost:443'\n", []string{`conf:2: @gateway[0].listen: "localhost" is not an IP address`}},
		{"a socket's path", "config gateway\n\toption status_socket '/" + strings.Repeat("g", 107) + "'\nconfig relay\n\toption status_socket '//" + strings.Repeat("r", 106) + "'\n", []string{
			"conf:2: @gateway[0].status_socket: has 108 bytes: the path of a socket may have at most 107",
		}},
		{"nothing but spaces", "config gateway\n\toption connect_from ' '\nconfig site\n\toption host '  '\n\toption root /\n", []string{
			"conf:2: @gateway[0].connect_from: missing", "conf:4: @site[0].host: missing",
		}},
		{"spaces around a value", `config gateway
	option state_dir '/etc/bquic '
	option access_log '/mnt/a drive/log	'
config relay
	list gateway ' 10.1.2.3:8443'
	list gateway 'gw.example.org :8443'
`, []string{
			`conf:2: @gateway[0].state_dir: "/etc/bquic " begins or ends with a space`,
			`conf:3: @gateway[0].access_log: "/mnt/a drive/log\t" begins or ends with a space`,
			`conf:5: @relay[0].gateway: " 10.1.2.3" is not a host name`,
			`conf:6: @relay[0].gateway: "gw.example.org " is not a host name`,
		}},
		{"a name for all", "config relay\n\tlist gateway '*:8443'\n\toption server_name '*'\n", []string{
			`conf:2: @relay[0].gateway: "*" is not a host name`, `conf:3: @relay[0].server_name: "*" is not a host name`,
		}},
		{"port", "config gateway\n\toption listen ':0'\n", []string{`conf:2: @gateway[0].listen: port "0" is not in the range 1 to 65535`}},
		{"one port for two", `config gateway
	option listen '127.0.0.1:8443'
	option redirect ':8443'
	option metrics '127.0.0.2:8443'
config relay
	option port '9465'
	option metrics '[::1]:9465'
`, []string{
			"conf:3: @gateway[0].redirect: listen already has this port",
			"conf:4: @gateway[0].metrics: redirect already has this port",
			"conf:7: @relay[0].metrics: port already has this port",
		}},
		{"one port for both daemons", `config gateway
	option enabled 1
	option listen ':12443'
	option metrics '127.0.0.1:9464'
config relay
	option enabled 1
	option gateway 'a:1'
	option token 'a-long-token'
	option ca /ca
	option metrics '127.0.0.1:9464'
	option status_socket '/var/run/bquic/gateway.sock'
`, []string{
			"conf:5: @relay[0].port: gateway.listen already has this port",
			"conf:10: @relay[0].metrics: gateway.metrics already has this port",
			"conf:11: @relay[0].status_socket: gateway.status_socket already has this path",
		}},
		{"one port for a daemon that is off", "config gateway\n\toption enabled 1\n\toption metrics '127.0.0.1:9464'\nconfig relay\n\toption metrics '127.0.0.1:9464'\n\toption enabled maybe\n", []string{
			`conf:6: @relay[0].enabled: "maybe" is neither 0 nor 1`,
		}},
		{"one port for two, by default", "config gateway\n\toption metrics '0.0.0.0:8443'\n", []string{"conf:2: @gateway[0].metrics: listen already has this port"}},
		{"key without certificate", "config gateway\n\toption key /k\n", []string{"conf:2: @gateway[0].key: certificate is missing"}},
		{"certificate without key", "config gateway\n\toption certificate /k\n", []string{"conf:2: @gateway[0].certificate: key is missing"}},
		{"token", "config gateway\n\toption token 'with spaces'\n", []string{"conf:2: @gateway[0].token: contains a space or a character that is not printable ASCII"}},
		{"site without anything", "config site\n", []string{"conf:1: @site[0].host: missing", "conf:1: @site[0]: root or origin is missing"}},
		{"site with both", "config site s\n\tlist host a\n\toption root /\n\toption origin http://b\n", []string{"conf:4: s.origin: root is given as well: a site can have only one of them"}},
		{"same host", "config site\n\tlist host a\n\toption root /\nconfig site\n\tlist host A.\n\toption root /\n", []string{`conf:5: @site[1].host: "a" is given twice: first in line 2`}},
		{"host", "config site\n\tlist host 'a b'\n\tlist host '" + long + "'\n\toption root /\n", []string{
			`conf:2: @site[0].host: "a b" is not a host name`, `conf:3: @site[0].host: "` + long + `" is not a host name`,
		}},
		{"names beyond ASCII", "config site\n\tlist host bücher.example\n\toption root /\nconfig relay\n\toption gateway 'bücher.example:443'\n", []string{
			`conf:2: @site[0].host: "bücher.example" has characters other than ASCII: write the form of the name that begins with xn--`,
			`conf:5: @relay[0].gateway: "bücher.example" has characters other than ASCII: write the form of the name that begins with xn--`,
		}},
		{"an origin's password", "config site\n\tlist host a\n\toption origin http://user:secret@b\n", []string{"conf:3: @site[0].origin: a user name or a password is not supported"}},
		{"origin", "config site\n\tlist host a\n\toption origin ftp://b\n", []string{`conf:3: @site[0].origin: "ftp://b" is not http:// or https:// with a host and, optionally, a port`}},
		{"origin's port", "config site\n\tlist host a\n\toption origin http://b:99999\n", []string{`conf:3: @site[0].origin: port "99999" is not in the range 1 to 65535`}},
		{"peers", `config gateway
	option token 'first-token'
config peer
	list token 'second-token'
config peer 'shared'
	list token 'third-token'
config peer 'north'
	list token 'fourth-token'
	list token 'first-token'
	list token 'sha256:12'
	list prefix '10.0.0.1/8'
	option tunnels '0'
	option rate '1.5'
config peer 'south'
	option enabled '0'
	list token 'sha256:` + fourth + `'
config peer 'east'
`, []string{
			"conf:3: @peer[0]: a peer needs a name: config peer 'name'",
			"conf:5: shared: this name is reserved for the relays that share gateway.token: choose another one",
			"conf:9: north.token: given twice: first in line 2",
			"conf:10: north.token: has 2 characters after sha256:, expected 64",
			"conf:11: north.prefix: 10.0.0.1/8 has bits set beyond its length: write 10.0.0.0/8",
			"conf:12: north.tunnels: 0 is not in the range 1 to 65536",
			`conf:13: north.rate: "1.5" is not a whole number`,
			"conf:16: south.token: given twice: first in line 8",
			"conf:17: east.token: missing",
		}},
		{"a relay's hash", "config relay\n\toption token 'sha256:" + fourth + "'\n", []string{
			"conf:2: @relay[0].token: is the hash of a token: a relay needs the token itself",
		}},
		{"relay", "config relay\n\toption enabled 1\n", []string{
			"conf:1: @relay[0].gateway: missing", "conf:1: @relay[0].token: missing", "conf:1: @relay[0]: pin or ca is missing",
		}},
		{"gateway without brackets", "config relay\n\tlist gateway 'fd00::1:8443'\n", []string{`conf:2: @relay[0].gateway: "fd00::1:8443" is not host:port, such as 10.1.2.3:8443 or [fd00::1]:8443`}},
		{"relay's values", `config relay
	option gateway gw
	option pin sha256/short
	option connections 9
	option mode nat
	option port x
	list interface 'a b'
	option profile none
	option cpu_share 101
`, []string{
			`conf:2: @relay[0].gateway: "gw" is not host:port, such as 10.1.2.3:8443 or [fd00::1]:8443`,
			`conf:3: @relay[0].pin: "sha256/short" is not sha256/ followed by 32 bytes in base64`,
			`conf:4: @relay[0].connections: 9 is not in the range 1 to 8`,
			`conf:5: @relay[0].mode: "nat" is not redirect or tproxy`,
			`conf:6: @relay[0].port: "x" is not a whole number`,
			`conf:7: @relay[0].interface: "a b" is not a device name`,
			`conf:8: @relay[0].profile: unknown profile "none": expected one of ["standard" "bquic" "bquic-2019" "bquic-thesis" "modquic"]`,
			`conf:9: @relay[0].cpu_share: 101 is not in the range 0 to 100`,
		}},
		{"auto and a share beyond the limit", "config relay\n\toption control_share 80\n\toption auto 1\n", []string{
			"conf:2: @relay[0].control_share: 80 is not in the range 0 to 50",
		}},
		{"devices, and the port of QUIC", `config relay
	list interface a23456789012345
	list interface a234567890123456
	list interface ..
	list udp_port 400-442
	list udp_port 443
	list udp_port 53-443
`, []string{
			`conf:3: @relay[0].interface: "a234567890123456" is not a device name`,
			`conf:4: @relay[0].interface: ".." is not a device name`,
			`conf:6: @relay[0].udp_port: 443 includes port 443: the relay leaves the clients' own QUIC alone`,
			`conf:7: @relay[0].udp_port: 53-443 includes port 443: the relay leaves the clients' own QUIC alone`,
		}},
		{"pin and ca", "config relay\n\toption pin sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n\toption ca /ca\n", []string{
			"conf:3: @relay[0].ca: pin is given as well: the relay checks only one of them",
		}},
		{"profiles", `config profile
config profile 'standard'
config profile 'a'
	option base 'b'
config profile 'b'
	option base 'a'
config profile 'c'
	option base 'd'
	option burst_packets 'many'
config profile 'e'
	option ack_packets '-1'
	option ack_rtt 'max'
	option ack_delay '0'
	option gso '2'
	option nothing '1'
`, []string{
			"conf:1: @profile[0]: a profile needs a name: config profile 'name'",
			"conf:2: standard: the built-in profile of this name cannot be changed: choose another name",
			`conf:4: a.base: profile "b" is based on this one`,
			`conf:6: b.base: profile "a" is based on this one`,
			`conf:8: c.base: unknown profile "d"`,
			`conf:9: c.burst_packets: "many" is not a whole number, nor unlimited`,
			`conf:11: e.ack_packets: -1 is not in the range 1 to 1000, nor 0`,
			`conf:12: e.ack_rtt: "max" is not smoothed, min or queue`,
			`conf:13: e.ack_delay: 0 is not in the range 1 to 1000`,
			`conf:14: e.gso: "2" is neither 0 nor 1`,
			`conf:15: e.nothing: unknown option`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := Parse("conf", []byte(test.text))
			if err == nil {
				t.Fatal("no mistake found")
			}
			got := strings.Split(err.Error(), "\n")
			if cfg != nil || !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

func TestPeers(t *testing.T) {
	hash := peer.HashOf("kept as a hash")
	cfg, err := Parse("conf", []byte(`
config gateway
	option token 'shared-token'
	list connect_from '10.0.0.0/8'
config peer 'north'
	list token 'clear-token'
	list token '`+hash.String()+`'
	list prefix '10.1.0.0/16'
	option tunnels '200'
	option rate '8'
config peer 'south'
	option token 'south-one south-two'
config peer 'gone'
	option enabled '0'
	list token 'gone-token'
`))
	if err != nil {
		t.Fatal(err)
	}
	from := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	want := []peer.Config{
		{Name: "north", Tokens: []peer.Hash{peer.HashOf("clear-token"), hash}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Tunnels: 200, Rate: 1e6},
		{Name: "south", Tokens: []peer.Hash{peer.HashOf("south-one"), peer.HashOf("south-two")}, Prefixes: from},
		{Name: "shared", Tokens: []peer.Hash{peer.HashOf("shared-token")}, Prefixes: from},
	}
	if got := cfg.Gateway.Relays(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if cfg, err := Parse("conf", nil); err != nil || len(cfg.Gateway.Relays()) != 0 {
		t.Errorf("relays without a token: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{defaultFile, "testdata/*.conf"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatalf("%s: no seeds: %v", pattern, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
			f.Add(example.ReplaceAll(data, []byte("$1")))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("conf", data)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("%v, %v", cfg, err)
		}
		if err == nil && cfg.Relay.Enabled && len(cfg.Relay.Relay.Pins) == 0 && cfg.Relay.Relay.CAFile == "" {
			t.Fatal("a relay that trusts anyone")
		}
	})
}

func TestDaemons(t *testing.T) {
	const gateway, relay = "/var/run/bquic/gateway.sock", "/var/run/bquic/relay.sock"
	for _, tc := range []struct {
		text           string
		gateway, relay Daemon
	}{
		{"\n", Daemon{gateway, true}, Daemon{relay, true}},
		{"", Daemon{gateway, false}, Daemon{relay, false}}, // uci had no room to write it
		{"config relay\n\toption enabled 'on'\n\toption status_socket '/tmp/r.sock'\n", Daemon{gateway, true}, Daemon{"/tmp/r.sock", false}},
		{"config gateway\n\toption lisen ':1'\n\toption enabled '1'\n\toption status_socket '/tmp/g.sock'\nconfig relay\n\toption connections '99'\n", Daemon{"/tmp/g.sock", false}, Daemon{relay, true}},
		{"config gateway\n\toption status_socket 'relative'\n", Daemon{gateway, true}, Daemon{relay, true}},
		{"config gateway\n\toption status_socket '/tmp/g.sock\n", Daemon{gateway, false}, Daemon{relay, false}}, // unclosed: what else it says is not known
	} {
		file := filepath.Join(t.TempDir(), "conf")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if g, r, err := Daemons(file); g != tc.gateway || r != tc.relay || err != nil {
			t.Errorf("%q: %v, %v, %v", tc.text, g, r, err)
		}
	}
	if g, r, err := Daemons(filepath.Join(t.TempDir(), "none")); g != (Daemon{Socket: gateway}) || r != (Daemon{Socket: relay}) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v, %v, %v", g, r, err)
	}
}
