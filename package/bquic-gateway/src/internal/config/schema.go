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
		Doc: "The gateway: serves sites over HTTP/3, HTTP/2 and HTTP/1.1, and makes TCP connections for relays.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"0"}, Doc: "Starts the gateway."},
			{Name: "listen", Type: typeListen, Default: []string{":8443"}, Doc: "Address and port to listen on, for both UDP and TCP. Without an address, the gateway listens on all of them."},
			{Name: "certificate", Type: typePath, Doc: "PEM file with the certificate chain. Without one, the gateway makes a self-signed certificate at its first start.", Note: "self-signed"},
			{Name: "key", Type: typePath, Doc: "PEM file with the certificate's key.", Note: "self-signed"},
			{Name: "state_dir", Type: typePath, Default: []string{"/etc/bquic"}, Doc: "Directory that keeps the self-signed certificate."},
			{Name: "mesh", Type: typePrefix, List: true, Default: meshPrefixes, Doc: "Address prefixes of the clients that connect over WiFi."},
			{Name: "mesh_profile", Type: typeProfile, Default: []string{profile.BQUIC}, Doc: "Profile for these clients; all others get `standard`."},
			{Name: "token", Type: typeKept, Doc: "Secret, or its hash, shared by all relays that have no `peer` section. Without a token or a peer, the gateway serves no relay.", Note: "none"},
			{Name: "connect_from", Type: typePrefix, List: true, Doc: "Address prefixes that relays may connect from.", Note: "same as mesh"},
			{Name: "connect_to", Type: typePrefix, List: true, Doc: "Address prefixes that the relays' clients may connect to. Private, reserved, loopback, link-local and multicast addresses, and the router's own, are allowed only if a prefix names them.", Note: "all public addresses"},
			{Name: "max_connections", Type: numberType(1, 100000), Default: []string{"1000"}, Doc: "Limit on simultaneous QUIC and TCP connections; a single address (IPv6: a /56) may have a quarter of them."},
			{Name: "memory", Type: numberType(0, 65536), Default: []string{"0"}, Unit: "MiB", Doc: "Limit on the gateway's memory; 0: a quarter of the machine's (or container's), but at least 32 MiB. GOMEMLIMIT in the environment takes precedence."},
			{Name: "access_log", Type: typePath, Doc: "File to log requests to, in the combined format.", Note: "none"},
			{Name: "redirect", Type: typeListen, Doc: "TCP address and port, such as `:80`, where the gateway redirects clients without TLS to the same site with TLS, and answers ACME challenges.", Note: "none"},
			{Name: "acme_webroot", Type: typePath, Doc: "Directory that contains the ACME challenges of all names, in `.well-known/acme-challenge/`. Requires redirect.", Note: "the site's own"},
			{Name: "metrics", Type: typeMetrics, Doc: "Address and port that serve the Prometheus metrics.", Note: "none"},
			{Name: "status_socket", Type: typeSocket, Default: []string{"/var/run/bquic/gateway.sock"}, Doc: "Unix socket that `bquic status` queries."},
			{Name: "log_level", Type: typeLevel, Default: []string{"info"}, Doc: "Least severe level of the messages that are logged."},
		},
	}, {
		Type: "site", Roles: []string{"gateway"},
		Doc: "A web site that the gateway serves: files, or an origin server.",
		Options: []Option{
			{Name: "host", Type: typeSite, List: true, Doc: "Host names of the site; `*` stands for every name that no other site has. Required.", Note: "none"},
			{Name: "root", Type: typePath, Doc: "Directory with the site's files. Either root or origin is required.", Note: "none"},
			{Name: "certificate", Type: typePath, Doc: "PEM file with the certificate chain for these names.", Note: "the gateway's"},
			{Name: "key", Type: typePath, Doc: "PEM file with the certificate's key.", Note: "the gateway's"},
			{Name: "listing", Type: typeBool, Default: []string{"0"}, Doc: "Lists the files of a directory that has no index.html."},
			{Name: "origin", Type: typeOrigin, List: true, Doc: "Origin servers of the site: `http://` or `https://`, host and port. The gateway uses the first one that answers.", Note: "none"},
			{Name: "early_data", Type: typeBool, Default: []string{"0"}, Doc: "Set to 1 if the origins understand `Early-Data` and answer 425 to requests that they do not want to serve twice (RFC 8470). The gateway then passes on safe requests in 0-RTT packets at once. Otherwise, they wait until the handshake is complete."},
			{Name: "origin_ca", Type: typePath, Doc: "PEM file with the authorities that sign the origins' certificates.", Note: "the system's"},
		},
	}, {
		Type: "peer", Roles: []string{"gateway"},
		Doc: "A relay that the gateway knows by the section's name, or several relays with the same token. Several tokens can be valid at a time, so each can be replaced without an outage. When a peer or a token is removed, its tunnels end at once.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"1"}, Doc: "Serves this peer."},
			{Name: "token", Type: typeKept, List: true, Doc: "Secrets that the relay may present, or their hashes; `bquic token` prints both. Required.", Note: "none"},
			{Name: "prefix", Type: typePrefix, List: true, Doc: "Address prefixes that the peer may connect from.", Note: "same as connect_from"},
			{Name: "tunnels", Type: numberType(1, 65536), Doc: "Limit on simultaneous tunnels.", Note: "a fair share"},
			{Name: "rate", Type: numberType(1, 100000), Unit: "Mbit/s", Doc: "Rate limit of all its tunnels together, in each direction.", Note: "none"},
		},
	}, {
		Type: "relay", Once: true, Roles: []string{"relay"},
		Doc: "The relay: carries the TCP connections of a node's clients over the mesh to a gateway.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"0"}, Doc: "Starts the relay."},
			{Name: "gateway", Type: typeHostPort, List: true, Doc: "Host and port of each gateway, in order of preference. Required, unless there are sections of type upstream.", Note: "none"},
			{Name: "server_name", Type: typeHost, Doc: "Host name in the gateway's certificate.", Note: "the gateway's host"},
			{Name: "pin", Type: typePin, List: true, Doc: "Pins of the gateways' keys, as the gateways' logs and status show them. Either pin or ca is required.", Note: "none"},
			{Name: "ca", Type: typePath, Doc: "PEM file with the authorities that sign the gateways' certificates.", Note: "none"},
			{Name: "token", Type: typeToken, Doc: "Secret that the relay presents to the gateway. Required.", Note: "none"},
			{Name: "profile", Type: typeProfile, Default: []string{profile.BQUIC}, Doc: "Profile of the connections to the gateway."},
			{Name: "connections", Type: numberType(1, relay.MaxConnections), Default: []string{"1"}, Doc: "Number of QUIC connections over which the relay spreads TCP connections, each from its own port. More than one helps in a mesh that spreads flows over several paths of equal cost: for each, the relay tries four ports and keeps the quickest, and new TCP connections leave a path that is congested."},
			{Name: "mode", Type: wordType(divert.Redirect, divert.TProxy), Default: []string{divert.Redirect}, Doc: "How the relay takes TCP connections: by NAT, or by TPROXY (requires kmod-nft-tproxy and kmod-nft-socket)."},
			{Name: "port", Type: numberType(1, 65535), Default: []string{strconv.Itoa(relay.DefaultPort)}, Doc: "TCP port on which taken connections arrive."},
			{Name: "interface", Type: typeDevice, List: true, Default: []string{"br-lan"}, Doc: "Devices whose clients' TCP is taken. Devices on top of them that act as the clients' router (`anygw`) are included."},
			{Name: "uplink", Type: typeDevice, List: true, Doc: "Devices and bridge ports through which TCP would leave without the relay. Only such TCP is taken.", Note: "those of the default routes and of the routes to the gateways; on a bridge, also the batman-adv port"},
			{Name: "bridge", Type: wordType(relay.BridgeAuto, relay.BridgeOff, relay.BridgeAll), Default: []string{relay.BridgeAuto}, Doc: "Whether the relay takes TCP that the node only bridges to a router beyond it (requires kmod-nft-bridge). `auto`: to targets to which the node itself has a route; `1`: in mode tproxy, also to targets that only a gateway can reach; `0`: none."},
			{Name: "exclude", Type: typePrefix, List: true, Doc: "Address prefixes of targets that are never relayed, such as the mesh's own public ones.", Note: "none"},
			{Name: "exclude_port", Type: typePorts, List: true, Doc: "TCP ports that are never relayed.", Note: "none"},
			{Name: "udp_port", Type: typePorts, List: true, Doc: "UDP ports that the relay also carries (requires kmod-nft-socket).", Note: "none"},
			{Name: "cpu_share", Type: numberType(0, 100), Default: []string{strconv.Itoa(relay.DefaultCPUShare)}, Unit: "% of one processor", Doc: "Limit on the relay's use of one processor. If it would take more to carry all that the path can, TCP goes direct. 0: no limit; TCP is always carried."},
			{Name: "control_share", Type: numberType(0, relay.MaxControlShare), Default: []string{strconv.Itoa(relay.DefaultControlShare)}, Unit: "% of new connections", Doc: "Share of the connections to be carried that goes direct instead, drawn at random, to compare the two ways (`bquic report`). Once it is certain which way is faster, a fifth of this; while there is a doubt, and with `auto` until it is certain, four times this; with `auto`, half of all at first. Another share counts from the next day (UTC) on. 0: no comparison, at once."},
			{Name: "auto", Type: typeBool, Default: []string{"0"}, Doc: "While carried connections are certainly slower, new ones go direct. The relay still carries a few, to notice when that ends."},
			{Name: "state_dir", Type: typePath, Default: []string{"/etc/bquic"}, Doc: "Directory that keeps the comparison across restarts. The relay writes to it at most once an hour."},
			{Name: "metrics", Type: typeMetrics, Doc: "Address and port that serve the Prometheus metrics.", Note: "none"},
			{Name: "status_socket", Type: typeSocket, Default: []string{"/var/run/bquic/relay.sock"}, Doc: "Unix socket that `bquic status` queries."},
			{Name: "log_level", Type: typeLevel, Default: []string{"info"}, Doc: "Least severe level of the messages that are logged."},
		},
	}, {
		Type: "upstream", Roles: []string{"relay"},
		Doc: "One of the relay's gateways, instead of an entry in `list gateway`. Of the gateways that work, those with the largest weight share the new connections.",
		Options: []Option{
			{Name: "enabled", Type: typeBool, Default: []string{"1"}, Doc: "Uses this gateway."},
			{Name: "gateway", Type: typeHostPort, Doc: "Host and port of the gateway. Required.", Note: "none"},
			{Name: "weight", Type: numberType(1, relay.MaxWeight), Default: []string{strconv.Itoa(relay.DefaultWeight)}, Doc: "The relay uses the largest weight first; gateways of equal weight share the load."},
		},
	}, {
		Type:    "profile",
		Roles:   []string{"gateway", "relay"},
		Doc:     "A profile of your own; the section's name is its name.",
		Options: profileOptions(),
	},
}

func profileOptions() []Option {
	opts := []Option{{Name: "base", Type: typeProfile, Default: []string{profile.Standard}, Doc: "Profile that provides the values not given here."}}
	for _, p := range profile.Params {
		opts = append(opts, Option{
			Name: p.Name, Unit: p.Unit, Doc: p.Doc, Note: "same as base",
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
