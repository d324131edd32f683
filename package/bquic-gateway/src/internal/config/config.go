// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/peer"
	"bquic/internal/profile"
	"bquic/internal/relay"
	"bquic/internal/uci"
)

// A Config is a whole, valid file. It is immutable.
type Config struct {
	Gateway  Gateway
	Relay    Relay
	Profiles profile.Set
}

// A Gateway configures `bquic gateway`.
type Gateway struct {
	Enabled      bool
	Listen       string
	Certificate  string // "": self-signed
	Key          string
	StateDir     string
	Mesh         []netip.Prefix
	MeshProfile  profile.Profile
	Standard     profile.Profile // for all other clients
	Token        string          // the token that relays share, or its hash; "": none
	Peers        []peer.Config   // enabled peers
	ConnectFrom  []netip.Prefix
	ConnectTo    []netip.Prefix // empty: no limit
	Connections  int            // limit, QUIC and TCP
	Memory       uint64         // ceiling, bytes; 0: a part of the machine's memory
	AccessLog    string         // "": none
	Metrics      string         // address:port; "": none
	Redirect     string         // [address]:port for clients without TLS; "": none
	ACMEWebroot  string         // "": the sites answer challenges themselves
	StatusSocket string
	LogLevel     slog.Level
	Sites        []Site
}

// Relays returns the peers that may open tunnels, including the peer of all relays that share a token.
func (g *Gateway) Relays() []peer.Config {
	relays := slices.Clone(g.Peers)
	if g.Token != "" {
		hash, err := peer.ParseToken(g.Token)
		if err != nil {
			panic("config: a checked token is wrong: " + err.Error())
		}
		relays = append(relays, peer.Config{Name: peer.Shared, Tokens: []peer.Hash{hash}})
	}
	for i := range relays {
		if len(relays[i].Prefixes) == 0 {
			relays[i].Prefixes = g.ConnectFrom
		}
	}
	return relays
}

// Fixed returns the options that a running gateway cannot change, with their values.
func (g *Gateway) Fixed() [][2]string {
	return [][2]string{{"listen", g.Listen}, {"status_socket", g.StatusSocket}, {"metrics", g.Metrics}, {"redirect", g.Redirect}}
}

// A Site is served under its host names: files below Root, or else by Origins.
type Site struct {
	Hosts   []string
	Root    string
	RootAt  Mistake // where the file names Root, for what is wrong with the directory
	Listing bool
	// EarlyData says that the origins understand the field Early-Data (RFC 8470).
	EarlyData bool
	Origins   []*url.URL
	// OriginCA is a PEM file of authorities; "": the system's authorities.
	OriginCA string
	// Certificate and Key are "" if the site uses the gateway's.
	Certificate, Key string
}

// A Relay configures `bquic relay`.
type Relay struct {
	Enabled  bool
	Relay    relay.Config
	Profile  profile.Profile
	LogLevel slog.Level
}

// A Mistake is one mistake in a file.
type Mistake struct {
	File    string
	Line    int
	Section string // "" before any section
	Option  string // "" if it concerns the whole section
	Text    string
}

func (m *Mistake) Error() string {
	where := m.Section
	if m.Option != "" {
		where += "." + m.Option
	}
	if where != "" {
		where += ": "
	}
	return fmt.Sprintf("%s:%d: %s%s", m.File, m.Line, where, m.Text)
}

// Mistakes are all mistakes in a file, sorted by line.
type Mistakes []*Mistake

func (ms Mistakes) Error() string {
	var lines []string
	for _, m := range ms {
		lines = append(lines, m.Error())
	}
	return strings.Join(lines, "\n")
}

// ReadFile reads and checks the file at path.
func ReadFile(path string) (*Config, error) {
	f, err := uci.ReadFile(path)
	if err != nil {
		return nil, mistake(err)
	}
	return New(f)
}

// Parse reads and checks the content of a file.
func Parse(name string, data []byte) (*Config, error) {
	f, err := uci.Parse(name, data)
	if err != nil {
		return nil, mistake(err)
	}
	return New(f)
}

