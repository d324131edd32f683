// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/proof"
	"bquic/internal/trace"
)

// A Config describes a relay. The zero value of a field without a stated
// default is an error.
type Config struct {
	Gateways   []Upstream
	ServerName string // in the gateways' certificates; default: the gateway's host
	// Pins are of the gateways' keys, as cert.Pin has them. CAFile is a PEM file
	// of authorities. Exactly one of both is needed.
	Pins   []string
	CAFile string
	Token  string // for Proxy-Authorization: Bearer

	Burst       quic.Burst
	Connections int // QUIC connections, 1 to 8; default: 1
	Mode        string
	Port        int      // TCP port to listen on; default: DefaultPort
	Interfaces  []string // whose clients' connections are taken
	// Uplinks are the devices that what is taken would leave by. Default: those of the
	// default routes, and those that lead to the gateways.
	Uplinks []string
	Exclude []netip.Prefix
	// ExcludePorts are TCP ports that are not taken.
	ExcludePorts []divert.Ports
	// UDPPorts are those whose UDP is taken, too.
	UDPPorts []divert.Ports
	// Limit is the number of connections held at a time; beyond it, the kernel
	// forwards them as if there were no relay. Default: one per 192 KiB of the
	// machine's memory, at most 2000.
	Limit int
	// CPUShare is how much of one processor the relay may use, in percent. Where
	// carrying all that the path can would take more, TCP is not taken. 0: it is taken
	// whatever that costs.
	CPUShare int
	// ControlShare is how many of the connections that would be carried are drawn to go direct,
	// to compare both, in percent: 0 to 50. 0: nothing is compared.
	ControlShare int
	// Auto: when carried connections are slower beyond doubt, new ones go direct.
	Auto bool
	// StateDir is where the comparison is kept; "": nowhere.
	StateDir string
	// Bridge says which of the connections are taken that are only bridged through the
	// node, to a router beyond: BridgeOff, BridgeAuto or BridgeAll; default: BridgeAuto.
	Bridge string
}

// What is taken of bridged connections.
const (
	BridgeOff  = "0"
	BridgeAuto = "auto" // what the node itself has a way to
	// BridgeAll is also what the node has no way to, and only gateways reach. What they
	// do not reach either then fails, and is left alone for a while.
	BridgeAll = "1"
)

// An Upstream is a gateway. Those with the largest weight that work are used;
// they share new connections.
type Upstream struct {
	Gateway string // host:port
	Weight  int    // 1 to MaxWeight; default: DefaultWeight
}

const (
	DefaultWeight = 100
	MaxWeight     = 1000
)

// InOrder returns gateways each of which is preferred to those after it.
func InOrder(gateways ...string) (upstreams []Upstream) {
	for i, gateway := range gateways {
		upstreams = append(upstreams, Upstream{gateway, max(MaxWeight-i, 1)})
	}
	return upstreams
}

// DefaultCPUShare is that of the UCI file. It leaves half of a node's only processor for forwarding, for the radio's
// driver, which takes a quarter of what a relay does for the same bytes, and for all else.
const DefaultCPUShare = 50

// What is drawn to go direct, in percent of new connections.
const (
	DefaultControlShare = int(100 * proof.DefaultShare)
	MaxControlShare     = int(100 * proof.MaxShare)
)

// DefaultPort is the TCP port that a relay listens on.
const DefaultPort = 12443

const (
	// A carried connection takes 25 KB (measured at 2,000) and some more in the
	// kernel, together a sixth of this. A router with 64 MB gives its processes
	// half of them: what all connections take, the relay itself and an eighth for
	// maxWindows leave room there (lab/router, results of "memory").
	maxLimit       = 2000
	memoryPerLimit = 192 << 10
	maxConnections = 8

	// idleTimeout is how long an idle session lasts without the gateway, which
	// quic-go asks at half of it. While there is something to carry, the relay
	// itself asks (upstream.AskAfter).
	idleTimeout      = 30 * time.Second
	handshakeTimeout = 3 * time.Second

	// 100 Mbit/s at an RTT of 200 ms are 2.5 MB in flight.
	maxStreamWindow = 3 << 20
	// The connections' windows bound what all streams together may buffer:
	// this or, where that is less, an eighth of the memory.
	maxWindows = 16 << 20
	// A client that stops reading holds this much of the connection's window
	// to begin with; quic-go enlarges it for those that read fast. The connection's
	// is never smaller than it may become: there is room for who has stopped.
	initialStreamWindow = 256 << 10
)

