// SPDX-License-Identifier: Apache-2.0

package openwrt

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"bquic/internal/config"
	"bquic/internal/divert"
	"bquic/internal/uci"
)

// The roles: the names of the daemons.
const (
	Gateway = "gateway"
	Relay   = "relay"
)

// A Plan is what procd, the jail and the firewall must know about a daemon.
type Plan struct {
	Role    string
	Enabled bool
	// Config is the part of the configuration that the daemon reads. The daemon
	// cannot read /etc/config, which contains other secrets.
	Config []byte
	// Fixed holds the settings that a running daemon cannot change. If it differs,
	// procd restarts the daemon. The daemon reloads all other settings on SIGHUP.
	Fixed string
	// See and Write are the directories that the jail shows, for reading and for
	// writing. If both are empty, the jail hides nothing.
	See, Write []string
	Rules      []Rule

	state     string // directory for the daemon's key or comparison, "" for none
	socket    string // status socket
	accessLog string // "": none
	webroot   string // for ACME's challenges, "" for none
	addresses []address
}

// A Rule is a rule of /etc/config/firewall that accepts packets.
type Rule struct {
	Proto   string
	Port    string // destination port, "": all
	Sources []netip.Prefix
	// Mark selects packets for transparent sockets of the relay, which keep their original destination address and port.
	Mark string
}

// newPlan returns the plan for a role. drive returns what a directory is on, "" if there is no such directory, and resolve
// returns a path without symbolic links.
func newPlan(role string, f *uci.File, cfg *config.Config, drive, resolve func(string) string) *Plan {
	p := &Plan{Role: role, Config: f.Text(func(s *uci.Section) bool { return config.ReadBy(s.Type, role) })}
	if role == Gateway {
		p.gateway(&cfg.Gateway, drive, resolve)
	} else {
		p.relay(&cfg.Relay)
	}
	return p
}

func (p *Plan) gateway(g *config.Gateway, drive, resolve func(string) string) {
	p.Enabled, p.socket, p.accessLog = g.Enabled, g.StatusSocket, g.AccessLog
	if g.Certificate == "" {
		p.state = g.StateDir
	}
	// on returns what a directory is on, or will be when it is made.
	on := func(dir string) string {
		for drive(dir) == "" && dir != "/" {
			dir = filepath.Dir(dir)
		}
		return drive(dir)
	}
	show := func(dir, on string) {
		if on != "" && !slices.Contains(p.See, dir) && !(strings.HasPrefix(dir, "/www/") && on == drive("/www")) {
			p.See = append(p.See, dir)
		}
	}
	see := func(dir string) { show(dir, drive(dir)) }
	// Always shown, so that a change of settings within them needs no restart. Drives are mounted elsewhere:
	// ujail shows a directory without what is mounted below it.
	see("/etc/ssl/certs")
	see("/www")
	see(nameServersDir)
	// Show the whole directories of certificates, because a renewed certificate is a new file. OpenWrt's acme makes
	// links to certificates in another directory.
	seeFiles := func(files ...string) {
		for _, file := range files {
			if file != "" {
				see(filepath.Dir(file))
				see(filepath.Dir(resolve(file)))
			}
		}
	}
	seeFiles(g.Certificate, g.Key)
	if p.webroot = g.ACMEWebroot; p.webroot != "" {
		show(p.webroot, on(p.webroot))
	}
	for _, s := range g.Sites {
		if s.Root != "" {
			seeFiles(s.Root + "/index.html")
		}
		seeFiles(s.Certificate, s.Key, s.OriginCA)
	}
	write := func(dir string) {
		if !slices.Contains(p.Write, dir) {
			p.Write = append(p.Write, dir)
		}
	}
	write(filepath.Dir(g.StatusSocket))
	if p.state != "" {
		write(p.state)
	}
	if g.AccessLog != "" {
		write(filepath.Dir(g.AccessLog))
	}
	p.listen("listen", g.Listen, true)
	p.listen("metrics", g.Metrics, false)
	p.listen("redirect", g.Redirect, false)
	p.addFixed("program", built())
	p.addAllFixed(g.Fixed())
	// A drive that is mounted later is not in the jail, and a directory to write to may only be made there.
	for _, dir := range p.See {
		p.addFixed("see", dir, on(dir))
	}
	for _, dir := range p.Write {
		p.addFixed("write", dir)
		p.addFixed("on", on(dir))
	}
	p.See = append(p.See, "/etc/hosts")

	_, port, _ := net.SplitHostPort(g.Listen) // config.Parse has checked it
	open := Rule{Proto: "tcpudp", Port: port}
	sources := slices.Concat(g.Mesh, g.ConnectFrom)
	for _, peer := range g.Relays() {
		sources = append(sources, peer.Prefixes...)
	}
	for _, prefix := range sources {
		if !slices.Contains(open.Sources, prefix) {
			open.Sources = append(open.Sources, prefix)
		}
	}
	p.Rules = []Rule{open}
}