// A Daemon says how to ask a daemon for its status.
type Daemon struct {
	Socket string
	Off    bool // the file says that it does not run
}

// Daemons returns what the file at path says of the gateway and the relay. It ignores mistakes, with which running
// daemons go on, and uses the defaults for what the file does not say. If it cannot read the file, it returns the default sockets and an error.
func Daemons(path string) (gateway, relay Daemon, err error) {
	f, err := uci.ReadFile(path)
	if err != nil {
		f = &uci.File{}
	}
	whole := err == nil
	var syntax *uci.SyntaxError
	if errors.As(err, &syntax) {
		err = nil
	}
	d := &decoder{}
	daemon := func(typ string) Daemon {
		found := Daemon{get[string](d, &uci.Section{Type: typ}, "status_socket"), whole}
		for _, s := range sections(f, typ) {
			if get[bool](d, s, "enabled") {
				found.Off = false
			}
			if path, _, ok := value[string](d, s, "status_socket"); ok {
				found.Socket = path
				break
			}
		}
		return found
	}
	return daemon("gateway"), daemon("relay"), err
}

func mistake(err error) error {
	var syntax *uci.SyntaxError
	if errors.As(err, &syntax) {
		return Mistakes{{File: syntax.File, Line: syntax.Line, Text: syntax.Text}}
	}
	return err
}

// New checks a file and returns its values. The error is Mistakes.
func New(f *uci.File) (*Config, error) {
	d := &decoder{file: f.Name, cfg: &Config{Profiles: profile.NewSet()}}
	d.checkNames(f)
	d.profiles(sections(f, "profile"))
	d.gateway(firstSection(f, "gateway"))
	for _, s := range sections(f, "site") {
		d.site(s)
	}
	for _, s := range sections(f, "peer") {
		d.peer(s)
	}
	d.relay(firstSection(f, "relay"), sections(f, "upstream"))
	d.distinct()
	if len(d.mistakes) > 0 {
		slices.SortStableFunc(d.mistakes, func(a, b *Mistake) int { return a.Line - b.Line })
		return nil, d.mistakes
	}
	return d.cfg, nil
}

type decoder struct {
	file      string
	cfg       *Config
	mistakes  Mistakes
	hosts     map[string]int    // hosts of sites, with their lines
	tokens    map[peer.Hash]int // tokens of the gateway and its peers, with their lines
	listeners []*listener       // in the order of the schema
}

func (d *decoder) fail(s *uci.Section, line int, option, format string, args ...any) {
	d.mistakes = append(d.mistakes, &Mistake{d.file, line, s.String(), option, fmt.Sprintf(format, args...)})
}

func sections(f *uci.File, typ string) (ss []*uci.Section) {
	for _, s := range f.Sections {
		if s.Type == typ {
			ss = append(ss, s)
		}
	}
	return ss
}

// firstSection returns the first section of a type, or an empty one.
func firstSection(f *uci.File, typ string) *uci.Section {
	return append(sections(f, typ), &uci.Section{Type: typ})[0]
}

// checkNames finds unknown and duplicate sections and options.
func (d *decoder) checkNames(f *uci.File) {
	first := make(map[string]*uci.Section)
	for _, s := range f.Sections {
		for _, line := range s.Again {
			d.fail(s, line, "", "duplicate section: first in line %d", s.Line)
		}
		schema := schemaOf(s.Type)
		if schema == nil {
			d.fail(s, s.Line, "", "unknown section type %q: expected one of %s", s.Type, strings.Join(sectionTypes(), ", "))
			continue
		}
		if other := first[s.Type]; schema.Once && other != nil {
			d.fail(s, s.Line, "", "duplicate section: only one of type %s is allowed, first in line %d", s.Type, other.Line)
		} else {
			first[s.Type] = s
		}
		for _, o := range s.Options {
			known := schema.option(o.Name)
			switch {
			case known == nil:
				d.fail(s, o.Line, o.Name, "unknown option")
			case len(o.Again) > 0:
				d.fail(s, o.Again[0], o.Name, "given twice: first in line %d", o.Line)
			case o.List && !known.List:
				d.fail(s, o.Line, o.Name, "is not a list: write option instead of list")
			}
		}
	}
}

