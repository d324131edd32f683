// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"bquic/internal/divert"
	"bquic/internal/proof"
	"bquic/internal/tunnel"
)

func (r *Relay) accept(ctx context.Context, l *net.TCPListener, wg *sync.WaitGroup) {
	var failed complaint
	keepAlive := sparing()
	for {
		client, err := l.AcceptTCP()
		if ctx.Err() != nil {
			if err == nil {
				tunnel.Reset(client)
			}
			return
		}
		failed.about(r.logger, "cannot accept a connection", err)
		if err != nil { // out of file descriptors or memory
			time.Sleep(100 * time.Millisecond)
			continue
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { tunnel.Reset(client) })
			defer stop()
			_ = client.SetKeepAliveConfig(keepAlive)
			tunnel.ResetAtEnd(client)
			tunnel.KeepUrgent(client)
			target, err := r.now.Load().targetOf(client)
			if err != nil {
				r.logger.Debug("connection refused", "client", client.RemoteAddr(), "error", err)
				tunnel.Reset(client)
				return
			}
			r.serve(ctx, client, target)
		})
	}
}

// serve carries the client's connection, or connects directly.
func (r *Relay) serve(ctx context.Context, client *net.TCPConn, target netip.AddrPort) {
	addr := unmap(client.RemoteAddr().(*net.TCPAddr).AddrPort())
	forward := r.expected.accepted(pair{addr, target}, time.Now()) // before held, so that a connection never counts twice
	if forward.bridged {
		defer r.diverter.Release(forward.client, forward.target)
	}
	if r.held.Add(1) == 1 {
		r.load.wake()
	}
	defer r.held.Add(-1)
	from := r.clients.enter(addr.Addr(), &r.carried.bytes, &r.direct.bytes)
	defer r.clients.leave(from)
	c := r.comparison.begin(forward.session, &r.hand)
	if c.timing != nil {
		defer r.compared(ctx, &c)
	}
	to, of := way{target, forward}, &c
	var first []byte
	var done bool
	if forward.session.Arm() == proof.Direct {
		if first, done = r.connect(ctx, client, nil, to, from, of, reachTime); done {
			return
		}
		of = new(comparing)
	}
	if s := r.gateways.pick(from); s != nil {
		defer r.clients.release(from, s)
		if first, done = r.carry(ctx, s, client, first, to, from, of); done {
			return
		}
	}
	r.connect(ctx, client, first, to, from, of, 0)
}

// carry carries the connection through a session. before was already read from the client. done says that the
// connection is finished: carried to its end, aborted by the client, or stopped by ctx. Otherwise
// carry returns the data that was read from the client, for a direct connection.
func (r *Relay) carry(ctx context.Context, s *session, client *net.TCPConn, before []byte, to way, from *client, c *comparing) (first []byte, done bool) {
	begun := time.Now()
	s.enter()
	defer s.release()
	str, err := s.request(ctx, to.target.String(), from)
	if err != nil {
		return before, false
	}
	answered := r.wait(s, str, to)
	early := readEarly(client, before, str, c.timing)
	err = s.answer(str)
	answered()
	first, sent, gone := early.stop()
	if gone != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		tunnel.Reset(client)
		return nil, true
	}
	if err == nil {
		r.opened(s, to)
		defer r.comparison.enter(to.forward.client.Addr(), to.target.Addr(), proof.Carried)()
		r.carried.now.Add(1)
		defer r.carried.now.Add(-1)
		r.carried.total.Add(1)
		from.carried.ToStream.Add(uint64(sent))
		rest := slices.Clone(first[sent:]) // a copy, mostly empty, so that first is not kept for the tunnel's lifetime
		first, early = nil, nil
		err = tunnel.SpliceTimed(client, rest, str, &from.carried, c.timing, func() bool { return r.crowded() || s.full() }, s.lost)
		r.logger.Debug("connection ended", "target", to.target, "error", err)
		return nil, true
	}

	var refusal *tunnel.Refusal
	switch {
	case ctx.Err() != nil:
		tunnel.Reset(client)
		return nil, true
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.late.Add(1)
	case errors.As(err, &refusal) && refusal.Type != tunnel.UplinkDown:
		// Connect directly, as the node would have forwarded it: the gateway's policy
		// must not block targets that clients can reach without a gateway.
		r.refused.Add(1)
		r.logger.Debug("target refused", "target", to.target, "reason", refusal.Detail)
	}
	// By then, the session's own question will have shown if it is the gateway or its uplink.
	time.AfterFunc(answerTimeout, func() {
		switch {
		case !s.sound():
		case refusal != nil:
			r.avoided.refused(to.target, refusal, time.Now())
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.avoided.suspect(to.target, begun, time.Now())
			if s.late(to.target.Addr()) {
				s.judge(ctx)
			}
		}
	})
	return first, false
}

