// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
	"golang.org/x/sys/unix"
)

// UDP is the :protocol of UDP tunnels (RFC 9298).
const UDP = "connect-udp"

const (
	// udpIdleTimeout ends a tunnel without datagrams, not before OpenWrt's NAT would forget the flow (nf_conntrack_udp_timeout_stream).
	udpIdleTimeout = 3 * time.Minute
	// dnsIdleTimeout is for port 53, where an answer comes soon or never. dnsAnswered is for a flow there in which all questions are answered:
	// each question mostly has a port of its own.
	dnsIdleTimeout = 15 * time.Second
	dnsAnswered    = 2 * time.Second

	udpPath = "/.well-known/masque/udp/" // RFC 9298, section 3.4
	maxUDP  = 65527                      // the largest payload
	// packetBuffer is larger than the largest packet that quic-go sends (1,452 bytes).
	packetBuffer = 2 << 10
	// maxWaiting is after how many bytes of a flow's large datagrams that wait for the stream further ones are dropped: the largest datagram
	// waits whole. Where those of all flows leave room, it is a third of that, so that a burst such as a picture of a video is sent whole.
	maxWaiting    = 64 << 10
	maxAllWaiting = 1 << 20
	// receiveBuffer holds a burst that comes faster than this process runs. The kernel counts a datagram as up to 4 KiB, and doubles what it is given.
	receiveBuffer = 512 << 10
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

// A Flow is an end of a UDP tunnel. Create it with NewFlow.
type Flow struct {
	conn  *net.UDPConn
	str   DatagramStream
	count *Bytes
	ctx   context.Context
	end   context.CancelCauseFunc
	moved atomic.Int64 // datagrams since the last tick
	heard atomic.Bool  // conn has received a datagram

	gateway bool         // conn leads to the target, not to the client
	unheard atomic.Int64 // datagrams to conn for which none has come back

	mu      sync.Mutex
	large   [][]byte // capsules that wait for the stream; the first one is being written
	waiting int      // their size, in bytes
}

// allWaiting is the sum of all flows' waiting.
var allWaiting atomic.Int32

// NewFlow returns a tunnel between conn, which is connected, and str. The caller must call Run.
func NewFlow(ctx context.Context, conn *net.UDPConn, str DatagramStream, count *Bytes) *Flow {
	// Routers on the way fragment what is too large for them, as they do with what a client sends. Of their errors, neither end would
	// learn.
	set(conn, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	set(conn, unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_RCVBUFFORCE} { // the latter needs CAP_NET_ADMIN, which gateways do not have
		set(conn, unix.SOL_SOCKET, option, receiveBuffer)
	}
	f := &Flow{conn: conn, str: str, count: count}
	f.ctx, f.end = context.WithCancelCause(ctx)
	return f
}

// Run forwards datagrams until one of the tunnel's sides ends, or until no datagram has arrived for the duration idle.
func (f *Flow) Run(idle time.Duration) error {
	defer f.conn.Close()
	go func() { f.end(f.toStream()) }()
	go func() { f.end(f.fromStream()) }()
	go func() { f.end(capsules(f.str, f.receive)) }()
	answered := idle
	if f.gateway && idle == dnsIdleTimeout {
		answered = dnsAnswered
	}
	tick := time.NewTicker(answered / 2)
	defer tick.Stop()
	quiet := time.Duration(0)
	for {
		select {
		case <-f.ctx.Done():
			err := context.Cause(f.ctx)
			if errors.Is(err, syscall.ECONNREFUSED) {
				Cancel(f.str, http3.ErrCodeConnectError)
			} else {
				Cancel(f.str, http3.ErrCodeNoError)
			}
			return err
		case <-tick.C:
			if quiet += answered / 2; f.moved.Swap(0) > 0 {
				quiet = 0
			} else if quiet >= idle || quiet >= answered && f.unheard.Load() == 0 {
				f.end(errIdle)
			}
		}
	}
}

// Send sends a datagram to the stream. At a relay, it does not block.
func (f *Flow) Send(b []byte) { f.send(append([]byte{0}, b...)) }

// send sends a datagram that begins with the context ID 0.
func (f *Flow) send(b []byte) {
	f.moved.Add(1)
	var large *quic.DatagramTooLargeError
	err := f.str.SendDatagram(b)
	switch {
	case errors.As(err, &large):
		if !f.sendLarge(b[1:]) {
			return
		}
	case err != nil:
		f.end(err)
		return
	}
	f.count.ToStream.Add(uint64(len(b) - 1))
}

// Capsule returns a datagram as data for the stream of a tunnel. Its ends know no other context ID than 0.
func Capsule(datagram []byte) []byte {
	b := quicvarint.Append(quicvarint.Append(nil, datagramCapsule), uint64(1+len(datagram)))
	return append(append(b, 0), datagram...)
}

// sendLarge sends a datagram that does not fit into a packet on the path. A client has it fragmented, and expects it to arrive. It
// reports false if too much is waiting already.
func (f *Flow) sendLarge(b []byte) bool {
	capsule := Capsule(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting >= max(maxWaiting, (maxAllWaiting-int(allWaiting.Load()))/3) {
		return false
	}
	f.large = append(f.large, capsule)
	f.wait(len(capsule))
	if len(f.large) == 1 {
		go f.writeLarge(capsule)
	}
	return true
}

// wait counts bytes that begin to wait for the stream, or no longer do. The caller holds mu.
func (f *Flow) wait(n int) {
	f.waiting += n
	allWaiting.Add(int32(n))
}

// writeLarge writes capsules, beginning with this one, until none is waiting. Meanwhile, datagrams that fit into packets go on.
func (f *Flow) writeLarge(capsule []byte) {
	for capsule != nil {
		_, err := f.str.Write(capsule)
		f.mu.Lock()
		if err != nil {
			f.wait(-f.waiting)
			f.large = nil
			f.mu.Unlock()
			f.end(err)
			return
		}
		f.wait(-len(capsule))
		if f.large, capsule = f.large[1:], nil; len(f.large) > 0 {
			capsule = f.large[0]
		}
		f.mu.Unlock()
	}
}

// receive passes on a datagram from the stream.
func (f *Flow) receive(b []byte) {
	id, n, err := quicvarint.Parse(b)
	if err != nil || id != 0 || len(b)-n > maxUDP { // an extension that was not negotiated
		return
	}
	f.moved.Add(1)
	f.unheard.Add(1)
	_, err = f.conn.Write(b[n:])
	if passing(err) { // an ICMP error about an earlier datagram
		f.failed(err)
		_, err = f.conn.Write(b[n:])
	}
	if err == nil {
		f.count.FromStream.Add(uint64(len(b) - n))
	} else if errors.Is(err, net.ErrClosed) {
		f.end(err)
	}
}

// failed ends the tunnel after an error of conn that says more than that a datagram did not arrive, which may be temporary. A target that has
// answered may open its port again. A client that has closed its own wants no more answers: the gateway's kernel then tells the target so.
func (f *Flow) failed(err error) {
	if !passing(err) || errors.Is(err, syscall.ECONNREFUSED) && !(f.gateway && f.heard.Load()) {
		f.end(err)
	}
}

// Answered reports, at a relay, whether the target has had the last word.
func (f *Flow) Answered() bool { return f.unheard.Load() > 0 }

func (f *Flow) toStream() error {
	raw, err := f.conn.SyscallConn()
	if err != nil {
		return err
	}
	for b := make([]byte, 1+packetBuffer); f.ctx.Err() == nil; {
		datagram, err := readDatagram(raw, b)
		if err == nil {
			f.heard.Store(true)
			if f.unheard.Load() > 0 { // a target may say more than it is asked
				f.unheard.Add(-1)
			}
			f.send(datagram)
		} else {
			f.failed(err)
		}
	}
	return nil
}

// overflow takes what of a datagram does not fit into a flow's own buffer.
var overflow struct {
	sync.Mutex
	b [maxUDP]byte
}

// readDatagram reads a datagram to b[1:], or to a copy of b if it is larger.
func readDatagram(raw syscall.RawConn, b []byte) (datagram []byte, err error) {
	cerr := raw.Read(func(fd uintptr) bool {
		overflow.Lock()
		defer overflow.Unlock()
		var n int
		n, err = unix.Readv(int(fd), [][]byte{b[1:], overflow.b[:]})
		if err == nil {
			here := min(1+n, len(b))
			datagram = append(b[:here:here], overflow.b[:1+n-here]...)
		}
		return err != unix.EAGAIN
	})
	if cerr != nil {
		return nil, cerr
	}
	return datagram, err
}

func (f *Flow) fromStream() error {
	for {
		b, err := f.str.ReceiveDatagram(f.ctx)
		if err != nil {
			return err
		}
		f.receive(b)
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
			b := bytes.NewBuffer(make([]byte, 0, packetBuffer)) // grows with what arrives, not with what is announced
			if _, err := b.ReadFrom(io.LimitReader(content, 8+maxUDP)); err != nil {
				return err
			}
			receive(b.Bytes())
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
	f := NewFlow(ctx, conn, limited, &g.bytes)
	f.gateway = true
	return f.Run(IdleOf(port))
}

// IdleOf returns the idle timeout of tunnels to a UDP port.
func IdleOf(port string) time.Duration {
	if port == "53" {
		return dnsIdleTimeout
	}
	return udpIdleTimeout
}