func schemaOf(typ string) *Section {
	for i := range Schema {
		if Schema[i].Type == typ {
			return &Schema[i]
		}
	}
	return nil
}

func sectionTypes() (types []string) {
	for _, s := range Schema {
		types = append(types, s.Type)
	}
	return types
}

// A found is a value and its line, 0 for a default.
type found[T any] struct {
	value T
	line  int
}

// read reads an option that may have several values. If a file has `option` instead of `list`, spaces separate the values, as in OpenWrt's
// scripts. It does not know their type: as a generic function, it would take 15 KB of a router's flash.
func (d *decoder) read(s *uci.Section, name string) (vs []found[any]) {
	schema := schemaOf(s.Type).option(name)
	var texts []uci.Value
	if o := s.Option(name); o == nil {
		for _, text := range schema.Default {
			texts = append(texts, uci.Value{Text: text})
		}
	} else if schema.List && !o.List {
		for text := range strings.FieldsSeq(o.Values[0].Text) {
			texts = append(texts, uci.Value{Text: text, Line: o.Line})
		}
		if len(texts) == 0 {
			d.fail(s, o.Line, name, "missing")
		}
	} else {
		texts = o.Values
	}
	for _, t := range texts {
		v, err := schema.Type.parse(t.Text)
		if err != nil {
			d.fail(s, t.Line, name, "%v", err)
			continue
		}
		vs = append(vs, found[any]{v, t.Line})
	}
	return vs
}

func values[T any](d *decoder, s *uci.Section, name string) (vs []found[T]) {
	for _, v := range d.read(s, name) {
		vs = append(vs, found[T]{v.value.(T), v.line})
	}
	return vs
}

// value reads an option with at most one value. ok is false if it has no valid value and no default.
func value[T any](d *decoder, s *uci.Section, name string) (v T, line int, ok bool) {
	vs := d.read(s, name)
	if len(vs) == 0 {
		return v, s.Line, false
	}
	return vs[0].value.(T), vs[0].line, true
}

func get[T any](d *decoder, s *uci.Section, name string) T {
	v, _, _ := value[T](d, s, name)
	return v
}

func list[T any](d *decoder, s *uci.Section, name string) (vs []T) {
	for _, v := range d.read(s, name) {
		vs = append(vs, v.value.(T))
	}
	return vs
}

// given reports whether the file has the option, valid or not.
func given(s *uci.Section, name string) bool { return s.Option(name) != nil }

func (d *decoder) profileNamed(s *uci.Section, option string) profile.Profile {
	name, line, _ := value[string](d, s, option)
	p, err := d.cfg.Profiles.Get(name)
	if err != nil {
		d.fail(s, line, option, "%v", err)
	}
	return p
}

func (d *decoder) gateway(s *uci.Section) {
	g := &d.cfg.Gateway
	*g = Gateway{
		Enabled:      get[bool](d, s, "enabled"),
		Listen:       get[string](d, s, "listen"),
		Certificate:  get[string](d, s, "certificate"),
		Key:          get[string](d, s, "key"),
		StateDir:     get[string](d, s, "state_dir"),
		Mesh:         list[netip.Prefix](d, s, "mesh"),
		MeshProfile:  d.profileNamed(s, "mesh_profile"),
		Standard:     d.cfg.Profiles[profile.Standard],
		ConnectFrom:  list[netip.Prefix](d, s, "connect_from"),
		ConnectTo:    list[netip.Prefix](d, s, "connect_to"),
		Connections:  get[int](d, s, "max_connections"),
		Memory:       uint64(get[int](d, s, "memory")) << 20,
		AccessLog:    get[string](d, s, "access_log"),
		Metrics:      get[string](d, s, "metrics"),
		Redirect:     get[string](d, s, "redirect"),
		ACMEWebroot:  get[string](d, s, "acme_webroot"),
		StatusSocket: get[string](d, s, "status_socket"),
		LogLevel:     parseLevel(get[string](d, s, "log_level")),
	}
	if !given(s, "connect_from") {
		g.ConnectFrom = g.Mesh
	}
	d.bothOrNone(s, "certificate", "key")
	if given(s, "acme_webroot") && !given(s, "redirect") {
		d.fail(s, s.Option("acme_webroot").Line, "acme_webroot", "redirect is missing")
	}
	for _, t := range d.ownTokens(s) {
		g.Token = t.text
	}
	d.listens(s, "listen", g.Listen, "redirect", g.Redirect, "metrics", g.Metrics, "status_socket", g.StatusSocket)
}