// askAgain asks a gateway for a target that is avoided.
func (r *Relay) askAgain(ctx context.Context, target netip.AddrPort) {
	s := r.gateways.pick(nil)
	if s == nil {
		return
	}
	s.enter()
	defer s.release()
	str, err := s.request(ctx, target.String(), nil)
	if err == nil && answer(str) == nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		r.avoided.regained(target)
	}
}

// wait gives the gateway more time to answer where this node has no route to the target. Whether it answers at all is asked as soon as for other
// targets. The caller must call answered.
func (r *Relay) wait(s *session, str *http3.RequestStream, to way) (answered func()) {
	if !r.stranded(to.forward.bridged) || divert.Leaves(to.target.Addr(), 0) != 0 {
		return func() {}
	}
	_ = str.SetDeadline(time.Now().Add(reachTime))
	late := time.AfterFunc(answerTimeout, s.doubt)
	return func() { late.Stop() }
}

// opened records that a gateway reaches the target of a connection.
func (r *Relay) opened(s *session, to way) {
	s.opened(to)
	r.avoided.reached(to.target)
	if to.forward.session.Arm() == proof.Direct { // this node has not reached it
		r.comparison.reached(to.target.Addr(), false)
	}
}

// connect connects to the target directly, by the route on which the kernel would have forwarded the connection. done says
// that the connection is finished. It is not if the target could not be reached within a time, unless that is 0.
// connect then returns the data that was read from the client.
func (r *Relay) connect(ctx context.Context, client *net.TCPConn, first []byte, to way, from *client, c *comparing, within time.Duration) (rest []byte, done bool) {
	r.direct.now.Add(1)
	defer r.direct.now.Add(-1)
	r.direct.total.Add(1)
	// At the end, no timeout but the kernel's, as for a forwarded connection: on a busy processor it
	// may take ten seconds until the relay sees the target's answer.
	d := net.Dialer{KeepAliveConfig: tunnel.Patient, Control: to.forward.control, Timeout: within}
	dialling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	// Read as with a gateway, because the time that is measured begins with the first byte.
	begun := readEarly(client, first, io.Discard, c.timing)
	go begun.watch(dialling, giveUp)
	conn, err := d.DialContext(dialling, "tcp", to.target.String())
	reached := err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
	if within > 0 && reached {
		r.comparison.reached(to.target.Addr(), true)
	}
	early, _, gone := begun.stop()
	first = slices.Clone(early) // a copy, mostly short, because it is kept for the connection's lifetime
	if gone != nil {
		if err == nil {
			conn.Close()
		}
		tunnel.Reset(client)
		return nil, true
	}
	if err != nil {
		c.failed = true
		r.logger.Debug("direct connection failed", "target", to.target, "error", err)
		if within > 0 && !reached && ctx.Err() == nil {
			return first, false
		}
		if to.forward.bridged && dialling.Err() == nil {
			r.avoided.add(to.target, time.Now())
		}
		tunnel.Reset(client)
		return nil, true
	}
	defer r.comparison.enter(to.forward.client.Addr(), to.target.Addr(), proof.Direct)()
	origin := &tcpStream{TCPConn: conn.(*net.TCPConn)}
	defer origin.TCPConn.Close()
	tunnel.ResetAtEnd(origin.TCPConn)
	tunnel.LimitUnsent(origin.TCPConn)
	tunnel.KeepUrgent(origin.TCPConn)
	err = tunnel.SpliceTimed(client, first, origin, &from.direct, c.timing, r.crowded, nil)
	if err == nil {
		_ = origin.SetLinger(-1)
	} else {
		tunnel.Drain(origin)
	}
	r.logger.Debug("direct connection ended", "target", to.target, "error", err)
	return nil, true
}

// tcpStream adapts a TCP connection to tunnel.Stream, so that Splice can join two TCP
// connections.
type tcpStream struct {
	*net.TCPConn
	ended atomic.Bool // our FIN was sent
}

