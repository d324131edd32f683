// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/metrics"
	"bquic/internal/proof"
	"bquic/internal/trace"
	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

// A Config configures a relay. Package config has checked its values. For a field without a stated default, the zero
// value is a mistake.
type Config struct {
	Gateways   []Upstream
	ServerName string // name in the gateways' certificates; default: the gateway's host
	// Pins are the pins of the gateways' keys. CAFile is a PEM file of authorities. Exactly one of them is required.
	Pins   []cert.Pin
	CAFile string
	Token  string // sent as Proxy-Authorization: Bearer

	Fixed

	Burst      quic.Burst
	Interfaces []string // devices whose clients' connections are taken
	// Uplinks are the devices by which taken connections would leave without a relay. Default: the devices of the
	// default routes and of the routes to the gateways.
	Uplinks []string
	Exclude []netip.Prefix
	// ExcludePorts are TCP ports that are not taken.
	ExcludePorts []divert.Ports
	// UDPPorts are UDP ports that are taken.
	UDPPorts []divert.Ports
	// Limit is the limit on concurrent connections. Above it, the kernel forwards connections as without a relay.
	// Default: one per 192 KiB of the machine's memory and per 4 file descriptors, at most 2000.
	Limit int
	// CPUShare is how much of one processor the relay may use, in percent. If carrying at the path's full rate would
	// take more, TCP is not taken. 0: no limit.
	CPUShare int
	// ControlShare is the share of new connections that go direct for the comparison, chosen at random, in percent:
	// 0 to 50. 0: no comparison.
	ControlShare int
	// Auto makes new connections go direct while carried ones are slower beyond doubt.
	Auto bool
}

// Fixed is what a running relay cannot change.
type Fixed struct {
	Mode        string
	Port        int // TCP port to listen on; default: DefaultPort
	Connections int // QUIC connections with each gateway, 1 to MaxConnections; 0: as many as busy clients need
	// Bridge says which connections are taken that the node only bridges to another router: BridgeOff, BridgeAuto or
	// BridgeAll. Default: BridgeAuto.
	Bridge string
	// StateDir is the directory for the comparison's state; "": it is not kept.
	StateDir     string
	StatusSocket string
	Metrics      string // address:port; "": none
}

// Options returns the options with their values.
func (f *Fixed) Options() [][2]string {
	connections := "auto"
	if f.Connections > 0 {
		connections = strconv.Itoa(f.Connections)
	}
	return [][2]string{
		{"mode", f.Mode}, {"port", strconv.Itoa(f.Port)}, {"connections", connections}, {"bridge", f.Bridge},
		{"state_dir", f.StateDir}, {"status_socket", f.StatusSocket}, {"metrics", f.Metrics},
	}
}

// Which bridged connections are taken.
const (
	BridgeOff  = "0"
	BridgeAuto = "auto" // to targets to which the node itself has a route
	// BridgeAll also takes connections to targets that only gateways can reach. If the gateways cannot reach a
	// target either, the connection fails, and the target is avoided for a while.
	BridgeAll = "1"
)

// An Upstream is a gateway. The working gateways with the largest weight are used; they share new connections.
type Upstream struct {
	Gateway string // host:port
	Weight  int    // 1 to MaxWeight; default: DefaultWeight
}

const (
	DefaultWeight = 100
	MaxWeight     = 1000
)

// InOrder returns gateways in order of preference, each with a smaller weight than the one before.
func InOrder(gateways ...string) (upstreams []Upstream) {
	for i, gateway := range gateways {
		upstreams = append(upstreams, Upstream{gateway, max(MaxWeight-i, 1)})
	}
	return upstreams
}

// DefaultCPUShare is the default in the UCI file. It leaves half of a node's only processor for forwarding, for the
// radio's driver, which takes a quarter of the relay's time for the same bytes, and for everything else.
const DefaultCPUShare = 50

// Connections chosen to go direct, in percent of new connections.
const (
	DefaultControlShare = int(100 * proof.DefaultShare)
	MaxControlShare     = int(100 * proof.MaxShare)
)

// MaxConnections is the limit on Config.Connections.
const MaxConnections = 8

// DefaultPort is the default TCP port of the relay's listener.
const DefaultPort = 12443

const (
	// A carried connection takes 25 KB (measured with 2,000) and some more in the kernel, together a sixth of
	// memoryPerLimit. A router with 64 MB has half of them for processes. There is room in this half for all
	// connections, the relay itself and an eighth of the memory for maxWindows (lab/router, results of "memory").
	maxLimit       = 2000
	memoryPerLimit = 192 << 10
	memoryShare    = 2 // a half of the machine's
	// A connection that the relay makes directly has two. The others are for flows, for sessions and for questions to the kernel.
	filesPerLimit = 4

	// After keepAlive, quic-go sends a PING, before NATs forget the session. While it carries connections, the relay
	// itself does (upstream.AskAfter).
	keepAlive        = upstream.IdleAfter / 2
	handshakeTimeout = 3 * time.Second

	// At 100 Mbit/s and an RTT of 200 ms, 2.5 MB are in flight.
	maxStreamWindow = 3 << 20
	// The connections' windows limit how much all streams together may buffer: maxWindows or an eighth of the
	// memory, whichever is less.
	maxWindows = 32 << 20
	// A client that stops reading can hold this much of the connection's window at first; quic-go enlarges it for
	// clients that read fast. The connection's window has its maximum size from the start, so that it has room for
	// clients that have stopped.
	initialStreamWindow = 256 << 10
)