// ownTokens reads the tokens of a section. No two sections may share a token, because it
// identifies the peer.
func (d *decoder) ownTokens(s *uci.Section) (tokens []keptToken) {
	if d.tokens == nil {
		d.tokens = make(map[peer.Hash]int)
	}
	for _, t := range values[keptToken](d, s, "token") {
		if line, dup := d.tokens[t.value.hash]; dup {
			d.fail(s, t.line, "token", "given twice: first in line %d", line)
			continue
		}
		d.tokens[t.value.hash] = t.line
		tokens = append(tokens, t.value)
	}
	return tokens
}

func (d *decoder) peer(s *uci.Section) {
	p := peer.Config{
		Name:     s.Name,
		Prefixes: list[netip.Prefix](d, s, "prefix"),
		Tunnels:  get[int](d, s, "tunnels"),
		Rate:     float64(get[int](d, s, "rate")) * 1e6 / 8,
	}
	for _, t := range d.ownTokens(s) {
		p.Tokens = append(p.Tokens, t.hash)
	}
	switch s.Name {
	case "":
		d.fail(s, s.Line, "", "a peer needs a name: config peer 'name'")
	case peer.Shared:
		d.fail(s, s.Line, "", "this name is reserved for the relays that share gateway.token: choose another one")
	}
	if !given(s, "token") {
		d.fail(s, s.Line, "token", "missing")
	}
	if get[bool](d, s, "enabled") {
		d.cfg.Gateway.Peers = append(d.cfg.Gateway.Peers, p)
	}
}

// bothOrNone reports a mistake if only one of two options is given.
func (d *decoder) bothOrNone(s *uci.Section, a, b string) {
	if given(s, b) {
		a, b = b, a
	}
	if given(s, a) && !given(s, b) {
		d.fail(s, s.Option(a).Line, a, "%s is missing", b)
	}
}

// A listener is an option that names a TCP address and port, or the path of a socket.
type listener struct {
	of      *uci.Section
	option  string
	address string
}

// listens records listeners: pairs of an option's name and its value.
func (d *decoder) listens(s *uci.Section, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		d.listeners = append(d.listeners, &listener{s, pairs[i], pairs[i+1]})
	}
}

// distinct reports a listener that has the port of one before it, at the same address or at all of them, or its path. Those of two
// daemons may be the same if only one of them runs.
func (d *decoder) distinct() {
	everywhere := func(host string) bool {
		addr, err := netip.ParseAddr(host)
		return err != nil || addr.IsUnspecified()
	}
	both := d.cfg.Gateway.Enabled && d.cfg.Relay.Enabled
	for i, l := range d.listeners {
		line := l.of.Line
		if o := l.of.Option(l.option); o != nil {
			line = o.Line
		}
		host, port, _ := net.SplitHostPort(l.address)
		for _, before := range d.listeners[:i] {
			name := before.option
			if before.of != l.of {
				name = before.of.Type + "." + name
			}
			h, p, _ := net.SplitHostPort(before.address)
			switch {
			case before.of != l.of && !both:
			case port != "" && p == port && (h == host || everywhere(h) || everywhere(host)):
				d.fail(l.of, line, l.option, "%s already has this port", name)
			case port == "" && l.address != "" && l.address == before.address:
				d.fail(l.of, line, l.option, "%s already has this path", name)
			}
		}
	}
}

