// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// UDP is the :protocol of UDP tunnels (RFC 9298).
const UDP = "connect-udp"

const (
	// udpIdleTimeout ends a tunnel without datagrams. RFC 4787 requires at least 2 minutes.
	udpIdleTimeout = 2 * time.Minute
	// dnsIdleTimeout is for port 53, where an answer comes soon or never.
	dnsIdleTimeout = 15 * time.Second

	udpPath = "/.well-known/masque/udp/" // RFC 9298, section 3.4
	maxUDP  = 65527                      // the largest payload
	// packetBuffer is larger than the largest packet that quic-go sends (1,452 bytes).
	packetBuffer = 2 << 10
	// datagramCapsule carries a datagram in the stream (RFC 9297, section 3.5).
	datagramCapsule = 0
)

// UDPRequest returns the request for a tunnel to target, an address and port.
func UDPRequest(gateway, target string, header http.Header) (*http.Request, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	// The colons of an IPv6 address must be escaped, and so must the gateway's zone.
	path := udpPath + strings.ReplaceAll(host, ":", "%3A") + "/" + port + "/"
	u, err := url.Parse("https://" + strings.ReplaceAll(gateway, "%", "%25") + path)
	if err != nil {
		return nil, err
	}
	header.Set(http3.CapsuleProtocolHeader, "?1")
	return &http.Request{Method: http.MethodConnect, Proto: UDP, Host: gateway, URL: u, Header: header}, nil
}

// udpTarget returns the host:port that a request names.
func udpTarget(r *http.Request) (string, error) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), udpPath)
	host, rest, _ := strings.Cut(rest, "/")
	port, rest, slash := strings.Cut(rest, "/")
	name, err := url.PathUnescape(host)
	if !ok || err != nil || !slash || rest != "" || r.URL.RawQuery != "" || name == "" || strings.ContainsAny(name, "/[]%") {
		return "", fmt.Errorf("path is not %shost/port/", udpPath)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %q is not in the range 1 to 65535", port)
	}
	return net.JoinHostPort(name, port), nil
}

// A DatagramStream is an HTTP/3 request stream with datagrams (RFC 9297), at either end.
type DatagramStream interface {
	Stream
	SendDatagram([]byte) error
	ReceiveDatagram(context.Context) ([]byte, error)
}

var (
	_ DatagramStream = (*http3.Stream)(nil)
	_ DatagramStream = (*http3.RequestStream)(nil)
)

// SpliceUDP forwards datagrams between conn, which is connected, and str, until one of
// them ends or no datagram has arrived for the duration idle. It sends the datagrams in
// first to str before all others. It drops a datagram that does not fit into a packet on
// the path (RFC 9298, section 5).
func SpliceUDP(ctx context.Context, conn *net.UDPConn, first [][]byte, str DatagramStream, count *Bytes, idle time.Duration) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var moved atomic.Int64 // datagrams since the last tick
	timer := time.NewTicker(idle / 2)
	defer timer.Stop()
	quiet := 0
	send := func(b []byte) { // b begins with the context ID 0
		moved.Add(1)
		var large *quic.DatagramTooLargeError
		if err := str.SendDatagram(b); err == nil {
			count.ToStream.Add(uint64(len(b) - 1))
		} else if !errors.As(err, &large) {
			end(err)
		}
	}
	receive := func(b []byte) {
		id, n, err := quicvarint.Parse(b)
		if err != nil || id != 0 || len(b)-n > maxUDP { // an extension that was not negotiated
			return
		}
		moved.Add(1)
		if _, err := conn.Write(b[n:]); err == nil {
			count.FromStream.Add(uint64(len(b) - n))
		} else if errors.Is(err, net.ErrClosed) {
			end(err)
		}
	}
	for _, b := range first {
		send(append([]byte{0}, b...))
	}
	go func() {
		b := make([]byte, 1+packetBuffer)
		for {
			n, err := conn.Read(b[1:])
			if err == nil && n < packetBuffer {
				send(b[:1+n])
			} else if err == nil {
				moved.Add(1) // truncated: too large to send
			} else if !passing(err) && !errors.Is(err, syscall.EMSGSIZE) { // ICMP errors are about one datagram, and may be temporary
				end(err)
				return
			}
		}
	}()
	go func() {
		for {
			b, err := str.ReceiveDatagram(ctx)
			if err != nil {
				end(err)
				return
			}
			receive(b)
		}
	}()
	go func() { end(capsules(str, receive)) }()
	defer conn.Close()
	for {
		select {
		case <-ctx.Done():
			Cancel(str, http3.ErrCodeNoError)
			return context.Cause(ctx)
		case <-timer.C:
			if quiet++; moved.Swap(0) > 0 {
				quiet = 0
			} else if quiet == 2 {
				end(errIdle)
			}
		}
	}
}

// capsules reads the capsules in the stream until it ends.
func capsules(str io.Reader, receive func([]byte)) error {
	p := http3.NewCapsuleParser(bufio.NewReaderSize(str, 1<<10))
	for {
		kind, content, err := p.Next()
		if err != nil {
			return err
		}
		if kind == datagramCapsule {
			b, err := io.ReadAll(io.LimitReader(content, 8+maxUDP))
			if err != nil {
				return err
			}
			receive(b)
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
	}
}

// serveUDP opens a UDP tunnel and returns when it has ended.
func (h *Handler) serveUDP(w http.ResponseWriter, r *http.Request, conn *net.UDPConn, port string, g *grant) error {
	w.Header().Set(http3.CapsuleProtocolHeader, "?1")
	w.WriteHeader(http.StatusOK)
	str, err := w.(http3.HTTPStreamer).HTTPStream()
	if err != nil {
		conn.Close()
		return err
	}
	str.QUICStream().SetClient(clientOf(r.Header))
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	stop := context.AfterFunc(g.ctx, func() { end(context.Cause(g.ctx)) })
	defer stop()
	limited, leave := g.limit(str, r)
	defer leave()
	return SpliceUDP(ctx, conn, nil, limited, &g.bytes, IdleOf(port))
}

// IdleOf returns the idle timeout of tunnels to a UDP port.
func IdleOf(port string) time.Duration {
	if port == "53" {
		return dnsIdleTimeout
	}
	return udpIdleTimeout
}
