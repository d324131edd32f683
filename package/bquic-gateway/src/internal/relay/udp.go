// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/processor"
	"bquic/internal/tunnel"
	"bquic/internal/upstream"
)

const (
	// A flow takes about 15 KB, and a file descriptor: there are no more than Config.Limit allows connections.
	maxFlows = 1024
	// The limit for one client, so that it cannot take all flows.
	maxClientFlows = 128
	// maxWaiting is how many datagrams of all flows wait for their tunnels. A flow may have a third as many as there is room for, as
	// later in the session's queue.
	maxWaiting = 1024
	// ecn are the bits of TOS that are not DSCP (RFC 3168, section 5).
	ecn = 3
)

// flows carries UDP. Each flow, a pair of client and target addresses with ports,
// has its own tunnel and its own socket, which answers from the target's address.
// The kernel forwards flows for which there is no room.
type flows struct {
	relay *Relay
	total atomic.Uint64
	lost  atomic.Uint64 // datagrams dropped for lack of room

	avoided avoided

	mu      sync.Mutex
	by      map[pair]*flow
	clients map[netip.Prefix]int
	waiting int // datagrams of all flows
}

// A flow holds the datagrams that arrived before its tunnel was open.
type flow struct {
	pair
	tos     byte // DSCP of the client's first datagram
	session *session
	stop    context.CancelFunc
	tunnel  *tunnel.Flow // nil until it is open; guarded by flows.mu, like waiting
	waiting []*divert.Packet
}

// decide decides whether to take a datagram that the kernel is about to forward.
func (f *flows) decide(ctx context.Context, p *divert.Packet, wg *sync.WaitGroup) divert.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, client := pair{p.Client, p.Target}, subscriber(p.Client.Addr())
	if fl := f.by[key]; fl != nil {
		switch {
		case fl.tunnel != nil: // it has left before its socket could receive it
			fl.tunnel.Send(p.Payload)
			return divert.Take
		case len(fl.waiting) >= (maxWaiting-f.waiting)/3:
			f.lost.Add(1)
			return divert.Take
		}
		fl.waiting = append(fl.waiting, p)
		f.waiting++
		return divert.Hold
	}
	now, set, port := time.Now(), f.relay.now.Load(), p.Target.Port()
	if f.relay.load.takes() == processor.Nothing || len(f.by) >= min(maxFlows, set.Limit) || f.clients[client] >= maxClientFlows ||
		!slices.ContainsFunc(set.UDPPorts, func(r divert.Ports) bool { return r.First <= port && port <= r.Last }) || // it was queued before a reload
		f.avoided.has(p.Target, now) || f.relay.avoided.hasNoWay(p.Target, now) || // UDP has no answer that would tell
		!f.relay.diverter.Alike(p) || // its client's TCP goes that way, too
		f.relay.diverter.Protected(p) {
		return divert.Pass
	}
	s := f.relay.gateways.pick(nil)
	if s == nil || s.full() {
		return divert.Pass
	}
	if f.by == nil {
		f.by = make(map[pair]*flow)
		f.clients = make(map[netip.Prefix]int)
	}
	ctx, stop := context.WithCancel(ctx)
	fl := &flow{pair: key, tos: p.TOS &^ ecn, session: s, stop: stop, waiting: []*divert.Packet{p}}
	f.by[key] = fl
	if len(f.by) == 1 {
		f.relay.load.wake()
	}
	f.waiting++
	f.clients[client]++
	f.total.Add(1)
	s.enter()
	wg.Go(func() {
		defer stop()
		defer s.release()
		err := f.carry(ctx, s, fl)
		f.end(fl)
		f.relay.logger.Debug("flow ended", "client", fl.client, "target", fl.target, "error", err)
	})
	return divert.Hold
}

// subscriber returns the prefix that counts as one client: an IPv4 address, or the
// IPv6 /64 of a link.
func subscriber(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}

// end removes a flow. If its tunnel could not be opened, the kernel forwards the
// waiting datagrams.
func (f *flows) end(fl *flow) {
	f.mu.Lock()
	delete(f.by, fl.pair)
	client := subscriber(fl.client.Addr())
	if f.clients[client]--; f.clients[client] == 0 {
		delete(f.clients, client)
	}
	waiting := fl.waiting
	fl.waiting = nil
	f.waiting -= len(waiting)
	f.mu.Unlock()
	for _, p := range waiting {
		f.relay.diverter.Decide(p, divert.Pass)
	}
}