func (d *decoder) site(s *uci.Section) {
	if d.hosts == nil {
		d.hosts = make(map[string]int)
	}
	root, line, _ := value[string](d, s, "root")
	site := Site{
		Root: root, RootAt: Mistake{File: d.file, Line: line, Section: s.String(), Option: "root"},
		Listing: get[bool](d, s, "listing"), EarlyData: get[bool](d, s, "early_data"),
		Origins: list[*url.URL](d, s, "origin"), OriginCA: get[string](d, s, "origin_ca"),
		Certificate: get[string](d, s, "certificate"), Key: get[string](d, s, "key"),
	}
	d.bothOrNone(s, "certificate", "key")
	for _, h := range values[string](d, s, "host") {
		if line, dup := d.hosts[h.value]; dup {
			d.fail(s, h.line, "host", "%q is given twice: first in line %d", h.value, line)
			continue
		}
		d.hosts[h.value] = h.line
		site.Hosts = append(site.Hosts, h.value)
		if h.value == "*" && given(s, "certificate") {
			d.fail(s, s.Option("certificate").Line, "certificate", "a site with host * uses the gateway's certificate: remove this option")
		}
	}
	if !given(s, "host") {
		d.fail(s, s.Line, "host", "missing")
	}
	switch {
	case given(s, "root") && given(s, "origin"):
		d.fail(s, s.Option("origin").Line, "origin", "root is given as well: a site can have only one of them")
	case !given(s, "root") && !given(s, "origin"):
		d.fail(s, s.Line, "", "root or origin is missing")
	}
	d.cfg.Gateway.Sites = append(d.cfg.Gateway.Sites, site)
}

func (d *decoder) relay(s *uci.Section, upstreams []*uci.Section) {
	p := d.profileNamed(s, "profile")
	share, _, valid := value[int](d, s, "control_share")
	r := &d.cfg.Relay
	*r = Relay{
		Enabled: get[bool](d, s, "enabled"),
		Relay: relay.Config{
			Gateways:   d.gateways(s, upstreams),
			ServerName: get[string](d, s, "server_name"),
			Pins:       list[cert.Pin](d, s, "pin"),
			CAFile:     get[string](d, s, "ca"),
			Token:      get[string](d, s, "token"),
			Fixed: relay.Fixed{
				Mode:         get[string](d, s, "mode"),
				Port:         get[int](d, s, "port"),
				Connections:  get[int](d, s, "connections"),
				Bridge:       get[string](d, s, "bridge"),
				StateDir:     get[string](d, s, "state_dir"),
				StatusSocket: get[string](d, s, "status_socket"),
				Metrics:      get[string](d, s, "metrics"),
			},
			Burst:        p.Burst,
			Interfaces:   list[string](d, s, "interface"),
			Uplinks:      list[string](d, s, "uplink"),
			Exclude:      list[netip.Prefix](d, s, "exclude"),
			ExcludePorts: list[divert.Ports](d, s, "exclude_port"),
			CPUShare:     get[int](d, s, "cpu_share"),
			ControlShare: share,
			Auto:         get[bool](d, s, "auto"),
		},
		Profile:  p,
		LogLevel: parseLevel(get[string](d, s, "log_level")),
	}
	for _, p := range values[divert.Ports](d, s, "udp_port") {
		if p.value.First <= 443 && 443 <= p.value.Last {
			d.fail(s, p.line, "udp_port", "%s includes port 443: the relay leaves the clients' own QUIC alone", p.value)
		}
		r.Relay.UDPPorts = append(r.Relay.UDPPorts, p.value)
	}
	d.listens(s, "port", ":"+strconv.Itoa(r.Relay.Port), "metrics", r.Relay.Metrics, "status_socket", r.Relay.StatusSocket)
	if r.Relay.Auto && valid && share == 0 {
		d.fail(s, s.Option("auto").Line, "auto", "control_share is 0, so there is no comparison to tell what is slower")
	}
	if given(s, "pin") && given(s, "ca") {
		d.fail(s, s.Option("ca").Line, "ca", "pin is given as well: the relay checks only one of them")
	}
	if !r.Enabled {
		return
	}
	if !given(s, "gateway") && len(r.Relay.Gateways) == 0 {
		d.fail(s, s.Line, "gateway", "missing")
	}
	if !given(s, "token") {
		d.fail(s, s.Line, "token", "missing")
	}
	if !given(s, "pin") && !given(s, "ca") {
		d.fail(s, s.Line, "", "pin or ca is missing")
	}
}