// withDefaults returns the configuration completed and checked, in terms of
// the options of the UCI file.
func (c Config) withDefaults() (Config, error) {
	if len(c.Gateways) == 0 {
		return c, errors.New("gateway: missing")
	}
	c.Gateways = slices.Clone(c.Gateways)
	seen := make(map[string]bool)
	for i := range c.Gateways {
		u := &c.Gateways[i]
		host, port, err := net.SplitHostPort(u.Gateway)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
			return c, fmt.Errorf("gateway: %q is not host:port", u.Gateway)
		}
		if seen[u.Gateway] {
			return c, fmt.Errorf("gateway: %q is given twice", u.Gateway)
		}
		seen[u.Gateway] = true
		if u.Weight = cmp.Or(u.Weight, DefaultWeight); u.Weight < 1 || u.Weight > MaxWeight {
			return c, fmt.Errorf("weight: %d is not in 1 to %d", u.Weight, MaxWeight)
		}
	}
	slices.SortStableFunc(c.Gateways, func(a, b Upstream) int { return b.Weight - a.Weight })
	if (len(c.Pins) == 0) == (c.CAFile == "") {
		return c, errors.New("pin, ca: one of them, and not both, is needed")
	}
	if c.Token == "" {
		return c, errors.New("token: missing")
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return c, errors.New("token: contains a space or what is not printable ASCII")
	}
	if c.Connections == 0 {
		c.Connections = 1
	}
	if c.Connections < 1 || c.Connections > maxConnections {
		return c, fmt.Errorf("connections: %d is not in 1 to %d", c.Connections, maxConnections)
	}
	if c.Mode == "" {
		c.Mode = divert.Redirect
	}
	if c.Mode != divert.Redirect && c.Mode != divert.TProxy {
		return c, fmt.Errorf("mode: %q is neither %s nor %s", c.Mode, divert.Redirect, divert.TProxy)
	}
	if c.Bridge == "" {
		c.Bridge = BridgeAuto
	}
	if c.Bridge != BridgeOff && c.Bridge != BridgeAuto && c.Bridge != BridgeAll {
		return c, fmt.Errorf("bridge: %q is not %s, %s or %s", c.Bridge, BridgeAuto, BridgeOff, BridgeAll)
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.Port < 1 || c.Port > 65535 {
		return c, fmt.Errorf("port: %d is not in 1 to 65535", c.Port)
	}
	if len(c.Interfaces) == 0 {
		return c, errors.New("interface: none given")
	}
	for _, name := range c.Interfaces {
		if _, err := ParseInterface(name); err != nil {
			return c, fmt.Errorf("interface: %w", err)
		}
	}
	for _, name := range c.Uplinks {
		if _, err := ParseInterface(name); err != nil {
			return c, fmt.Errorf("uplink: %w", err)
		}
	}
	for _, p := range c.Exclude {
		if !p.IsValid() || p.Addr().Zone() != "" {
			return c, fmt.Errorf("exclude: %s is no prefix", p)
		}
	}
	for _, p := range c.UDPPorts {
		if p.First <= 443 && 443 <= p.Last {
			return c, fmt.Errorf("udp_port: %s has 443: QUIC of phones is left alone", p)
		}
	}
	if c.Limit == 0 {
		c.Limit = int(min(maxLimit, memory()/memoryPerLimit))
	}
	if c.CPUShare < 0 || c.CPUShare > 100 {
		return c, fmt.Errorf("cpu_share: %d is not in 0 to 100", c.CPUShare)
	}
	if c.ControlShare < 0 || c.ControlShare > MaxControlShare {
		return c, fmt.Errorf("control_share: %d is not in 0 to %d", c.ControlShare, MaxControlShare)
	}
	if c.Auto && c.ControlShare == 0 {
		return c, errors.New("auto: control_share is 0, and nothing tells what is slower")
	}
	if c.Limit < 0 {
		return c, fmt.Errorf("limit: %d is negative", c.Limit)
	}
	return c, nil
}