// leave ends the flows by gateways that do not reach the Internet. A client that goes on sending, such as a telephone, would keep such a flow
// for as long. Its next datagram begins another one, by another gateway or by the kernel. It also ends those of DNS by gateways that do not
// answer: a client may repeat its question from the same port, and nothing is lost if the answer comes by another way.
func (f *flows) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fl := range f.by {
		if fl.session.cut() || fl.target.Port() == 53 && fl.session.state() == upstream.Silent {
			fl.stop()
		}
	}
}

// cut reports whether the gateway has lost its uplink.
func (s *session) cut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health.Cut()
}

func (f *flows) now() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.by)
}

// asks reports whether a question to DNS waits for its answer, without which its client would wait for seconds. Other flows may go on for days.
func (f *flows) asks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fl := range f.by {
		if fl.target.Port() == 53 && (fl.tunnel == nil || !fl.tunnel.Answered()) {
			return true
		}
	}
	return false
}

// carry carries a flow until it ends.
func (f *flows) carry(ctx context.Context, s *session, fl *flow) error {
	r := f.relay
	from := r.clients.enter(fl.client.Addr(), &r.carried.bytes, &r.direct.bytes)
	defer r.clients.leave(from)
	str, err := s.requestUDP(ctx, fl.target.String(), from)
	if err != nil {
		return err
	}
	ahead := f.sendAhead(fl, str, &from.carried.ToStream)
	if err := s.answer(str); err != nil {
		var refusal *tunnel.Refusal
		if errors.As(err, &refusal) && refusal.Type != tunnel.UplinkDown {
			r.refused.Add(1)
			time.AfterFunc(answerTimeout, func() { // as in Relay.carry
				if s.sound() {
					f.avoided.refused(fl.target, refusal, time.Now())
				}
			})
		}
		return err
	}
	f.avoided.reached(fl.target)
	conn, err := fl.dial(ctx)
	if err != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		return err
	}
	open := tunnel.NewFlow(ctx, conn, str, &from.carried)
	f.mu.Lock()
	waiting := fl.waiting
	fl.waiting, fl.tunnel = nil, open
	f.waiting -= len(waiting)
	for _, p := range waiting[ahead:] {
		open.Send(p.Payload)
	}
	f.mu.Unlock()
	for _, p := range waiting {
		r.diverter.Decide(p, divert.Take)
	}
	err = open.Run(tunnel.IdleOf(strconv.Itoa(int(fl.target.Port()))))
	var ended *http3.Error
	if errors.As(err, &ended) && ended.ErrorCode == http3.ErrCodeConnectError { // the port is closed: the kernel lets its client learn that
		f.avoided.add(fl.target, time.Now())
	}
	return err
}

// sendAhead sends the datagrams that wait for a tunnel behind the request for it, in the same stream: a question to DNS then takes no
// longer than without a relay. It returns how many it has sent. If the gateway refuses the tunnel, it does not see them.
func (f *flows) sendAhead(fl *flow, str io.Writer, count *tunnel.Counter) (sent int) {
	f.mu.Lock()
	waiting := fl.waiting
	f.mu.Unlock()
	for ; sent < len(waiting); sent++ {
		if _, err := str.Write(tunnel.Capsule(waiting[sent].Payload)); err != nil {
			break
		}
		count.Add(uint64(len(waiting[sent].Payload)))
	}
	return sent
}

// dial opens the socket that stands in for the target. As the tunnel does not tell how the target marks its datagrams, they get the client's own
// mark: an access point sends a call before a download. The rule for sockets with AnswerMark delivers the client's
// further datagrams to it. It gets the mark last: until it is connected, other clients' datagrams to the target
// would be delivered to it, too.
func (fl *flow) dial(ctx context.Context) (*net.UDPConn, error) {
	d := net.Dialer{
		LocalAddr: net.UDPAddrFromAddrPort(fl.target),
		Control: control(option{unix.SOL_IP, unix.IP_TRANSPARENT, 1}, option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1},
			option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}, option{unix.SOL_IP, unix.IP_TOS, int(fl.tos)}, option{unix.SOL_IPV6, unix.IPV6_TCLASS, int(fl.tos)}),
	}
	dialled, err := d.DialContext(ctx, "udp", fl.client.String())
	if err != nil {
		return nil, err
	}
	conn := dialled.(*net.UDPConn)
	raw, err := conn.SyscallConn()
	if err == nil {
		err = control(option{unix.SOL_SOCKET, unix.SO_MARK, divert.AnswerMark})("udp", "", raw)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// requestUDP is like request, for a UDP target.
func (s *session) requestUDP(ctx context.Context, target string, from *client) (*http3.RequestStream, error) {
	r, err := tunnel.UDPRequest(s.gateway, target, http.Header{})
	if err != nil {
		return nil, err
	}
	return s.send(ctx, r, from)
}
