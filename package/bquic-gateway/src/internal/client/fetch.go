// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/cert"
	"bquic/internal/profile"
	"bquic/internal/trace"
	"bquic/internal/tunnel"
)

// keepAlive is when a PING is sent while nothing arrives, as browsers do: a response may take longer than quic-go's idle timeout of 30 s.
const keepAlive = 15 * time.Second

// Options say how to load. The zero value of a field selects the default.
type Options struct {
	Profile profile.Profile
	Pin     *cert.Pin
	CAFile  string
	// Insecure accepts any certificate.
	Insecure  bool
	LocalAddr netip.Addr
	// Upload is sent by POST, instead of a download.
	Upload string
	// Qlog, if not nil, receives a log of the connection, and is closed with it. Then only the first of a
	// host's addresses is used.
	Qlog io.WriteCloser
	// Progress is called with the number of bytes of the body so far.
	Progress func(done, total int64)
}

// A Result describes one transfer.
type Result struct {
	URL      string `json:"url"`
	Protocol string `json:"protocol"`
	Status   int    `json:"status"`
	// Bytes of the body received, or sent in an upload.
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"` // from the first packet to the last byte
	Mbps        float64 `json:"mbps"`    // Bytes in Seconds, in 1e6 bit/s
	HandshakeMS float64 `json:"handshake_ms"`
	LocalAddr   string  `json:"local_addr"`
	Profile     string  `json:"profile"`
	// DataPerAck is the number of data packets received per ACK sent.
	DataPerAck float64         `json:"data_per_ack"`
	Stats      quic.BurstStats `json:"stats"`
}

// Fetch loads rawURL over a new connection and writes the body to w.
func Fetch(ctx context.Context, rawURL string, w io.Writer, o Options) (*Result, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	req, err := o.request(ctx, u)
	if err != nil {
		return nil, err
	}
	if req.Host, err = written(u.Host); err != nil {
		return nil, err
	}
	if req.Body != nil {
		defer req.Body.Close()
	}
	tlsConf, err := o.tlsConfig(u.Hostname())
	if err != nil {
		return nil, err
	}
	addrs, err := resolve(ctx, u, o.LocalAddr)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", localAddr(o.LocalAddr))
	if err != nil {
		return nil, fmt.Errorf("cannot open a socket: %w", err)
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket, ConnectionIDLength: tunnel.ConnectionIDLength}
	defer transport.Close()

	conf := &quic.Config{Burst: o.Profile.Burst, MaxIncomingStreams: -1, KeepAlivePeriod: keepAlive}
	if o.Qlog != nil {
		conf.Tracer = trace.ToFile(o.Qlog)
		addrs = addrs[:1]
	}
	conn, start, err := dial(ctx, transport, addrs, tlsConf, conf)
	if err != nil {
		if key := unknownKey(err); key != nil {
			return nil, &UnknownKeyError{*key, connectError(u.Host, err)}
		}
		return nil, connectError(u.Host, err)
	}
	handshake := time.Since(start)
	h3 := &http3.Transport{DisableCompression: true}
	defer h3.Close()
	// The code means success: RFC 9114, section 8.1.
	defer conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")

	res, err := h3.NewClientConn(conn).RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("request failed: %w", simplify(err))
	}
	defer res.Body.Close()
	received, err := io.Copy(w, &progressReader{r: res.Body, total: res.ContentLength, report: o.Progress})
	if err != nil {
		return nil, fmt.Errorf("transfer failed after %d bytes: %w", received, simplify(err))
	}
	took := time.Since(start).Seconds()
	bytes := received
	if sent, ok := req.Body.(*progressReader); ok { // the server may have answered before it had all
		bytes = sent.done.Load()
	}
	stats := conn.BurstStats()
	return &Result{
		URL:         u.String(),
		Protocol:    "h3",
		Status:      res.StatusCode,
		Bytes:       bytes,
		Seconds:     took,
		Mbps:        float64(bytes) * 8 / took / 1e6,
		HandshakeMS: handshake.Seconds() * 1e3,
		LocalAddr:   usedAddr(socket, conn.RemoteAddr().(*net.UDPAddr)),
		Profile:     o.Profile.Name,
		DataPerAck:  stats.DataPerAckSent(),
		Stats:       stats,
	}, nil
}

// ParseURL parses an https URL. Its host is converted to the form of the DNS.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%q is not an https:// URL", s)
	}
	if u.Host, err = ascii(u.Host); err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return u, nil
}

// ascii returns host with internationalised names as A-labels (RFC 5890).
func ascii(host string) (string, error) {
	if !strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return host, nil
	}
	if !utf8.ValidString(host) {
		return "", errors.New("the host is not a valid name")
	}
	return written(host)
}

// written returns host as net/http writes it in a request: with A-labels, and without a zone. Importing the package that
// it uses would add the Unicode tables to the binary a second time.
func written(host string) (string, error) {
	var wire bytes.Buffer
	err := (&http.Request{URL: &url.URL{Host: strings.ToLower(host)}}).Write(&wire)
	if err != nil {
		return "", err
	}
	req, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		return "", err
	}
	return req.Host, nil
}