// gateways returns the relay's gateways, from its list or from the upstream sections.
func (d *decoder) gateways(s *uci.Section, upstreams []*uci.Section) (gateways []relay.Upstream) {
	given := make(map[string]int)
	add := func(s *uci.Section, gateway string, line int) bool {
		first, dup := given[gateway]
		if dup {
			d.fail(s, line, "gateway", "%q is given twice: first in line %d", gateway, first)
			return false
		}
		given[gateway] = line
		return true
	}
	var order []string
	for _, g := range values[string](d, s, "gateway") {
		if add(s, g.value, g.line) {
			order = append(order, g.value)
		}
	}
	for _, u := range upstreams {
		if len(order) > 0 {
			d.fail(u, u.Line, "", "the relay already has gateways in its list, in line %d: use either the list or sections of type upstream", given[order[0]])
			continue
		}
		gateway, line, ok := value[string](d, u, "gateway")
		weight, enabled := get[int](d, u, "weight"), get[bool](d, u, "enabled")
		switch {
		case u.Option("gateway") == nil:
			d.fail(u, u.Line, "gateway", "missing")
		case ok && add(u, gateway, line) && enabled:
			gateways = append(gateways, relay.Upstream{Gateway: gateway, Weight: weight})
		}
	}
	return append(gateways, relay.InOrder(order...)...)
}

// profiles adds the profiles that the file defines to the set. A profile's base may come
// later in the file.
func (d *decoder) profiles(sections []*uci.Section) {
	var pending []*uci.Section
	for _, s := range sections {
		switch _, exists := d.cfg.Profiles[s.Name]; {
		case s.Name == "":
			d.fail(s, s.Line, "", "a profile needs a name: config profile 'name'")
		case exists:
			d.fail(s, s.Line, "", "the built-in profile of this name cannot be changed: choose another name")
		default:
			pending = append(pending, s)
		}
	}
	for len(pending) > 0 {
		rest := slices.DeleteFunc(slices.Clone(pending), func(s *uci.Section) bool {
			base, ok := d.cfg.Profiles[get[string](d, s, "base")]
			if ok {
				d.profile(s, base)
			}
			return ok
		})
		if len(rest) == len(pending) {
			break
		}
		pending = rest
	}
	for _, s := range pending {
		name, line, _ := value[string](d, s, "base")
		text := fmt.Sprintf("unknown profile %q", name)
		if slices.ContainsFunc(pending, func(p *uci.Section) bool { return p.Name == name }) {
			text = fmt.Sprintf("profile %q is based on this one", name)
		}
		d.fail(s, line, "base", "%s", text)
		d.profile(s, d.cfg.Profiles[profile.Standard]) // to find the other mistakes
	}
}

func (d *decoder) profile(s *uci.Section, base profile.Profile) {
	p := profile.Profile{Name: s.Name, Doc: "Like " + base.Name + ", with changes.", Values: slices.Clone(base.Values), Burst: base.Burst}
	for _, param := range profile.Params {
		v, _, ok := value[profile.Value](d, s, param.Name)
		if !ok {
			continue
		}
		if err := param.Set(&p.Burst, v.Text); err != nil {
			panic("config: a checked value is wrong: " + err.Error())
		}
		p.Values = append(slices.DeleteFunc(p.Values, func(b profile.Value) bool { return b.Param == v.Param }), v)
	}
	d.cfg.Profiles[s.Name] = p
}