func (p *Plan) relay(r *config.Relay) {
	p.Enabled, p.socket = r.Enabled, r.Relay.StatusSocket
	if r.Relay.ControlShare > 0 {
		p.state = r.Relay.StateDir
	}
	p.listen("port", net.JoinHostPort("", strconv.Itoa(r.Relay.Port)), false)
	p.listen("metrics", r.Relay.Metrics, false)
	p.addFixed("program", built())
	p.addAllFixed(r.Relay.Options())
	// The firewall already accepts redirected connections, because conntrack marks
	// them as DNAT. Packets for transparent sockets, and ICMP about theirs, are unchanged and need a rule.
	if r.Relay.Mode == divert.TProxy || len(r.Relay.UDPPorts) > 0 {
		p.Rules = []Rule{{Proto: "all", Mark: divert.FirewallMark}}
	}
}

// built identifies the program's build. After an upgrade, apk starts a service
// without stopping it first, and the old program would continue. The file's number and the time of
// its installation tell, because packages of two builds can have the same times and sizes.
func built() string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(st.Ino, " ", st.Ctim.Nano())
}

func (p *Plan) addFixed(name string, values ...string) {
	for _, v := range values {
		p.Fixed += fmt.Sprintf("%s %q\n", name, v)
	}
}

func (p *Plan) addAllFixed(options [][2]string) {
	for _, o := range options {
		p.addFixed(o[0], o[1])
	}
}

// variable returns the part of the name of jshn's variable that a key gives.
func variable(key string) string {
	name := []byte(key)
	for i, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			name[i] = '_'
		}
	}
	return string(name)
}

// Print writes the plan for a shell: each line has a key, a space, and a value up to the
// end of the line. The shell passes values to procd as words and must never execute them.
//
// A rule is a JSON object. `rule` opens it and `end rule` closes it. `string NAME
// VALUE` adds a string. `array NAME` and `end array` enclose an array of `item VALUE`.
func (p *Plan) Print(w io.Writer, files Files) error {
	var lines []string
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }
	if !p.Enabled {
		add("enabled", "0")
	} else {
		add("enabled", "1")
		add("config", files.config(p.Role))
		add("fixed", files.fixed(p.Role))
		// jshn keeps a value in a variable whose name is the key's, with _ for each character that a name cannot have. Of two
		// keys with the same one, it keeps only the last. For the jail, more slashes at the end make no other directory.
		variables := map[string]bool{}
		show := func(how, dir string) {
			for variables[variable(dir)] {
				dir += "/"
			}
			variables[variable(dir)] = true
			add(how, dir)
		}
		if len(p.See)+len(p.Write) > 0 {
			show("see", files.dir(p.Role))
		}
		for _, dir := range p.See {
			show("see", dir)
		}
		for _, dir := range p.Write {
			show("write", dir)
		}
		for _, r := range p.Rules {
			add("rule")
			for _, field := range [][2]string{{"type", "rule"}, {"src", "*"}, {"proto", r.Proto}, {"dest_port", r.Port}, {"target", "ACCEPT"}, {"mark", r.Mark}} {
				if field[1] != "" {
					add("string", field[0], field[1])
				}
			}
			if len(r.Sources) > 0 {
				add("array", "src_ip")
				for _, prefix := range r.Sources {
					add("item", prefix.String())
				}
				add("end", "array")
			}
			add("end", "rule")
		}
	}
	for _, line := range lines {
		if bad := strings.IndexFunc(line, func(c rune) bool { return c < ' ' || c == 0x7f }); bad >= 0 {
			return fmt.Errorf("%q contains a control character, which cannot be passed to procd", line)
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
