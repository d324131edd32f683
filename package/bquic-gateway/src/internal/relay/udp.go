// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go/http3"
	"golang.org/x/sys/unix"

	"bquic/internal/tunnel"
)

const (
	// A flow takes about 15 KB.
	maxFlows = 1024
	// A client may have no more, whatever it floods.
	maxClientFlows = 128
	// maxWaiting is how many datagrams of a flow wait for its tunnel.
	maxWaiting = 16
	// deniedTimeout is how long a flow that the gateway refused is dropped before
	// it is asked again.
	deniedTimeout = 5 * time.Second
)

// flows carry UDP: each pair of a client's and a target's address has a tunnel
// and a socket of its own, which answers from the target's address.
type flows struct {
	relay *Relay
	total atomic.Uint64
	lost  atomic.Uint64 // datagrams for which there was no room

	mu      sync.Mutex
	by      map[flow]chan []byte // those that are not read from the flow's own socket yet
	clients map[netip.Addr]int
}

type flow struct{ client, target netip.AddrPort }

// listenUDP opens the sockets that the first datagrams of flows come to.
func listenUDP(ctx context.Context, port int) ([]*net.UDPConn, error) {
	networks := []string{"udp4"}
	if hasIPv6() {
		networks = append(networks, "udp6")
	}
	var conns []*net.UDPConn
	for _, network := range networks {
		lc := net.ListenConfig{Control: control(
			option{unix.SOL_IP, unix.IP_TRANSPARENT}, option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT},
			option{unix.SOL_IP, unix.IP_RECVORIGDSTADDR}, option{unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR})}
		c, err := lc.ListenPacket(ctx, network, fmt.Sprintf(":%d", port))
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, err
		}
		conns = append(conns, c.(*net.UDPConn))
	}
	return conns, nil
}

type option struct{ level, name int }

// control sets those of the options that are of the socket's IP version.
func control(options ...option) func(network, _ string, raw syscall.RawConn) error {
	return func(network, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) {
			for _, o := range options {
				if o.level == unix.SOL_SOCKET || (o.level == unix.SOL_IPV6) == (network[len(network)-1] == '6') {
					err = errors.Join(err, unix.SetsockoptInt(int(fd), o.level, o.name, 1))
				}
			}
		})
		return errors.Join(cerr, err)
	}
}

// read takes what comes to one of the sockets until it is closed.
func (f *flows) read(ctx context.Context, c *net.UDPConn, port int, wg *sync.WaitGroup) {
	b := make([]byte, 64<<10)
	oob := make([]byte, 128)
	for {
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		target, err := originalUDP(oob[:oobn])
		if err != nil || int(target.Port()) == port && isOwn(target.Addr()) {
			continue
		}
		f.take(ctx, flow{unmap(from), target}, append([]byte(nil), b[:n]...), wg)
	}
}

// originalUDP returns the target of a datagram from its control messages.
func originalUDP(oob []byte) (netip.AddrPort, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, m := range msgs {
		switch h := m.Header; {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_ORIGDSTADDR && len(m.Data) >= unix.SizeofSockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Data[4:8])), binary.BigEndian.Uint16(m.Data[2:])), nil
		case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_ORIGDSTADDR && len(m.Data) >= unix.SizeofSockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(m.Data[8:24])), binary.BigEndian.Uint16(m.Data[2:])), nil
		}
	}
	return netip.AddrPort{}, errors.New("no original destination")
}

// take hands a datagram to its flow, which it may begin.
func (f *flows) take(ctx context.Context, fl flow, b []byte, wg *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = make(map[flow]chan []byte)
		f.clients = make(map[netip.Addr]int)
	}
	waiting, ok := f.by[fl]
	if !ok {
		if len(f.by) >= maxFlows || f.clients[fl.client.Addr()] >= maxClientFlows {
			f.lost.Add(1)
			return
		}
		waiting = make(chan []byte, maxWaiting)
		f.by[fl] = waiting
		f.clients[fl.client.Addr()]++
		f.total.Add(1)
		wg.Go(func() {
			defer f.end(fl)
			if err := f.carry(ctx, fl, waiting); err != nil {
				f.relay.logger.Debug("flow ended", "client", fl.client, "target", fl.target, "error", err)
			}
		})
	}
	select {
	case waiting <- b:
	default:
		f.lost.Add(1)
	}
}

func (f *flows) end(fl flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.by, fl)
	if f.clients[fl.client.Addr()]--; f.clients[fl.client.Addr()] == 0 {
		delete(f.clients, fl.client.Addr())
	}
}

func (f *flows) now() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.by)
}

// carry carries a flow until it ends.
func (f *flows) carry(ctx context.Context, fl flow, waiting <-chan []byte) error {
	r := f.relay
	s := r.gateways.pick()
	if s == nil {
		return errors.New("no gateway") // the next datagram is forwarded by the kernel
	}
	s.enter()
	defer s.release()
	str, err := s.requestUDP(ctx, fl.target.String())
	if err != nil {
		return err
	}
	if err := s.answer(str); err != nil {
		var refusal *tunnel.Refusal
		if errors.As(err, &refusal) && refusal.Type != tunnel.UplinkDown {
			r.refused.Add(1)
			select { // its further datagrams are dropped meanwhile
			case <-time.After(deniedTimeout):
			case <-ctx.Done():
			}
		}
		return err
	}
	conn, err := fl.dial(ctx)
	if err != nil {
		tunnel.Cancel(str, http3.ErrCodeRequestCanceled)
		return err
	}
	from := r.clients.enter(fl.client.Addr(), &r.carried.bytes, &r.direct.bytes)
	defer r.clients.leave(from)
	return tunnel.SpliceUDP(ctx, conn, waiting, str, &from.carried, tunnel.IdleOf(strconv.Itoa(int(fl.target.Port()))))
}

// dial opens the socket that is the target to the client. As it is connected,
// nftables' tproxy hands it the client's further datagrams.
func (fl flow) dial(ctx context.Context) (*net.UDPConn, error) {
	d := net.Dialer{
		LocalAddr: net.UDPAddrFromAddrPort(fl.target),
		Control: control(option{unix.SOL_IP, unix.IP_TRANSPARENT}, option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT},
			option{unix.SOL_SOCKET, unix.SO_REUSEADDR}),
	}
	conn, err := d.DialContext(ctx, "udp", fl.client.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// requestUDP is request for a UDP target.
func (s *session) requestUDP(ctx context.Context, target string) (*http3.RequestStream, error) {
	r, err := tunnel.UDPRequest(s.gateway, target, http.Header{})
	if err != nil {
		return nil, err
	}
	return s.send(ctx, r)
}