// settings are a Config with all that is made of it. They are never changed.
type settings struct {
	Config
	tls  *tls.Config
	quic *quic.Config
}

func newSettings(cfg Config) (*settings, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	return &settings{cfg, tlsConfig, cfg.quicConfig()}, nil
}

// share is CPUShare as a part of 1.
func (s *settings) share() float64 { return float64(s.CPUShare) / 100 }

// addresses returns those of the gateways, as configured.
func (s *settings) addresses() (addresses []string) {
	for _, u := range s.Gateways {
		addresses = append(addresses, u.Gateway)
	}
	return addresses
}

// Check says what New would find wrong.
func (c Config) Check() error {
	_, err := newSettings(c)
	return err
}

// sameSession says that a session with a gateway which was made with one is as
// one of the other.
func (s *settings) sameSession(o *settings) bool {
	return s == o || s.ServerName == o.ServerName && slices.Equal(s.Pins, o.Pins) &&
		s.CAFile == o.CAFile && s.Token == o.Token && s.Burst == o.Burst
}

// ParseInterface checks the name of a network device, which nft is given: the
// kernel allows more (dev_valid_name in net/core/dev.c), OpenWrt uses less.
func ParseInterface(s string) (string, error) {
	ok := len(s) >= 1 && len(s) <= 15 && s != "." && s != ".."
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return "", fmt.Errorf("%q is no name of a device", s)
	}
	return s, nil
}

// tlsConfig is without ServerName where that is the gateway's host.
func (c *Config) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{
		ServerName: c.ServerName,
		NextProtos: []string{http3.NextProtoH3},
		// A session that is resumed costs the gateway no signature.
		ClientSessionCache: tls.NewLRUClientSessionCache(maxConnections),
	}
	if c.CAFile != "" {
		roots, err := cert.ReadAuthorities(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		conf.RootCAs = roots
		return conf, nil
	}
	var pins []cert.Pin
	for _, text := range c.Pins {
		pin, err := cert.ParsePin(text)
		if err != nil {
			return nil, fmt.Errorf("pin: %w", err)
		}
		pins = append(pins, pin)
	}
	cert.Verify(conf, pins...)
	return conf, nil
}

// trusts says why a gateway that has shown itself would not be trusted with these
// settings, nil where it would be.
func (s *settings) trusts(gateway string, shown tls.ConnectionState) error {
	if s.tls.VerifyConnection != nil { // pins
		return s.tls.VerifyConnection(shown)
	}
	opts := x509.VerifyOptions{Roots: s.tls.RootCAs, DNSName: s.tls.ServerName, Intermediates: x509.NewCertPool()}
	if opts.DNSName == "" {
		opts.DNSName, _, _ = net.SplitHostPort(gateway)
	}
	for _, c := range shown.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := shown.PeerCertificates[0].Verify(opts)
	return err
}

func (c *Config) quicConfig() *quic.Config {
	window := min(maxWindows, memory()/8) / uint64(c.Connections)
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                idleTimeout / 2,
		MaxIncomingStreams:             -1,
		EnableDatagrams:                true,
		InitialStreamReceiveWindow:     min(initialStreamWindow, window/2),
		MaxStreamReceiveWindow:         min(maxStreamWindow, window/2),
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
		Burst:                          c.Burst,
		Tracer:                         trace.ToDir,
	}
}

// memory returns the size of the machine's memory in bytes.
func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 64 << 20 // the least that bquic is made for
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}
