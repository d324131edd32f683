// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/peer"
	"bquic/internal/profile"
)

// A Type says which texts are valid for an option, and parses them.
type Type struct {
	Name  string // as shown in documentation
	parse func(string) (any, error)
}

func newType[T any](name string, parse func(string) (T, error)) *Type {
	return &Type{name, func(s string) (any, error) { return parse(s) }}
}

var (
	typeBool    = newType("0 or 1", profile.Bool)
	typePath    = newType("path", parsePath)
	typeSocket  = newType("path", parseSocket)
	typeListen  = newType("[address]:port", parseListen)
	typeMetrics = newType("address:port", parseMetrics)
	typePrefix  = newType("prefix", parsePrefix)
	typeToken   = newType("text", parseToken)
	typeKept    = newType("text or sha256:...", parseKept)
	typeHost    = newType("host name", parseHost)
	typeSite    = newType("host name", parseSite)
	typeOrigin  = newType("URL", parseOrigin)
	typeDevice  = newType("device", parseDevice)
	typePin     = newType("sha256/...", cert.ParsePin)
	typeProfile = newType("profile", func(s string) (string, error) { return s, nil }) // looked up later
	typePorts   = newType("port or range", divert.ParsePorts)
	typeLevel   = wordType("debug", "info", "warn", "error")
)

var typeHostPort = newType("host:port", func(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return "", fmt.Errorf("%q is not host:port, such as 10.1.2.3:8443 or [fd00::1]:8443", s)
	}
	if _, err := netip.ParseAddr(host); err != nil { // an address may have a zone
		if _, err := parseHost(host); err != nil {
			return "", err
		}
	}
	return s, checkPort(port)
})

// wordType returns the type of an option whose value is one of words.
func wordType(words ...string) *Type {
	last := len(words) - 1
	name := strings.Join(words[:last], ", ") + " or " + words[last]
	return newType(name, func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", fmt.Errorf("%q is not %s", s, name)
		}
		return s, nil
	})
}

// auto is the word for an option that the program decides itself.
const auto = "auto"

// autoType returns the type of an option whose value is a whole number from 1 to highest, or auto: 0.
func autoType(highest int) *Type {
	return newType(fmt.Sprintf("%s or 1 to %d", auto, highest), func(s string) (int, error) {
		if s == auto {
			return 0, nil
		}
		return profile.Number(s, 1, highest)
	})
}

// numberType returns the type of an option whose value is a whole number from lowest to highest.
func numberType(lowest, highest int) *Type {
	return newType(fmt.Sprintf("%d to %d", lowest, highest), func(s string) (int, error) { return profile.Number(s, lowest, highest) })
}

func parsePath(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", fmt.Errorf("%q is not an absolute path", s)
	}
	if s != strings.TrimSpace(s) {
		return "", fmt.Errorf("%q begins or ends with a space", s)
	}
	return filepath.Clean(s), nil
}

// maxSocket is the limit on a Unix socket's path, in bytes: the size of sun_path without its final NUL (unix(7)).
const maxSocket = 107

func parseSocket(s string) (string, error) {
	path, err := parsePath(s)
	if err == nil && len(path) > maxSocket {
		err = fmt.Errorf("has %d bytes: the path of a socket may have at most %d", len(path), maxSocket)
	}
	return path, err
}

func parseListen(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is not [address]:port, such as :8443 or 192.0.2.1:443", s)
	}
	if host != "" {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", fmt.Errorf("%q is not an IP address", host)
		}
	}
	return s, checkPort(port)
}

// parseMetrics requires an address, so that an operator does not publish metrics
// by accident.
func parseMetrics(s string) (string, error) {
	if strings.HasPrefix(s, ":") {
		return "", fmt.Errorf("%q has no address: write 127.0.0.1%s for this machine only, or 0.0.0.0%[2]s for all", s, s)
	}
	return parseListen(s)
}

func checkPort(s string) error {
	if n, err := strconv.ParseUint(s, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not in the range 1 to 65535", s)
	}
	return nil
}

// parsePrefix parses a prefix, or a single address.
func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" && !addr.Is4In6() {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not a prefix such as 10.0.0.0/8 or fd00::/8", s)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("%s has bits set beyond its length: write %s", p, p.Masked())
	}
	return p, nil
}

// parseToken parses a token as a relay presents it.
func parseToken(s string) (string, error) { return s, peer.CheckToken(s) }

// A keptToken is a token as a gateway stores it.
type keptToken struct {
	text string // as in the file
	hash peer.Hash
}

func parseKept(s string) (keptToken, error) {
	hash, err := peer.ParseToken(s)
	return keptToken{s, hash}, err
}

// checkASCII refuses an internationalised name, which no lookup would find in
// this form, and says what to write instead.
func checkASCII(host string) error {
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return fmt.Errorf("%q has characters other than ASCII: write the form of the name that begins with xn--", host)
	}
	return nil
}

func parseHost(s string) (string, error) {
	if err := checkASCII(s); err != nil {
		return "", err
	}
	host := strings.ToLower(strings.TrimSuffix(s, "."))
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return addr.String(), nil
	}
	if len(host) > 253 {
		return "", fmt.Errorf("%q is too long for a host name", s)
	}
	for label := range strings.SplitSeq(host, ".") {
		ok := label != "" && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-'
		for _, c := range []byte(label) {
			ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_')
		}
		if !ok {
			return "", fmt.Errorf("%q is not a host name", s)
		}
	}
	return host, nil
}

// parseSite parses a host name of a site, or *.
func parseSite(s string) (string, error) {
	if s == "*" {
		return s, nil
	}
	return parseHost(s)
}

// parseDevice checks the name of a network device for use in nftables rules. The kernel allows more characters
// (dev_valid_name in net/core/dev.c), OpenWrt uses fewer.
func parseDevice(s string) (string, error) {
	ok := len(s) >= 1 && len(s) <= 15 && s != "." && s != ".."
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return "", fmt.Errorf("%q is not a device name", s)
	}
	return s, nil
}

func parseOrigin(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		if strings.Contains(s, "@") {
			return nil, errors.New("a user name or a password is not supported") // and not for the log
		}
		return nil, fmt.Errorf("%q is not http:// or https:// with a host and, optionally, a port", s)
	}
	if p := u.Port(); p != "" {
		return u, checkPort(p)
	}
	return u, nil
}

func parseLevel(s string) slog.Level {
	var l slog.Level
	_ = l.UnmarshalText([]byte(s)) // typeLevel allows only valid levels
	return l
}