// withDefaults returns the configuration with its defaults, and its gateways in order of preference.
func (c Config) withDefaults() Config {
	var sorted []*Upstream // pointers, as in package config: the code that sorts structures would take 3 KB more of a router's flash
	for _, u := range c.Gateways {
		u.Weight = cmp.Or(u.Weight, DefaultWeight)
		sorted = append(sorted, &u)
	}
	slices.SortStableFunc(sorted, func(a, b *Upstream) int { return b.Weight - a.Weight })
	c.Gateways = nil
	for _, u := range sorted {
		c.Gateways = append(c.Gateways, *u)
	}
	c.Mode = cmp.Or(c.Mode, divert.Redirect)
	c.Bridge = cmp.Or(c.Bridge, BridgeAuto)
	c.Port = cmp.Or(c.Port, DefaultPort)
	c.Limit = cmp.Or(c.Limit, int(min(maxLimit, metrics.Machine()/memoryPerLimit, tunnel.Files()/filesPerLimit)))
	return c
}

// settings is a valid Config with the values derived from it. It is immutable.
type settings struct {
	Config
	tls    *tls.Config
	quic   *quic.Config
	former []string // devices that Interfaces named before, by which packets of carried flows arrive
}

func newSettings(cfg Config) (*settings, error) {
	cfg = cfg.withDefaults()
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &settings{cfg, tlsConfig, cfg.quicConfig(), nil}, nil
}

// share returns CPUShare as a fraction of 1.
func (s *settings) share() float64 { return float64(s.CPUShare) / 100 }

// addresses returns the addresses of the gateways, as configured.
func (s *settings) addresses() (addresses []string) {
	for _, u := range s.Gateways {
		addresses = append(addresses, u.Gateway)
	}
	return addresses
}

// Check returns the error that New would return for the configuration.
func (c Config) Check() error {
	_, err := newSettings(c)
	return err
}

// sameSession reports whether a session made with s is the same as one made with o.
func (s *settings) sameSession(o *settings) bool {
	return s == o || s.ServerName == o.ServerName && slices.Equal(s.Pins, o.Pins) &&
		s.tls.RootCAs.Equal(o.tls.RootCAs) && s.Token == o.Token && s.Burst == o.Burst
}

// tlsConfig returns the TLS configuration of all gateways, without ServerName.
func (c *Config) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{
		NextProtos: []string{http3.NextProtoH3},
		// Resuming a session saves the gateway a signature.
		ClientSessionCache: tls.NewLRUClientSessionCache(MaxConnections),
	}
	if c.CAFile != "" {
		roots, err := cert.ReadAuthorities(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		conf.RootCAs = roots
		return conf, nil
	}
	cert.Verify(conf, c.Pins...)
	return conf, nil
}

// nameOf returns the name that a gateway's certificate must have. An address in a certificate has no zone.
func (s *settings) nameOf(gateway string) string {
	if s.ServerName != "" {
		return s.ServerName
	}
	host, _, _ := net.SplitHostPort(gateway)
	host, _, _ = strings.Cut(host, "%")
	return host
}

// trusts returns an error if these settings would not trust a gateway that has presented this certificate.
func (s *settings) trusts(gateway string, shown tls.ConnectionState) error {
	if s.tls.VerifyConnection != nil { // pins
		return s.tls.VerifyConnection(shown)
	}
	opts := x509.VerifyOptions{Roots: s.tls.RootCAs, DNSName: s.nameOf(gateway), Intermediates: x509.NewCertPool()}
	for _, c := range shown.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := shown.PeerCertificates[0].Verify(opts)
	return err
}

func (c *Config) quicConfig() *quic.Config {
	window := min(maxWindows, metrics.Machine()/8) / uint64(cmp.Or(c.Connections, MaxConnections))
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		MaxIdleTimeout:                 tunnel.IdleTimeout,
		KeepAlivePeriod:                keepAlive,
		MaxIncomingStreams:             -1,
		EnableDatagrams:                true,
		InitialStreamReceiveWindow:     min(initialStreamWindow, window/2),
		MaxStreamReceiveWindow:         min(maxStreamWindow, window/2),
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
		Burst:                          c.Burst,
		Tracer:                         trace.ToDir,

		// What an end of a tunnel has sent before it was reset arrives.
		EnableStreamResetPartialDelivery: true,
	}
}
