// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bquic/internal/config"
	"bquic/internal/uci"
)

// plan returns the plan for a configuration text on a system where dirs exist. "dir on drive" is on another drive, "link>target" is
// a symbolic link.
func plan(t testing.TB, role, text string, dirs ...string) *Plan {
	t.Helper()
	f, err := uci.Parse("bquic", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.New(f)
	if err != nil {
		t.Fatal(err)
	}
	cut := func(path, mark string) string {
		for _, dir := range dirs {
			if rest, ok := strings.CutPrefix(dir, path+mark); ok {
				return rest
			}
		}
		return ""
	}
	return newPlan(role, f, cfg, func(dir string) string {
		if slices.Contains(dirs, dir) {
			return "flash"
		}
		return cut(dir, " on ")
	}, func(path string) string { return cmp.Or(cut(path, ">"), path) })
}

func printed(t testing.TB, p *Plan) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Print(&b, "/made"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	sites = `config gateway 'g'
	option enabled '1'
	option listen '[2001:db8::1]:443'
	list mesh '10.0.0.0/8'
	list connect_from '10.0.0.0/8'
	list connect_from '192.0.2.1'
	option certificate '/etc/acme/x/full.pem'
	option key '/etc/acme/x/key.pem'
	option access_log '/var/log/bquic/access.log'
config site
	list host 'a'
	option root '/www/a'
config site
	list host 'b'
	option root '/data/my site'
	option certificate '/data/certs/b.pem'
	option key '/data/keys/b.pem'
config site
	list host 'c'
	list origin 'https://192.0.2.2'
	option origin_ca '/data/certs/ca.pem'
config profile 'mine'
	option base 'bquic'
`
	relays = `config relay 'r'
	option enabled '1'
	option gateway 'g.example:8443'
	option token '12345678'
	option ca '/etc/ssl/cert.pem'
	option profile 'mine'
	list interface 'br-lan'
	list interface 'wlan0'
`
)

func TestPrint(t *testing.T) {
	dirs := []string{"/www", "/www/a", "/etc/ssl/certs", "/etc/acme/x", "/data/my site", "/data/certs"}
	for _, test := range []struct{ name, role, text, want string }{
		{"nothing", Gateway, "", "enabled 0\n"},
		{"off", Relay, sites, "enabled 0\n"},
		{"defaults", Gateway, "config gateway\n\toption enabled '1'\n", `enabled 1
config /made/gateway/conf
fixed /made/gateway/fixed
see /made/gateway
see /etc/ssl/certs
see /www
see /etc/hosts
write /var/run/bquic
write /etc/bquic
rule
string type rule
string src *
string proto tcpudp
string dest_port 8443
string target ACCEPT
array src_ip
item 10.0.0.0/8
item fd00::/8
end array
end rule
`},
		{"sites", Gateway, sites, `enabled 1
config /made/gateway/conf
fixed /made/gateway/fixed
see /made/gateway
see /etc/ssl/certs
see /www
see /etc/acme/x
see /data/my site
see /data/certs
see /etc/hosts
write /var/run/bquic
write /var/log/bquic
rule
string type rule
string src *
string proto tcpudp
string dest_port 443
string target ACCEPT
array src_ip
item 10.0.0.0/8
item 192.0.2.1/32
end array
end rule
`},
		{"redirect", Relay, relays + "config profile 'mine'\n", "enabled 1\nconfig /made/relay/conf\nfixed /made/relay/fixed\n"},
		{"udp", Relay, strings.Replace(relays, "\tlist interface 'wlan0'\n", "\tlist udp_port '53'\n", 1) + "config profile 'mine'\n", `enabled 1
config /made/relay/conf
fixed /made/relay/fixed
rule
string type rule
string src *
string proto all
string target ACCEPT
string mark 0x62000072/0xff0000ff
end rule
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := printed(t, plan(t, test.role, test.text, dirs...)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	if err := plan(t, Gateway, "config gateway\n\toption enabled '1'\n\toption state_dir '/a\nrule'\n").Print(new(bytes.Buffer), "/made"); err == nil {
		t.Error("a path with a line break was printed")
	}
}

// TestDrives checks that the jail shows what is on a mounted drive. ujail shows a directory without what is mounted below it.
func TestDrives(t *testing.T) {
	p := plan(t, Gateway, `config gateway
	option enabled '1'
	option acme_webroot '/srv/disk/acme'
	option redirect ':80'
config site
	list host 'a'
	option root '/mnt/sda1/www'
`, "/mnt", "/mnt/sda1", "/mnt/sda1/www", "/srv", "/srv/disk", "/srv/disk/acme", "/www")
	if want := []string{"/www", "/srv/disk/acme", "/mnt/sda1/www", "/etc/hosts"}; !slices.Equal(p.See, want) {
		t.Errorf("sees %q, want %q", p.See, want)
	}

	// A drive that is mounted while the gateway runs is shown to it by a restart, also where a directory was before.
	for _, root := range []string{"/mnt/sda1", "/www/disk"} {
		text := "config gateway\n\toption enabled 1\nconfig site\n\toption host a\n\toption root " + root + "\n"
		before, after := plan(t, Gateway, text, "/www", root), plan(t, Gateway, text, "/www", root+" on sda1")
		if !slices.Contains(after.See, root) {
			t.Errorf("does not see %s: %q", root, after.See)
		}
		if after.Fixed == before.Fixed {
			t.Errorf("no restart when a drive is mounted at %s", root)
		}
		log := "config gateway\n\toption enabled 1\n\toption access_log " + root + "/log/bquic/access.log\n"
		if plan(t, Gateway, log, root).Fixed == plan(t, Gateway, log, root+" on sda1").Fixed {
			t.Errorf("no restart when the drive of the access log is mounted at %s", root)
		}
		if plan(t, Gateway, log, root).Fixed != plan(t, Gateway, log, root, root+"/log", root+"/log/bquic").Fixed {
			t.Error("a restart although only the directory of the access log was made")
		}
		if again := plan(t, Gateway, text, "/www", root+" on sda1"); again.Fixed != after.Fixed {
			t.Errorf("a restart although nothing was mounted: %s", again.Fixed)
		}
	}
}

// TestLinks checks that the jail shows where links lead, as OpenWrt's acme makes them for certificates.
func TestLinks(t *testing.T) {
	p := plan(t, Gateway, `config gateway
	option enabled '1'
	option certificate '/etc/ssl/acme/a.fullchain.crt'
	option key '/etc/ssl/acme/a.key'
config site
	list host 'a'
	option root '/www/disk'
`, "/etc/ssl/acme", "/etc/ssl/acme/a.fullchain.crt>/etc/acme/a_ecc/fullchain.cer", "/etc/ssl/acme/a.key>/etc/acme/a_ecc/a.key", "/etc/acme/a_ecc",
		"/www", "/www/disk/index.html>/mnt/sda1/index.html", "/mnt/sda1")
	if want := []string{"/www", "/etc/ssl/acme", "/etc/acme/a_ecc", "/mnt/sda1", "/etc/hosts"}; !slices.Equal(p.See, want) {
		t.Errorf("sees %q, want %q", p.See, want)
	}
}

// TestKeys checks that no directory is missing in the jail because its name differs from another one's only in characters that procd's
// shell functions do not tell apart.
func TestKeys(t *testing.T) {
	roots := []string{"/srv/a-b", "/srv/a_b", "/srv/a.b"}
	text := "config gateway\n\toption enabled '1'\n"
	for i, root := range roots {
		text += fmt.Sprintf("config site\n\tlist host '%d.example'\n\toption root '%s'\n", i, root)
	}
	keys := map[string]string{}
	for line := range strings.Lines(printed(t, plan(t, Gateway, text, roots...))) {
		if kind, dir, _ := strings.Cut(strings.TrimSpace(line), " "); kind == "see" || kind == "write" {
			keys[regexp.MustCompile(`[^A-Za-z0-9_]`).ReplaceAllString(dir, "_")] = filepath.Clean(dir)
		}
	}
	shown := slices.Collect(maps.Values(keys))
	for _, root := range roots {
		if !slices.Contains(shown, root) {
			t.Errorf("%s is missing in the jail, which shows %v", root, shown)
		}
	}
}

// TestExtract checks that each daemon receives only its own sections, and that
// they configure it like the whole file.
func TestExtract(t *testing.T) {
	text := sites + relays
	g, r := plan(t, Gateway, text), plan(t, Relay, text)
	if s := string(g.Config); strings.Contains(s, "'relay'") || strings.Count(s, "config 'site'") != 3 || !strings.Contains(s, "config 'profile' 'mine'") {
		t.Errorf("gateway:\n%s", s)
	}
	if s := string(r.Config); strings.Contains(s, "'gateway' 'g'") || strings.Contains(s, "'site'") || !strings.Contains(s, "config 'profile' 'mine'") {
		t.Errorf("relay:\n%s", s)
	}
	if a, b := printed(t, g), printed(t, plan(t, Gateway, string(g.Config))); a != b {
		t.Errorf("from all\n%s\nfrom its own\n%s", a, b)
	}
	if a, b := r.Fixed, plan(t, Relay, string(r.Config)).Fixed; a != b {
		t.Errorf("from all\n%s\nfrom its own\n%s", a, b)
	}
}

// TestFixed checks that a daemon restarts after a change of an option that it cannot change while it runs, and not
// after other changes.
func TestFixed(t *testing.T) {
	for _, test := range []struct {
		role, text string
		lines      []string
		fixed      bool
	}{
		{Gateway, "config gateway\n\toption enabled '1'\n", []string{"option listen ':1'", "option status_socket '/x/y'", "option metrics '127.0.0.1:1'", "option redirect ':80'"}, true},
		{Gateway, "config gateway\n\toption enabled '1'\n", []string{"option max_connections '1'", "list mesh '10.1.0.0/16'"}, false},
		{Relay, relays, []string{"option mode 'tproxy'", "option port '1'", "option connections '2'", "option bridge '0'", "option state_dir '/x'",
			"option status_socket '/x/y'", "option metrics '127.0.0.1:1'"}, true},
		{Relay, relays, []string{"list exclude '192.0.2.0/24'", "option cpu_share '1'", "option log_level 'debug'"}, false},
	} {
		rest := "config profile 'mine'\n"
		before := plan(t, test.role, test.text+rest).Fixed
		for _, line := range test.lines {
			if after := plan(t, test.role, test.text+"\t"+line+"\n"+rest).Fixed; (after != before) != test.fixed {
				t.Errorf("%s: %s: restarts: %t", test.role, line, !test.fixed)
			}
		}
	}
}

// TestRoles checks that each section has a role. A section that no daemon receives
// would have no effect on OpenWrt.
func TestRoles(t *testing.T) {
	for _, s := range config.Schema {
		if len(s.Roles) == 0 {
			t.Errorf("config %s: who reads it? (Roles in the schema)", s.Type)
		}
		for _, role := range s.Roles {
			if role != Gateway && role != Relay {
				t.Errorf("config %s: %q is no role", s.Type, role)
			}
		}
	}
}

// FuzzPrint checks for any file that each line has a key that the init script knows,
// that the number of lines is right, and that all objects and arrays are closed.
func FuzzPrint(f *testing.F) {
	f.Add("/www/a b", "/etc/x", "br-lan", "10.0.0.0/8")
	f.Add("/a\nrule\nstring type x", "/b\r", "eth0 wlan0", "::/0")
	f.Add("/$(id)", "/`id`/;'\"\\*", "a", "192.0.2.1")
	f.Fuzz(func(t *testing.T, root, log, device, prefix string) {
		quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		text := "config gateway\n\toption enabled 1\n\toption access_log " + quoted(log) + "\n\tlist mesh " + quoted(prefix) +
			"\nconfig site\n\toption host '*'\n\toption root " + quoted(root) +
			"\nconfig relay\n\toption enabled 1\n\toption gateway 'g:1'\n\toption token '12345678'\n\toption ca '/x'\n\toption mode tproxy\n\toption interface " + quoted(device) + "\n"
		file, err := uci.Parse("bquic", []byte(text))
		if err != nil {
			return
		}
		cfg, err := config.New(file)
		if err != nil {
			return
		}
		for _, role := range []string{Gateway, Relay} {
			p := newPlan(role, file, cfg, func(string) string { return "flash" }, func(path string) string { return path })
			var b bytes.Buffer
			if p.Print(&b, "/made") != nil {
				continue
			}
			count := make(map[string]int)
			for line := range strings.Lines(b.String()) {
				line = strings.TrimSuffix(line, "\n")
				key, value, _ := strings.Cut(line, " ")
				if key == "end" || key == "enabled" {
					key += " " + value
				}
				count[key]++
				if strings.ContainsFunc(line, func(c rune) bool { return c < ' ' }) {
					t.Errorf("%q", line)
				}
				switch key {
				case "enabled 1", "config", "fixed", "see", "write", "rule", "string", "array", "item", "end array", "end rule":
				default:
					t.Errorf("key %q", key)
				}
			}
			if count["rule"] != len(p.Rules) || count["end rule"] != len(p.Rules) || count["array"] != count["end array"] || count["write"] != len(p.Write) {
				t.Errorf("%v\n%s", count, b.String())
			}
		}
	})
}
