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

	"bquic/internal/config"
	"bquic/internal/divert"
	"bquic/internal/uci"
)

// The daemons.
const (
	Gateway = "gateway"
	Relay   = "relay"
)

// A Plan is what procd, the jail and the firewall have to know about a daemon.
type Plan struct {
	Role    string
	Enabled bool
	// Config is the part of the configuration that the daemon reads: it may not
	// read /etc/config, which has other secrets.
	Config []byte
	// Fixed is what a running daemon cannot change: when it differs, procd starts
	// the daemon anew. All else it reads again when told (SIGHUP).
	Fixed string
	// See and Write are what the jail shows, to read and to write. Without any,
	// the jail hides nothing.
	See, Write []string
	Rules      []Rule

	state     string // directory that the daemon keeps its key or its comparison in, "" for none
	socket    string // of the status
	accessLog string // "": none
	addresses []address
}

// A Rule is one of /etc/config/firewall that lets packets in.
type Rule struct {
	Proto   string
	Port    string // destination, "": all
	Sources []netip.Prefix
	// Device and Mark are of packets for transparent sockets of the relay, which keep
	// the address and port that they were sent to.
	Device, Mark string
}

// seen are directories with certificates and sites that the gateway's jail shows
// without being asked to, where they exist: a change to something in them needs no
// restart.
var seen = []string{"/etc/ssl/certs", "/www", "/srv", "/mnt"}

// New returns what the configuration asks of a role. exists says whether there is
// such a directory.
func New(role string, f *uci.File, cfg *config.Config, exists func(string) bool) *Plan {
	p := &Plan{Role: role, Config: f.Text(func(s *uci.Section) bool { return config.ReadBy(s.Type, role) })}
	if role == Gateway {
		p.gateway(&cfg.Gateway, exists)
	} else {
		p.relay(&cfg.Relay)
	}
	return p
}

func (p *Plan) gateway(g *config.Gateway, exists func(string) bool) {
	p.Enabled, p.socket, p.accessLog = g.Enabled, g.StatusSocket, g.AccessLog
	if g.Certificate == "" {
		p.state = g.StateDir
	}
	see := func(dir string) {
		if exists(dir) && !slices.Contains(p.See, dir) {
			p.See = append(p.See, dir)
		}
	}
	for _, dir := range seen {
		see(dir)
	}
	// Whole directories of certificates: a renewed one is a new file.
	seeFiles := func(files ...string) {
		for _, file := range files {
			if file != "" {
				see(filepath.Dir(file))
			}
		}
	}
	seeFiles(g.Certificate, g.Key)
	if g.ACMEWebroot != "" && !slices.ContainsFunc(seen, func(dir string) bool { return within(g.ACMEWebroot, dir) }) {
		see(g.ACMEWebroot)
	}
	for _, s := range g.Sites {
		if s.Root != "" && !slices.ContainsFunc(seen, func(dir string) bool { return within(s.Root, dir) }) {
			see(s.Root)
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
	p.fix("program", built())
	p.fix("listen", g.Listen)
	p.fix("status_socket", g.StatusSocket)
	p.fix("metrics", g.Metrics)
	p.fix("redirect", g.Redirect)
	p.fix("see", p.See...)
	p.fix("write", p.Write...)
	p.See = append(p.See, "/etc/hosts")

	_, port, _ := net.SplitHostPort(g.Listen) // as config.Parse has checked
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

// within says whether path is dir or in it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func (p *Plan) relay(r *config.Relay) {
	p.Enabled, p.socket = r.Enabled, r.StatusSocket
	if r.Relay.ControlShare > 0 {
		p.state = r.Relay.StateDir
	}
	p.listen("port", net.JoinHostPort("", strconv.Itoa(r.Relay.Port)), false)
	p.listen("metrics", r.Metrics, false)
	p.fix("program", built())
	p.fix("mode", r.Relay.Mode)
	p.fix("port", strconv.Itoa(r.Relay.Port))
	p.fix("connections", strconv.Itoa(r.Relay.Connections))
	p.fix("bridge", r.Relay.Bridge)
	p.fix("state_dir", r.Relay.StateDir)
	p.fix("status_socket", r.StatusSocket)
	p.fix("metrics", r.Metrics)
	// What is redirected arrives by way of conntrack, which the firewall lets in
	// by itself; packets for transparent sockets are as they were sent.
	if r.Relay.Mode == divert.TProxy || len(r.Relay.UDPPorts) > 0 {
		for _, device := range r.Relay.Interfaces {
			p.Rules = append(p.Rules, Rule{Proto: "tcpudp", Device: device, Mark: divert.FirewallMark})
		}
	}
}

// built tells one program from another. apk starts a service after an upgrade and
// does not stop it before: the old program would go on.
func built() string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), " ", info.ModTime().Unix())
}

func (p *Plan) fix(name string, values ...string) {
	for _, v := range values {
		p.Fixed += fmt.Sprintf("%s %q\n", name, v)
	}
}

// Print writes the plan for a shell to read: in each line a key, a space, and a
// value that goes to the end of the line. Values are words for procd and
// never for the shell to carry out.
//
// A rule is an object of JSON: `rule` opens it, `string NAME VALUE` and, between
// `array NAME` and `end array`, `item VALUE` fill it, `end rule` closes it.
func (p *Plan) Print(w io.Writer, files Files) error {
	var lines []string
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }
	if !p.Enabled {
		add("enabled", "0")
	} else {
		add("enabled", "1")
		add("config", files.config(p.Role))
		add("fixed", files.fixed(p.Role))
		if len(p.See)+len(p.Write) > 0 {
			add("see", files.dir(p.Role))
		}
		for _, dir := range p.See {
			add("see", dir)
		}
		for _, dir := range p.Write {
			add("write", dir)
		}
		for _, r := range p.Rules {
			add("rule")
			for _, field := range [][2]string{{"type", "rule"}, {"src", "*"}, {"proto", r.Proto}, {"dest_port", r.Port}, {"target", "ACCEPT"}, {"device", r.Device}, {"mark", r.Mark}} {
				if field[1] != "" {
					add("string", field[0], field[1])
				}
			}
			if r.Device != "" {
				add("string", "direction", "in")
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
			return fmt.Errorf("%q: a control character in it, which cannot be passed on to procd", line)
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}
