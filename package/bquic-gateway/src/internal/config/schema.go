// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"

	"bquic/internal/divert"
	"bquic/internal/profile"
	"bquic/internal/relay"
)

// DefaultFile is the configuration's path on OpenWrt.
const DefaultFile = "/etc/config/bquic"

// A Section describes one type of section. The comment before Type is its text in docs/gateway.md, as that before an option is the option's: TestDocs
// reads them, and they take no room on a router.
type Section struct {
	Type string
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
}

// meshPrefixes are the prefixes from which community networks take their addresses: RFC
// 1918 (10/8) and RFC 4193.
var meshPrefixes = []string{"10.0.0.0/8", "fd00::/8"}

// Schema describes everything that a file may contain.
var Schema = []Section{
	{
		// The gateway: serves sites over HTTP/3, HTTP/2 and HTTP/1.1, and makes TCP connections for relays.
		Type: "gateway", Once: true, Roles: []string{"gateway"},
		Options: []Option{
			// Starts the gateway.
			{Name: "enabled", Type: typeBool, Default: []string{"0"}},
			// Address and port to listen on, for both UDP and TCP. Without an address, the gateway listens on all of them.
			{Name: "listen", Type: typeListen, Default: []string{":8443"}},
			// PEM file with the certificate chain. Without one, the gateway makes a self-signed certificate at its first start.
			{Name: "certificate", Type: typePath, Note: "self-signed"},
			// PEM file with the certificate's key.
			{Name: "key", Type: typePath, Note: "self-signed"},
			// Directory that keeps the self-signed certificate.
			{Name: "state_dir", Type: typePath, Default: []string{"/etc/bquic"}},
			// Address prefixes of the clients that connect over WiFi.
			{Name: "mesh", Type: typePrefix, List: true, Default: meshPrefixes},
			// Profile for these clients; all others get `standard`.
			{Name: "mesh_profile", Type: typeProfile, Default: []string{profile.BQUIC}},
			// Secret, or its hash, shared by all relays that have no `peer` section. Without a token or a peer, the gateway serves no relay.
			{Name: "token", Type: typeKept, Note: "none"},
			// Address prefixes that relays may connect from.
			{Name: "connect_from", Type: typePrefix, List: true, Note: "same as mesh"},
			// Address prefixes that the relays' clients may connect to. Private, reserved, loopback, link-local and multicast addresses, and the router's own, are allowed only if a prefix names them.
			{Name: "connect_to", Type: typePrefix, List: true, Note: "all public addresses"},
			// Limit on simultaneous QUIC and TCP connections; a single address (IPv6: a /56) may have a quarter of them.
			{Name: "max_connections", Type: numberType(1, 100000), Default: []string{"1000"}},
			// Limit on the gateway's memory; 0: a quarter of the machine's (or container's), but at least 32 MiB. GOMEMLIMIT in the environment takes precedence.
			{Name: "memory", Type: numberType(0, 65536), Default: []string{"0"}, Unit: "MiB"},
			// File to log requests to, in the combined format.
			{Name: "access_log", Type: typePath, Note: "none"},
			// TCP address and port, such as `:80`, where the gateway redirects clients without TLS to the same site with TLS, and answers ACME challenges.
			{Name: "redirect", Type: typeListen, Note: "none"},
			// Directory that contains the ACME challenges of all names, in `.well-known/acme-challenge/`. Requires redirect.
			{Name: "acme_webroot", Type: typePath, Note: "the site's own"},
			// Address and port that serve the Prometheus metrics.
			{Name: "metrics", Type: typeMetrics, Note: "none"},
			// Unix socket that `bquic status` queries.
			{Name: "status_socket", Type: typeSocket, Default: []string{"/var/run/bquic/gateway.sock"}},
			// Least severe level of the messages that are logged.
			{Name: "log_level", Type: typeLevel, Default: []string{"info"}},
		},
	}, {
		// A web site that the gateway serves: files, or an origin server.
		Type: "site", Roles: []string{"gateway"},
		Options: []Option{
			// Host names of the site; `*` stands for every name that no other site has. Required.
			{Name: "host", Type: typeSite, List: true, Note: "none"},
			// Directory with the site's files. Either root or origin is required.
			{Name: "root", Type: typePath, Note: "none"},
			// PEM file with the certificate chain for these names.
			{Name: "certificate", Type: typePath, Note: "the gateway's"},
			// PEM file with the certificate's key.
			{Name: "key", Type: typePath, Note: "the gateway's"},
			// Lists the files of a directory that has no index.html.
			{Name: "listing", Type: typeBool, Default: []string{"0"}},
			// Origin servers of the site: `http://` or `https://`, host and port. The gateway uses the first one that answers.
			{Name: "origin", Type: typeOrigin, List: true, Note: "none"},
			// Set to 1 if the origins understand `Early-Data` and answer 425 to requests that they do not want to serve twice (RFC 8470). The gateway then passes on safe requests in 0-RTT packets at once. Otherwise, they wait until the handshake is complete.
			{Name: "early_data", Type: typeBool, Default: []string{"0"}},
			// PEM file with the authorities that sign the origins' certificates.
			{Name: "origin_ca", Type: typePath, Note: "the system's"},
		},
	}, {
		// A relay that the gateway knows by the section's name, or several relays with the same token. Several tokens can be valid at a time, so each can be replaced without an outage. When a peer or a token is removed, its tunnels end at once.
		Type: "peer", Roles: []string{"gateway"},
		Options: []Option{
			// Serves this peer.
			{Name: "enabled", Type: typeBool, Default: []string{"1"}},
			// Secrets that the relay may present, or their hashes; `bquic token` prints both. Required.
			{Name: "token", Type: typeKept, List: true, Note: "none"},
			// Address prefixes that the peer may connect from.
			{Name: "prefix", Type: typePrefix, List: true, Note: "same as connect_from"},
			// Limit on simultaneous tunnels.
			{Name: "tunnels", Type: numberType(1, 65536), Note: "a fair share"},
			// Rate limit of all its tunnels together, in each direction.
			{Name: "rate", Type: numberType(1, 100000), Unit: "Mbit/s", Note: "none"},
		},
	}, {
		// The relay: carries the TCP connections of a node's clients over the mesh to a gateway.
		Type: "relay", Once: true, Roles: []string{"relay"},
		Options: []Option{
			// Starts the relay.
			{Name: "enabled", Type: typeBool, Default: []string{"0"}},
			// Host and port of each gateway, in order of preference. Required, unless there are sections of type upstream.
			{Name: "gateway", Type: typeHostPort, List: true, Note: "none"},
			// Host name in the gateway's certificate.
			{Name: "server_name", Type: typeHost, Note: "the gateway's host"},
			// Pins of the gateways' keys, as the gateways' logs and status show them. Either pin or ca is required.
			{Name: "pin", Type: typePin, List: true, Note: "none"},
			// PEM file with the authorities that sign the gateways' certificates.
			{Name: "ca", Type: typePath, Note: "none"},
			// Secret that the relay presents to the gateway. Required.
			{Name: "token", Type: typeToken, Note: "none"},
			// Profile of the connections to the gateway.
			{Name: "profile", Type: typeProfile, Default: []string{profile.BQUIC}},
			// Number of QUIC connections with each gateway. `auto`: one while clients are idle, otherwise eight, over which their TCP connections spread. A number is for a mesh that spreads flows over several paths of equal cost: for each connection, the relay tries four ports and keeps the quickest, and new TCP connections leave a path that is congested.
			{Name: "connections", Type: autoType(relay.MaxConnections), Default: []string{auto}},
			// How the relay takes TCP connections: by NAT, or by TPROXY (requires kmod-nft-tproxy and kmod-nft-socket).
			{Name: "mode", Type: wordType(divert.Redirect, divert.TProxy), Default: []string{divert.Redirect}},
			// TCP port on which taken connections arrive.
			{Name: "port", Type: numberType(1, 65535), Default: []string{strconv.Itoa(relay.DefaultPort)}},
			// Devices whose clients' TCP is taken. Devices on top of them that act as the clients' router (`anygw`) are included.
			{Name: "interface", Type: typeDevice, List: true, Default: []string{"br-lan"}},
			// Devices and bridge ports through which TCP would leave without the relay. Only such TCP is taken.
			{Name: "uplink", Type: typeDevice, List: true, Note: "those of the default routes and of the routes to the gateways; on a bridge, also the batman-adv port"},
			// Whether the relay takes TCP that the node only bridges to a router beyond it (requires kmod-nft-bridge). `auto`: to targets to which the node itself has a route; `1`: in mode tproxy, also to targets that only a gateway can reach; `0`: none.
			{Name: "bridge", Type: wordType(relay.BridgeAuto, relay.BridgeOff, relay.BridgeAll), Default: []string{relay.BridgeAuto}},
			// Address prefixes of targets that are never relayed, such as the mesh's own public ones.
			{Name: "exclude", Type: typePrefix, List: true, Note: "none"},
			// TCP ports that are never relayed.
			{Name: "exclude_port", Type: typePorts, List: true, Note: "none"},
			// UDP ports that the relay also carries (requires kmod-nft-socket).
			{Name: "udp_port", Type: typePorts, List: true, Note: "none"},
			// Limit on the relay's use of one processor. If it would take more to carry all that the path can, TCP goes direct. 0: no limit; TCP is always carried.
			{Name: "cpu_share", Type: numberType(0, 100), Default: []string{strconv.Itoa(relay.DefaultCPUShare)}, Unit: "% of one processor"},
			// Share of the connections that the relay would carry but lets go direct, drawn at random, to compare the two ways (`bquic report`). It draws a fifth of this share once it is certain which way is faster, and four times this share while there is a doubt. With `auto`, it draws half of all at first, then four times this share until it is certain. A changed share takes effect on the next day (UTC), but 0, no comparison, at once.
			{Name: "control_share", Type: numberType(0, relay.MaxControlShare), Default: []string{strconv.Itoa(relay.DefaultControlShare)}, Unit: "% of new connections"},
			// While carried connections are certainly slower, new ones go direct. The relay still carries a few, to notice when that ends.
			{Name: "auto", Type: typeBool, Default: []string{"0"}},
			// Directory that keeps the comparison across restarts. The relay writes to it at most once an hour.
			{Name: "state_dir", Type: typePath, Default: []string{"/etc/bquic"}},
			// Address and port that serve the Prometheus metrics.
			{Name: "metrics", Type: typeMetrics, Note: "none"},
			// Unix socket that `bquic status` queries.
			{Name: "status_socket", Type: typeSocket, Default: []string{"/var/run/bquic/relay.sock"}},
			// Least severe level of the messages that are logged.
			{Name: "log_level", Type: typeLevel, Default: []string{"info"}},
		},
	}, {
		// One of the relay's gateways, instead of an entry in `list gateway`. Of the gateways that work, those with the largest weight share the new connections.
		Type: "upstream", Roles: []string{"relay"},
		Options: []Option{
			// Uses this gateway.
			{Name: "enabled", Type: typeBool, Default: []string{"1"}},
			// Host and port of the gateway. Required.
			{Name: "gateway", Type: typeHostPort, Note: "none"},
			// The relay uses the largest weight first; gateways of equal weight share the load.
			{Name: "weight", Type: numberType(1, relay.MaxWeight), Default: []string{strconv.Itoa(relay.DefaultWeight)}},
		},
	}, {
		// A profile of your own; the section's name is its name.
		Type:    "profile",
		Roles:   []string{"gateway", "relay"},
		Options: profileOptions(),
	},
}

func profileOptions() []Option {
	// Profile that provides the values not given here.
	opts := []Option{{Name: "base", Type: typeProfile, Default: []string{profile.Standard}}}
	for _, p := range profile.Params {
		opts = append(opts, Option{
			Name: p.Name, Unit: p.Unit, Note: "same as base",
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
