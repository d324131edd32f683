// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"
)

// How connections are taken.
const (
	Redirect = "redirect" // NAT: needs no routing, the default
	TProxy   = "tproxy"   // no NAT: needs kmod-nft-tproxy and kmod-nft-socket
)

// A Config describes a relay. The zero value of a field without a stated
// default is an error.
type Config struct {
	Gateway    string // host:port
	ServerName string // in the gateway's certificate; default: the host of Gateway
	// Pin is "sha256/" and the base64 SHA-256 of the public key in the
	// gateway's certificate (SPKI, as in RFC 7469). CAFile is a PEM file of
	// authorities. Exactly one of them is needed.
	Pin    string
	CAFile string
	Token  string // for Proxy-Authorization: Bearer

	Burst       quic.Burst
	Connections int // QUIC connections, 1 to 8; default: 1
	Mode        string
	Port        int      // TCP port to listen on; default: DefaultPort
	Interfaces  []string // whose clients' connections are taken
	Exclude     []netip.Prefix
	// Limit is the number of connections held at a time; beyond it, the kernel
	// forwards them as if there were no relay. Default: one per 64 KiB of the
	// machine's memory, at most 2000.
	Limit int
}

// DefaultPort is the TCP port that a relay listens on.
const DefaultPort = 12443

const (
	// A carried connection takes about 30 KB, and some more in the kernel.
	maxLimit       = 2000
	memoryPerLimit = 64 << 10
	maxConnections = 8

	keepAlive = time.Second
	// closeTimeout is how long a silent gateway may keep its connections: a
	// mesh that finds another route within it loses none.
	closeTimeout     = 10 * time.Second
	handshakeTimeout = 3 * time.Second

	// 100 Mbit/s at an RTT of 200 ms are 2.5 MB in flight.
	maxStreamWindow = 3 << 20
	// The connections' windows bound what all streams together may buffer:
	// this or, where that is less, an eighth of the memory.
	maxWindows = 16 << 20
	// A client that stops reading holds this much of the connection's window
	// to begin with; quic-go enlarges it for those that read fast.
	initialStreamWindow = 256 << 10
	initialWindow       = 1 << 20
)

// withDefaults returns the configuration completed and checked, in terms of
// the options of the UCI file.
func (c Config) withDefaults() (Config, error) {
	host, port, err := net.SplitHostPort(c.Gateway)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
		return c, fmt.Errorf("gateway: %q is not host:port", c.Gateway)
	}
	if c.ServerName == "" {
		c.ServerName = host
	}
	if (c.Pin == "") == (c.CAFile == "") {
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
		c.Mode = Redirect
	}
	if c.Mode != Redirect && c.Mode != TProxy {
		return c, fmt.Errorf("mode: %q is neither %s nor %s", c.Mode, Redirect, TProxy)
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
		if !interfaceName.MatchString(name) {
			return c, fmt.Errorf("interface: %q is no name of a device", name)
		}
	}
	for _, p := range c.Exclude {
		if !p.IsValid() || p.Addr().Zone() != "" {
			return c, fmt.Errorf("exclude: %s is no prefix", p)
		}
	}
	if c.Limit == 0 {
		c.Limit = int(min(maxLimit, memory()/memoryPerLimit))
	}
	if c.Limit < 0 {
		return c, fmt.Errorf("limit: %d is negative", c.Limit)
	}
	return c, nil
}

// interfaceName is what nft is given: the kernel allows more (dev_valid_name),
// OpenWrt uses less.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)

func (c *Config) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{ServerName: c.ServerName, NextProtos: []string{http3.NextProtoH3}}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s: no PEM certificate in it", c.CAFile)
		}
		return conf, nil
	}
	b64, ok := strings.CutPrefix(c.Pin, "sha256/")
	pin, err := base64.StdEncoding.DecodeString(b64)
	if !ok || err != nil || len(pin) != sha256.Size {
		return nil, fmt.Errorf("pin: %q is not sha256/ and the base64 of 32 bytes", c.Pin)
	}
	conf.InsecureSkipVerify = true // the pin replaces name, authority and dates
	conf.VerifyConnection = func(cs tls.ConnectionState) error {
		sum := sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo)
		if !bytes.Equal(sum[:], pin) {
			return fmt.Errorf("wrong pin: the gateway's key is sha256/%s", base64.StdEncoding.EncodeToString(sum[:]))
		}
		return nil
	}
	return conf, nil
}

func (c *Config) quicConfig() *quic.Config {
	window := min(maxWindows, memory()/8) / uint64(c.Connections)
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		MaxIdleTimeout:                 closeTimeout,
		KeepAlivePeriod:                keepAlive,
		MaxIncomingStreams:             -1,
		InitialStreamReceiveWindow:     min(initialStreamWindow, window/2),
		MaxStreamReceiveWindow:         min(maxStreamWindow, window/2),
		InitialConnectionReceiveWindow: min(initialWindow, window),
		MaxConnectionReceiveWindow:     window,
		Burst:                          c.Burst,
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