// Read returns an error after a reset, even if the kernel has already told a Write of it.
func (t *tcpStream) Read(b []byte) (int, error) {
	n, err := t.TCPConn.Read(b)
	if err == io.EOF && !t.ended.Load() && tunnel.ClosedByReset(t.TCPConn) {
		err = syscall.ECONNRESET
	}
	return n, err
}

func (t *tcpStream) Close() error {
	t.ended.Store(true)
	return t.CloseWrite()
}

// Canceled directions end at once; what was written before still arrives. The reset follows when the connection is closed.

func (t *tcpStream) CancelRead(quic.StreamErrorCode)  { _ = t.SetReadDeadline(time.Unix(1, 0)) }
func (t *tcpStream) CancelWrite(quic.StreamErrorCode) { _ = t.SetWriteDeadline(time.Unix(1, 0)) }

// maxEarly is how much is read from a client before the gateway answers, in bytes. The
// rest waits in the kernel.
const maxEarly = 4 << 10

// early reads from a client while the tunnel is being opened. It sends a TLS ClientHello directly
// after the CONNECT, which saves a round trip, and notices if the client resets the connection.
//
// It sends nothing but a ClientHello ahead of the answer. If the gateway's answer is lost, the
// relay sends the same data again on a direct connection. A server may receive a ClientHello
// twice without harm. Other data, such as an HTTP POST, must not arrive twice, so it waits.
type early struct {
	client *net.TCPConn
	done   chan struct{}
	data   []byte
	sent   int
	ended  bool // the client has ended its direction
	err    error
}

// readEarly tells timing, unless it is nil, when the client sends its first byte. before was already read.
func readEarly(client *net.TCPConn, before []byte, str io.Writer, timing *tunnel.Timing) *early {
	e := &early{client: client, done: make(chan struct{}), data: append(make([]byte, 0, maxEarly), before...)}
	go func() {
		defer close(e.done)
		err := e.read(str, timing)
		if err == nil {
			err = tunnel.AwaitEnd(client)
		}
		if e.ended = err == io.EOF; !e.ended && !errors.Is(err, os.ErrDeadlineExceeded) {
			e.err = err
		}
	}()
	return e
}

// read returns nil if there is nothing to be read any more before the answer.
func (e *early) read(str io.Writer, timing *tunnel.Timing) error {
	for e.sends(str) == nil && len(e.data) < maxEarly {
		n, err := e.client.Read(e.data[len(e.data):maxEarly])
		e.data = e.data[:len(e.data)+n]
		if timing != nil && n > 0 {
			timing.AskedAt(time.Now())
		}
		if err != nil {
			_ = e.sends(str)
			return err
		}
	}
	return nil
}

// watch gives up dialling when the client has gone. Its kernel does not say whether a client that has ended its direction waits for an answer; if
// the target has not answered for reachTime by then, it probably does not. Without a relay, it would have given up before it had a connection.
func (e *early) watch(dialling context.Context, giveUp func()) {
	patience := time.NewTimer(reachTime)
	defer patience.Stop()
	<-e.done
	if e.ended {
		select {
		case <-patience.C:
		case <-dialling.Done():
		}
	}
	if e.ended || e.err != nil {
		giveUp()
	}
}

// sends sends what there is of a ClientHello. After an error, the gateway's answer will give the reason.
func (e *early) sends(str io.Writer) (err error) {
	if ahead := clientHello(e.data); ahead > e.sent {
		var n int
		n, err = str.Write(e.data[e.sent:ahead])
		e.sent += n
	}
	return err
}

// stop stops reading. It returns the data read, how much of it was sent, and an error if
// the client has reset the connection.
func (e *early) stop() (data []byte, sent int, gone error) {
	_ = e.client.SetReadDeadline(time.Unix(1, 0))
	<-e.done
	_ = e.client.SetReadDeadline(time.Time{})
	return e.data, e.sent, e.err
}

// clientHello returns how many bytes of b belong to a first TLS record of type handshake
// (RFC 8446, section 5.1). TLS 1.3 early data is in later records.
func clientHello(b []byte) int {
	if len(b) < 5 || b[0] != 22 || b[1] != 3 {
		return 0
	}
	return min(len(b), 5+int(b[3])<<8+int(b[4]))
}