func (o *Options) request(ctx context.Context, u *url.URL) (*http.Request, error) {
	if o.Upload == "" {
		return http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	}
	f, err := os.Open(o.Upload)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", o.Upload)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	body := &progressReader{r: f, Closer: f, total: info.Size(), report: o.Progress}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		f.Close()
		return nil, err
	}
	req.ContentLength = info.Size()
	return req, nil
}

func (o *Options) tlsConfig(host string) (*tls.Config, error) {
	name, _, _ := strings.Cut(host, "%") // an address in a certificate has no zone
	conf := &tls.Config{ServerName: name, NextProtos: []string{http3.NextProtoH3}}
	switch {
	case o.Pin != nil:
		cert.Verify(conf, *o.Pin)
	case o.CAFile != "":
		roots, err := cert.ReadAuthorities(o.CAFile)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = roots
	case o.Insecure:
		conf.InsecureSkipVerify = true
	}
	return conf, nil
}

// dial connects to the first of the addresses that answers: where a host has IPv6 and IPv4, packets of one of them may
// get lost on the way. It waits for each one as long as conf lets a handshake take. The returned time is the connection's
// start. If none answers, the error is that of the first one, which the system prefers.
func dial(ctx context.Context, transport *quic.Transport, addrs []netip.AddrPort, tlsConf *tls.Config, conf *quic.Config) (*quic.Conn, time.Time, error) {
	var first error
	for _, addr := range addrs {
		start := time.Now()
		conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), tlsConf, conf)
		if err == nil || answered(err) || ctx.Err() != nil {
			return conn, start, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, time.Time{}, first
}

// resolve returns the addresses of u's host, of local's family if there is one.
func resolve(ctx context.Context, u *url.URL, local netip.Addr) ([]netip.AddrPort, error) {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	network := "ip"
	if local.IsValid() {
		network = map[bool]string{true: "ip4", false: "ip6"}[local.Is4()]
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, network, u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("cannot resolve %s: %w", u.Hostname(), err)
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(n)))
	}
	return addrs, nil
}

func localAddr(a netip.Addr) *net.UDPAddr {
	if !a.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
}

// usedAddr returns the local address that the packets have, before any NAT. The socket
// itself has no address unless it was bound to one.
func usedAddr(socket *net.UDPConn, remote *net.UDPAddr) string {
	local := socket.LocalAddr().(*net.UDPAddr)
	if !local.IP.IsUnspecified() {
		return local.String()
	}
	route, err := net.DialUDP("udp", nil, remote) // sends nothing
	if err != nil {
		return local.String()
	}
	defer route.Close()
	return (&net.UDPAddr{IP: route.LocalAddr().(*net.UDPAddr).IP, Port: local.Port}).String()
}

// An UnknownKeyError is returned for a server with a self-signed certificate. Pin is
// the pin of its key, which is not authenticated.
type UnknownKeyError struct {
	Pin cert.Pin
	Err error
}

func (e *UnknownKeyError) Error() string { return e.Err.Error() }

func (e *UnknownKeyError) Unwrap() error { return e.Err }

// unknownKey returns the pin of a self-signed certificate that was refused, or nil if
// err has another cause.
func unknownKey(err error) *cert.Pin {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return nil
	}
	leaf := refused.UnverifiedCertificates[0]
	if !bytes.Equal(leaf.RawIssuer, leaf.RawSubject) {
		return nil // issued by an authority, but invalid for another reason
	}
	pin := cert.PinOf(leaf)
	return &pin
}

// answered tells whether a connection failed because of what came from its address. To quic-go, a packet that cannot be
// sent is an internal error.
func answered(err error) bool {
	var transport *quic.TransportError
	var version *quic.VersionNegotiationError
	if errors.As(err, &transport) {
		return transport.Remote || transport.ErrorCode != quic.InternalError
	}
	return errors.As(err, &version)
}

func connectError(host string, err error) error {
	var timeout *quic.HandshakeTimeoutError
	var idle *quic.IdleTimeoutError
	switch {
	case errors.As(err, &timeout), errors.As(err, &idle):
		return fmt.Errorf("cannot connect to %s: no answer", host)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cannot connect to %s: no answer in time", host)
	}
	return fmt.Errorf("cannot connect to %s: %w", host, simplify(err))
}

// simplify returns the cause of err without the transport's error codes.
func simplify(err error) error {
	var transport *quic.TransportError
	if errors.As(err, &transport) {
		if _, text, ok := strings.Cut(transport.Error(), " (local): "); ok {
			return errors.New(text)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("timed out")
	}
	return err
}

// progressReader reports how much was read.
type progressReader struct {
	io.Closer
	r      io.Reader
	done   atomic.Int64
	total  int64
	report func(done, total int64)
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	done := p.done.Add(int64(n))
	if p.report != nil {
		p.report(done, p.total)
	}
	return n, err
}
