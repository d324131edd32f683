// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"

	"bquic/internal/profile"
	"bquic/internal/relay"
)

// DefaultFile is the configuration's path on OpenWrt.
const DefaultFile = "/etc/config/bquic"

// A Section describes one type of section.
type Section struct {
	Type string
	Doc  string
	// Once says that a file has at most one such section.
	Once bool
	// Roles are the daemons that read the section. On OpenWrt, each daemon receives only
	// the sections that it reads.
	Roles   []string
	Options []Option
}

// ReadBy reports whether a daemon reads sections of a type.
func ReadBy(typ, role string) bool {
	s := schemaOf(typ)
	return s != nil && slices.Contains(s.Roles, role)
}

// An Option describes one option of a section.
type Option struct {
	Name string
	Type *Type
	List bool
	// Default is the value if the option is not given, as text in a UCI file.
	Default []string
	// Note replaces Default in documentation if no value can express the default.
	Note string
	Unit string
	Doc  string // one line
}

// meshPrefixes are the prefixes from which community networks take their addresses: RFC
// 1918 (10/8) and RFC 4193.
var meshPrefixes = []string{"10.0.0.0/8", "fd00::/8"}

// Schema describes everything that a file may contain.
var Schema = []Section{
	{
		Type: "gateway", Once: true, Roles: []string{"gateway"},
		Doc: "The gateway: serves sites by HTTP/3, HTTP/2 and HTTP/1.1, and TCP connections for relays.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"0"}, Doc: "Starts the gateway."},
			{Name: "listen", Type: typeListen, Default: []string{":8443"}, Doc: "Address and port, UDP and TCP. Without an address: all."},
			{Name: "certificate", Type: typePath, Doc: "Certificate chain, PEM. Without one, the gateway makes its own at first start.", Note: "self-signed"},
			{Name: "key", Type: typePath, Doc: "Key of the certificate, PEM.", Note: "self-signed"},
			{Name: "state_dir", Type: typePath, Default: []string{"/etc/bquic"}, Doc: "Where the self-signed certificate is kept."},
			{Name: "mesh", Type: typePrefix, List: true, Default: meshPrefixes, Doc: "Clients that come over WiFi."},
			{Name: "mesh_profile", Type: typeProfile, Default: []string{profile.BQUIC}, Doc: "Profile for them; all others have `standard`."},
			{Name: "token", Type: typeKept, Doc: "Secret, or its hash, of relays that are not a `peer` of their own. Without a token or a peer, the gateway serves no relay.", Note: "none"},
			{Name: "connect_from", Type: typePrefix, List: true, Doc: "Where relays may connect from.", Note: "as mesh"},
			{Name: "connect_to", Type: typePrefix, List: true, Doc: "Where relays' clients may connect to. Private, reserved, loopback, link-local and multicast addresses, and the router's own, only when a prefix names them.", Note: "anywhere public"},
			{Name: "max_connections", Type: numberType("1 to 100000", 1, 100000), Default: []string{"1000"}, Doc: "QUIC and TCP connections at a time; one address (IPv6: /56) may have a quarter of them."},
			{Name: "memory", Type: numberType("0 to 65536", 0, 65536), Default: []string{"0"}, Unit: "MiB", Doc: "Ceiling of the gateway's memory; 0: a quarter of the machine's, at least 32. GOMEMLIMIT in the environment wins."},
			{Name: "access_log", Type: typePath, Doc: "File that requests are logged to, in the combined format.", Note: "none"},
			{Name: "redirect", Type: typeListen, Doc: "TCP address and port, such as `:80`: sends clients that come without TLS to the same site with TLS, and answers ACME's challenges.", Note: "none"},
			{Name: "acme_webroot", Type: typePath, Doc: "Directory below which `.well-known/acme-challenge/` has the challenges, for all sites. Needs redirect.", Note: "the site's"},
			{Name: "metrics", Type: typeMetrics, Doc: "Address and port of the Prometheus metrics.", Note: "none"},
			{Name: "status_socket", Type: typePath, Default: []string{"/var/run/bquic/gateway.sock"}, Doc: "Unix socket of `bquic status`."},
			{Name: "log_level", Type: typeLevel, Default: []string{"info"}, Doc: "How much is logged."},
		},
	}, {
		Type: "site", Roles: []string{"gateway"},
		Doc: "A web site that the gateway serves: files, or an origin server.",
		Options: []Option{
			{Name: "host", Type: typeHost, List: true, Doc: "Names of the site; `*` for every name that no other site has. Needed.", Note: "none"},
			{Name: "root", Type: typePath, Doc: "Directory with the site's files. One of root and origin is needed.", Note: "none"},
			{Name: "certificate", Type: typePath, Doc: "Certificate chain for these names, PEM.", Note: "the gateway's"},
			{Name: "key", Type: typePath, Doc: "Key of the certificate, PEM.", Note: "the gateway's"},
			{Name: "listing", Type: typeBool, Default: []string{"0"}, Doc: "Shows what is in a directory without index.html."},
			{Name: "origin", Type: typeOrigin, List: true, Doc: "Servers that have the site: `http://` or `https://`, host and port. The gateway asks the first that answers.", Note: "none"},
			{Name: "early_data", Type: typeBool, Default: []string{"0"}, Doc: "The origins know `Early-Data` and answer 425 to requests that they do not want to serve twice (RFC 8470). The gateway then passes on safe requests in 0-RTT packets at once. Otherwise they wait for the end of the handshake."},
			{Name: "origin_ca", Type: typePath, Doc: "Certificates of the authorities that sign the origins', PEM.", Note: "the system's"},
		},
	}, {
		Type: "peer", Roles: []string{"gateway"},
		Doc: "A relay that the gateway knows by the section's name, or several relays with the same token. Several tokens can be valid at a time, so each can be replaced without an outage. When a peer or a token is removed, its tunnels end at once.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"1"}, Doc: "Serves the peer."},
			{Name: "token", Type: typeKept, List: true, Doc: "Secrets that the relay may show, or their hashes, as `bquic token` prints them. Needed.", Note: "none"},
			{Name: "prefix", Type: typePrefix, List: true, Doc: "Where it may connect from.", Note: "as connect_from"},
			{Name: "tunnels", Type: numberType("1 to 65536", 1, 65536), Doc: "Tunnels at a time.", Note: "a fair share"},
			{Name: "rate", Type: numberType("1 to 100000", 1, 100000), Unit: "Mbit/s", Doc: "Limit of all its tunnels together, in each direction.", Note: "none"},
		},
	}, {
		Type: "relay", Once: true, Roles: []string{"relay"},
		Doc: "The relay: carries the TCP connections of a node's clients over the mesh to a gateway.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"0"}, Doc: "Starts the relay."},
			{Name: "gateway", Type: typeHostPort, List: true, Doc: "The gateway's host and port; several gateways in order of preference. Needed, unless there are sections of type upstream.", Note: "none"},
			{Name: "server_name", Type: typeHost, Doc: "Name in the gateway's certificate.", Note: "the gateway's host"},
			{Name: "pin", Type: typePin, List: true, Doc: "The gateways' keys, as their logs and status show them. One of pin and ca is needed.", Note: "none"},
			{Name: "ca", Type: typePath, Doc: "Certificates of the authorities that sign the gateway's, PEM.", Note: "none"},
			{Name: "token", Type: typeToken, Doc: "The gateway's secret. Needed.", Note: "none"},
			{Name: "profile", Type: typeProfile, Default: []string{profile.BQUIC}, Doc: "Profile towards the gateway."},
			{Name: "connections", Type: numberType("1 to 8", 1, 8), Default: []string{"1"}, Doc: "QUIC connections to spread the TCP connections over, each from a port of its own. More than one helps in a mesh with several paths of equal cost that are chosen by flow: where one is congested, new TCP connections take another."},
			{Name: "mode", Type: wordType("redirect", "tproxy"), Default: []string{"redirect"}, Doc: "How TCP is taken: NAT, or TPROXY (needs kmod-nft-tproxy and kmod-nft-socket)."},
			{Name: "port", Type: numberType("1 to 65535", 1, 65535), Default: []string{"12443"}, Doc: "TCP port on which taken connections arrive."},
			{Name: "interface", Type: typeDevice, List: true, Default: []string{"br-lan"}, Doc: "Devices whose clients' TCP is taken, including devices on top of them that are the clients' router (`anygw`)."},
			{Name: "uplink", Type: typeDevice, List: true, Doc: "Devices, and ports of bridges, by which taken TCP would leave without a relay.", Note: "those of the default routes and of the routes to the gateways; of a bridge, also batman-adv's"},
			{Name: "bridge", Type: wordType(relay.BridgeAuto, relay.BridgeOff, relay.BridgeAll), Default: []string{relay.BridgeAuto}, Doc: "Takes TCP that the node only bridges to a router beyond (needs kmod-nft-bridge). `auto`: to targets that the node itself has a route to; `1`: in mode tproxy, also to targets that only a gateway reaches; `0`: none."},
			{Name: "exclude", Type: typePrefix, List: true, Doc: "Targets that are never relayed.", Note: "none"},
			{Name: "exclude_port", Type: typePorts, List: true, Doc: "TCP ports that are never relayed.", Note: "none"},
			{Name: "udp_port", Type: typePorts, List: true, Doc: "Ports whose UDP is carried, too (needs kmod-nft-socket).", Note: "none"},
			{Name: "cpu_share", Type: numberType("0 to 100", 0, 100), Default: []string{strconv.Itoa(relay.DefaultCPUShare)}, Unit: "% of one processor", Doc: "How much of a processor the relay may use. Where carrying all that the path can would take more, TCP goes direct. 0: TCP is carried whatever it costs."},
			{Name: "control_share", Type: numberType("0 to 50", 0, relay.MaxControlShare), Default: []string{strconv.Itoa(relay.DefaultControlShare)}, Unit: "% of new connections", Doc: "How many of the connections that would be carried are drawn to go direct, to compare both (`bquic report`); a fifth of that once it is sure which way is faster. 0: no comparison."},
			{Name: "auto", Type: typeBool, Default: []string{"0"}, Doc: "While carried connections are slower beyond doubt, new ones go direct. The relay still carries some, to see when that ends."},
			{Name: "state_dir", Type: typePath, Default: []string{"/etc/bquic"}, Doc: "Where the comparison is kept over restarts. It is written at most once an hour."},
			{Name: "metrics", Type: typeMetrics, Doc: "Address and port of the Prometheus metrics.", Note: "none"},
			{Name: "status_socket", Type: typePath, Default: []string{"/var/run/bquic/relay.sock"}, Doc: "Unix socket of `bquic status`."},
			{Name: "log_level", Type: typeLevel, Default: []string{"info"}, Doc: "How much is logged."},
		},
	}, {
		Type: "upstream", Roles: []string{"relay"},
		Doc: "A gateway of the relay, instead of `list gateway`. Of the gateways that work, those with the largest weight are used, and share new connections.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"1"}, Doc: "Uses this gateway."},
			{Name: "gateway", Type: typeHostPort, Doc: "Its host and port. Needed.", Note: "none"},
			{Name: "weight", Type: numberType("1 to 1000", 1, relay.MaxWeight), Default: []string{strconv.Itoa(relay.DefaultWeight)}, Doc: "Largest first; gateways of equal weight share the load."},
		},
	}, {
		Type:    "profile",
		Roles:   []string{"gateway", "relay"},
		Doc:     "A profile of your own, named by the section's name.",
		Options: profileOptions(),
	},
}

func profileOptions() []Option {
	opts := []Option{{Name: "base", Type: typeProfile, Default: []string{profile.Standard}, Doc: "Profile that has the values not given here."}}
	for _, p := range profile.Params {
		opts = append(opts, Option{
			Name: p.Name, Unit: p.Unit, Doc: p.Doc, Note: "as base",
			Type: &Type{p.Type, func(s string) (any, error) {
				// Checked here; set once the base is known.
				return profile.Value{Param: p.Name, Text: s}, p.Check(s)
			}},
		})
	}
	return opts
}

func (s *Section) option(name string) *Option {
	for i := range s.Options {
		if s.Options[i].Name == name {
			return &s.Options[i]
		}
	}
	return nil
}
