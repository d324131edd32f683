// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// packets opens a UDP socket at the origin.
func (m *mesh) packets(network string, port int) (c net.PacketConn) {
	m.t.Helper()
	if err := m.in("origin", func() (err error) {
		c, err = net.ListenPacket(network, fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	return c
}

// greetUDP runs a UDP server at the origin that answers each datagram with its source address and its content.
func (m *mesh) greetUDP(port int) {
	m.t.Helper()
	for _, network := range []string{"udp4", "udp6"} {
		c := m.packets(network, port)
		go func() {
			for b := make([]byte, 65536); ; {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(from.String())
				_, _ = c.WriteTo([]byte(host+" "+string(b[:n])), from)
			}
		}()
	}
}

// udp returns a phone's socket that receives only answers from the target.
func (m *mesh) udp(target string) net.Conn {
	m.t.Helper()
	var c net.Conn
	err := m.in("phone", func() (err error) {
		c, err = (&net.Dialer{}).DialContext(context.Background(), "udp", target)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	return c
}

// ask repeats a datagram until it is answered, as DNS clients do.
func (m *mesh) ask(c net.Conn, text string) (way string) {
	m.t.Helper()
	b := make([]byte, 65536)
	for range 60 {
		if _, err := c.Write([]byte(text)); err != nil {
			m.t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := c.Read(b)
		if err != nil {
			continue
		}
		from, said, _ := strings.Cut(string(b[:n]), " ")
		if said != text {
			continue // an answer to an earlier attempt
		}
		return route[from]
	}
	return "lost"
}

// askBy is like wayBy, for UDP: it asks by a new flow, which it returns, too. If the gateway's answer is late, the kernel forwards that flow for good.
func (m *mesh) askBy(node *process, target, text string) (way string, flow net.Conn) {
	m.t.Helper()
	way = node.tries(func() (string, bool) {
		begun := node.figures().Relay.UDP.Total
		flow = m.udp(target)
		way := m.ask(flow, text)
		return way, way == "forwarded" && node.figures().Relay.UDP.Total != begun && node.late(flow, 1)
	})
	return way, flow
}

// carryUDP returns a carried flow, by which a first datagram has been answered.
func (m *mesh) carryUDP(node *process, target string) net.Conn {
	m.t.Helper()
	way, flow := m.askBy(node, target, "first")
	if way != "carried" {
		m.t.Fatalf("a flow to %s is %s", target, way)
	}
	return flow
}

// late waits until the relay has ended a client's flow for the nth time, and reports whether it did so because the gateway had not answered in time.
func (p *process) late(flow net.Conn, n int) bool {
	p.t.Helper()
	p.await("the end of a flow", func(figures) bool { return len(p.ends(flow)) >= n })
	return strings.Contains(p.ends(flow)[n-1], "deadline exceeded")
}

// ends returns what the relay's log says of the ends of a client's flow.
func (p *process) ends(flow net.Conn) (ends []string) {
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, fmt.Sprintf(`msg="flow ended" client=%s `, flow.LocalAddr())) && strings.HasSuffix(line, "\n") {
			ends = append(ends, line)
		}
	}
	return ends
}

// dropped returns how many packets the kernel has dropped because a processor or a process of the mesh had no time for them.
func (m *mesh) dropped() (n uint64) {
	m.t.Helper()
	devices, err := os.ReadFile("/proc/net/softnet_stat") // a line for each processor
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(devices)) {
		drops, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		n += drops
	}
	for name := range m.ns {
		var names []string
		for line := range strings.Lines(m.run(name, "cat", "/proc/net/snmp")) {
			fields := strings.Fields(line)
			switch {
			case fields[0] != "Udp:":
			case names == nil:
				names = fields
			default:
				drops, err := strconv.ParseUint(fields[slices.Index(names, "RcvbufErrors")], 10, 64)
				if err != nil {
					m.t.Fatal(err)
				}
				n += drops
			}
		}
	}
	return n
}

// beginUDP returns a carried flow to a server that does not answer, and where it comes from. If the gateway's answer is late, the kernel forwards a
// flow for good, and beginUDP begins another one.
func (m *mesh) beginUDP(server net.PacketConn, target string) (flow net.Conn, from netip.AddrPort) {
	m.t.Helper()
	m.eventually("a flow is carried", func() bool {
		flow = m.udp(target)
		for i := range 2 { // the first datagram goes ahead of the gateway's answer
			text := fmt.Sprint(flow.LocalAddr(), " ", i)
			if _, err := flow.Write([]byte(text)); err != nil {
				return false
			}
			for said := ""; said != text; {
				_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
				b := make([]byte, 1500)
				n, addr, err := server.ReadFrom(b)
				if err != nil {
					return false
				}
				said, from = string(b[:n]), addr.(*net.UDPAddr).AddrPort()
				from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			}
			if route[from.Addr().String()] != "carried" {
				return false
			}
		}
		return true
	})
	return flow, from
}

// TestWithoutIPv6 has a node whose operator has switched IPv6 off by sysctl. The kernel then still has IPv6 sockets and rules,
// but refuses IPv6 routes.
func TestWithoutIPv6(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greetUDP(53)
		target, target6 := m.greet(origin4+":80"), m.greet("["+origin6+"]:80")
		m.startGateway()
		m.run("node", "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
		c := m.config(mode)
		c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
		node := m.startRelay(c)
		m.becomes("carried", target)
		if way, _ := m.askBy(node, origin4+":53", "a datagram"); way != "carried" {
			t.Errorf("a datagram: %s", way)
		}

		// Once it is on again, connections work, even if they are not carried.
		// While the kernel checks its new link-local addresses, it forwards nothing to neighbours that it does not know yet.
		m.run("node", "sysctl", "-qw", "net.ipv6.conf.br-lan.dad_transmits=0", "net.ipv6.conf.mesh.dad_transmits=0")
		m.run("node", "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0")
		m.ip("node", "-6 addr add fd77::1/64 dev br-lan nodad", "-6 addr add "+node6+"/64 dev mesh nodad", "-6 route add default via "+gateway6)
		if way := m.wayBy(node, target6); way != "forwarded" && way != "carried" {
			t.Errorf("%s: %s", target6, way)
		}
		if way := m.ask(m.udp("["+origin6+"]:53"), "a datagram"); way == "lost" {
			t.Errorf("a datagram by IPv6: %s", way)
		}
	})
}

func TestUDP(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.greetUDP(flowPort)
		m.greetUDP(flowPort + 1)
		port, other := fmt.Sprint(":", flowPort), fmt.Sprint(":", flowPort+1)
		gateway := m.startGateway()
		c := m.config(mode)
		c.UDPPorts = []divert.Ports{{First: flowPort, Last: flowPort}}
		node := m.startRelay(c)
		for _, host := range []string{origin4, "[" + origin6 + "]"} {
			one, two := m.carryUDP(node, host+port), m.carryUDP(node, host+port)
			for i := range 5 {
				for j, conn := range []net.Conn{one, two} {
					if way := m.ask(conn, fmt.Sprintf("%d %d", i, j)); way != "carried" {
						t.Errorf("%s, datagram %d: %s", host, i, way)
					}
				}
			}
			for _, size := range []int{1200, 1400, 8000, 65000} {
				if way := m.ask(one, strings.Repeat("x", size)); way != "carried" {
					t.Errorf("%s, a datagram of %d bytes: %s", host, size, way)
				}
				if way, _ := m.askBy(node, host+port, strings.Repeat("y", size)); way != "carried" {
					t.Errorf("%s, a flow that begins with %d bytes: %s", host, size, way)
				}
			}
			if way := m.ask(m.udp(host+other), "other port"); way != "forwarded" {
				t.Errorf("%s, another port: %s", host, way)
			}
		}
		if f := node.figures(); f.Relay.UDP.Now != 12 || len(f.Relay.Clients) != 2 || f.Relay.Carried.Up == 0 {
			t.Errorf("figures %+v", f.Relay)
		}

		// Excluded targets are not carried.
		c.Exclude = []netip.Prefix{netip.MustParsePrefix(origin4 + "/32")}
		node.apply(c)
		m.becomes("forwarded", origin4+":80")
		if way := m.ask(m.udp(origin4+port), "excluded"); way != "forwarded" {
			t.Errorf("an excluded target: %s", way)
		}
		c.Exclude, c.UDPPorts = nil, []divert.Ports{{First: flowPort, Last: flowPort + 1}}
		node.apply(c)
		m.becomes("carried", origin4+":80")

		// A flow of the added port outlives its port. The port gets no new ones.
		lasting := m.carryUDP(node, origin4+other)
		c.UDPPorts = nil
		node.apply(c)
		m.eventually("the port to be removed", func() bool { return m.ask(m.udp(origin4+other), "removed") == "forwarded" })
		if way := m.ask(lasting, "after"); way != "carried" {
			t.Errorf("a flow of a port that was removed: %s", way)
		}
		c.Interfaces = []string{"mesh"}
		node.apply(c)
		m.becomes("forwarded", origin4+":80")
		if way := m.ask(lasting, "elsewhere"); way != "carried" {
			t.Errorf("a flow of a device that was removed: %s", way)
		}

		gateway.signal(syscall.SIGKILL)
		m.becomes("forwarded", origin4+":80")
		if way := m.ask(m.udp(origin4+port), "without a gateway"); way != "forwarded" {
			t.Errorf("without a gateway: %s", way)
		}
	})
}

// TestUDPAhead has a gateway whose answers do not arrive. The first datagram of a flow does not wait for them.
func TestUDPAhead(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	c := m.packets("udp4", 53)
	m.startGateway()
	config := m.config(divert.Redirect)
	config.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	m.startRelay(config)
	m.becomes("carried", origin4+":80")
	m.run("gateway", "nft", `table inet mute { chain out { type filter hook output priority 0; udp sport 443 drop; }; }`)
	if _, err := m.udp(origin4 + ":53").Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 100)
	n, from, err := c.ReadFrom(b)
	if err != nil || string(b[:n]) != "question" || route[from.(*net.UDPAddr).IP.String()] != "carried" {
		t.Errorf("%q, from %v, %v", b[:n], from, err)
	}
}

// TestSilentDNS has a client that repeats its question from the same port when the gateway has died. What the gateway carries cannot be reached
// without it, so the session waits for it. The name server can, so the question goes on by the kernel.
func TestSilentDNS(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(53)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	m.run("node", "nft", `table inet exit { chain out { type filter hook output priority 0; ip daddr `+origin4+` meta l4proto tcp drop; }; }`)
	flow := m.carryUDP(node, origin4+":53")
	m.run("gateway", "nft", `table inet mute { chain out { type filter hook output priority 0; udp sport 443 drop; }; }`)
	m.eventually("the question goes on by the kernel", func() bool { return m.ask(flow, "repeated") == "forwarded" })
}

// TestUDPStopped stops a relay while a datagram waits for the gateway's answer. The datagram goes on by the kernel: a client of DNS would ask again
// only after seconds.
func TestUDPStopped(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(53)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	m.run("gateway", "nft", `table inet deaf { chain in { type filter hook input priority 0; udp dport 443 drop; }; }`)
	flow := m.udp(origin4 + ":53")
	if _, err := flow.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	node.await("the datagram to wait", func(f figures) bool { return f.Relay.UDP.Total == 1 })
	node.signal(syscall.SIGTERM)
	_ = flow.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 100)
	n, err := flow.Read(b)
	if from, text, _ := strings.Cut(string(b[:n]), " "); err != nil || text != "question" || route[from] != "forwarded" {
		t.Errorf("the answer is %q, %v", b[:n], err)
	}
}

// TestUDPStoppedAsked stops a relay while the answer to a carried question is outstanding. The answer arrives, as after a stop without a relay.
func TestUDPStoppedAsked(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	server := m.packets("udp4", 53)
	flow, from := m.beginUDP(server, origin4+":53")
	node.cmd.Process.Signal(syscall.SIGTERM)
	m.becomes("forwarded", origin4+":80")
	select {
	case err := <-node.ended:
		t.Fatalf("ended with %v while a question waits for its answer", err)
	case <-time.After(time.Second):
	}
	if _, err := server.WriteTo([]byte("answer"), net.UDPAddrFromAddrPort(from)); err != nil {
		t.Fatal(err)
	}
	_ = flow.SetReadDeadline(time.Now().Add(silence))
	b := make([]byte, 100)
	if n, err := flow.Read(b); string(b[:n]) != "answer" {
		t.Errorf("the answer is %q, %v", b[:n], err)
	}
	if err := node.signal(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestUDPBurst has a client and a server that send many datagrams at once, such as a picture of a video. All of them arrive, as
// without a relay, also those with which a flow begins. On a busy machine, the kernel may drop some, or the gateway's answer may be late; then
// another flow shows it.
func TestUDPBurst(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	c := m.packets("udp4", 5000)
	const bursts, burst = 10, 60
	go func() {
		for b, arrived := make([]byte, 1000), map[byte]int{}; ; {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if route[from.(*net.UDPAddr).IP.String()] != "carried" {
				continue
			}
			if arrived[b[0]]++; arrived[b[0]] == burst {
				for range burst {
					_, _ = c.WriteTo(b, from)
				}
			}
		}
	}()
	m.startGateway()
	config := m.config(divert.Redirect)
	config.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
	node := m.startRelay(config)
	m.becomes("carried", origin4+":80")
	number := byte(0) // of a burst
	talk := func(flow net.Conn) error {
		for range bursts {
			number++
			b := bytes.Repeat([]byte{number}, 1000)
			for range burst {
				if _, err := flow.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			for i := range burst {
				_ = flow.SetReadDeadline(time.Now().Add(patience / 15)) // so that no number comes twice
				if _, err := flow.Read(b); err != nil {
					return fmt.Errorf("of the burst %d, %d of %d: %w", number, i, burst, err)
				}
			}
		}
		return nil
	}
	m.eventually("all of a flow's datagrams arrive", func() bool {
		dropped, begun := m.dropped(), node.figures().Relay.UDP.Total
		flow := m.udp(origin4 + ":5000")
		err := talk(flow)
		if err == nil {
			return true
		}
		late := node.figures().Relay.UDP.Total == begun || len(node.ends(flow)) > 0 && node.late(flow, 1)
		if !late && m.dropped() == dropped {
			t.Fatal(err)
		}
		t.Log(err)
		return false
	})
}

// TestUDPLongBurst has a client that sends more datagrams at once than its path takes beside an upload, such as a camera. They wait for the path, as in the
// queues of a node without a relay, and none is lost.
func TestUDPLongBurst(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	for _, end := range [][3]string{{"phone", "lan", "100mbit"}, {"node", "mesh", "20mbit"}} {
		m.run(end[0], "tc", "qdisc", "add", "dev", end[1], "root", "tbf", "rate", end[2], "burst", "20kb", "latency", "1s")
	}
	m.listen(":80", func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
	c := m.packets("udp4", 5000)
	if err := c.(*net.UDPConn).SetReadBuffer(2 << 20); err != nil {
		t.Fatal(err)
	}
	m.startGateway()
	config := m.config(divert.Redirect)
	config.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
	node := m.startRelay(config)
	upload := m.carry(node, origin4+":80")
	go func() {
		for b := make([]byte, 64<<10); ; {
			if _, err := upload.Write(b); err != nil {
				return
			}
		}
	}()
	node.await("the upload to fill the path", func(f figures) bool { return f.Relay.Carried.Up > 4<<20 })
	flow, _ := m.beginUDP(c, origin4+":5000")
	begun := node.figures().Relay.UDP.Total
	b := make([]byte, 1000)
	const burst = 250
	arrived := 0
	for b[0] = range byte(50) { // on a busy machine, the processes lose some
		for range burst {
			if _, err := flow.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		arrived = 0
		for arrived < burst {
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			got := make([]byte, len(b))
			_, from, err := c.ReadFrom(got)
			if err != nil {
				break
			}
			if got[0] == b[0] && route[from.(*net.UDPAddr).IP.String()] == "carried" {
				arrived++
			}
		}
		if arrived == burst {
			break
		}
	}
	if arrived != burst {
		t.Errorf("of the last %d, %d have arrived", burst, arrived)
	}
	if f := node.figures(); f.Relay.UDP.Total != begun {
		t.Errorf("%+v, and %d flows before", f.Relay.UDP, begun)
	}
}

// TestUDPMark has a call that its client has marked (DSCP EF). An access point between node and client sends it first if what comes back is
// marked, too.
func TestUDPMark(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(5000)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
	m.startRelay(c)
	m.becomes("carried", origin4+":80")
	const ef, ect = 46 << 2, 2
	for host, o := range map[string]struct{ level, set, receive int }{
		origin4:             {unix.SOL_IP, unix.IP_TOS, unix.IP_RECVTOS},
		"[" + origin6 + "]": {unix.SOL_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS},
	} {
		b, oob := make([]byte, 100), make([]byte, 100)
		var oobn int
		m.eventually("a marked flow is carried", func() bool { // not always: see askBy
			conn := m.udp(host + ":5000").(*net.UDPConn)
			raw, err := conn.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var serr error
			if err := raw.Control(func(fd uintptr) {
				serr = errors.Join(unix.SetsockoptInt(int(fd), o.level, o.set, ef|ect), unix.SetsockoptInt(int(fd), o.level, o.receive, 1))
			}); err != nil || serr != nil {
				t.Fatal(err, serr)
			}
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience / 10))
			var n int
			n, oobn, _, _, err = conn.ReadMsgUDP(b, oob)
			from, _, _ := strings.Cut(string(b[:n]), " ")
			return err == nil && route[from] == "carried"
		})
		head, data, _, err := unix.ParseOneSocketControlMessage(oob[:oobn])
		if err != nil || head.Level != int32(o.level) {
			t.Fatalf("%+v, %v", head, err)
		}
		mark := uint32(data[0]) // of IPv4
		if len(data) > 1 {
			mark = binary.NativeEndian.Uint32(data)
		}
		if mark != ef {
			t.Errorf("%s: marked 0x%x", host, mark)
		}
	}
}

// TestUDPApart has many clients that ask a server at the same time. For a moment, the socket of a new flow has the server's
// address, but not yet the client's. Meanwhile it must not receive what others ask.
func TestUDPApart(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(53)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")

	// A moment that lasts.
	if err := m.in("node", func() error {
		lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			return raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			})
		}}
		unconnected, err := lc.ListenPacket(t.Context(), "udp4", origin4+":53")
		if err == nil {
			t.Cleanup(func() { unconnected.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if way, _ := m.askBy(node, origin4+":53", "while another one's socket is not connected"); way != "carried" {
		t.Error(way)
	}
}

// TestUDPLinkLocal has a gateway that is named by its address on the link, such as a neighbour in the mesh.
func TestUDPLinkLocal(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greetUDP(53)
	m.ip("gateway", "-6 addr add fe80::9/64 dev mesh nodad")
	m.startGatewayAt(443, "\tlist connect_from 'fe80::/10'")
	c := m.config(divert.Redirect)
	c.Gateways = relay.InOrder("[fe80::9%mesh]:443")
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	if way, _ := m.askBy(node, origin4+":53", "through a neighbour"); way != "carried" {
		t.Error(way)
	}
}

// TestUDPClosedPort has a target whose port is closed. Its client learns that, and asks another server, such as for DNS.
func TestUDPClosedPort(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	m.becomes("carried", origin4+":80")
	for _, host := range []string{origin4, "[" + origin6 + "]"} {
		flow := m.udp(host + ":53")
		m.eventually("the client is told that the port is closed", func() bool {
			_, err := flow.Write([]byte("question"))
			time.Sleep(50 * time.Millisecond)
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
	if f := node.figures().Relay; f.UDP.Total == 0 {
		t.Error("no flow was carried at first")
	}
}

// TestUDPClientCloses has a client that closes its port, such as a game that ends. Its server learns that, as without a relay, and stops.
func TestUDPClientCloses(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
	m.startRelay(c)
	m.becomes("carried", origin4+":80")
	for _, host := range []string{origin4, origin6} {
		address := netip.AddrPortFrom(netip.MustParseAddr(host), 5000)
		var server *net.UDPConn
		if err := m.in("origin", func() (err error) {
			server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		game, from := m.beginUDP(server, address.String())
		b := make([]byte, 100)
		connect(t, server, from)
		for _, way := range [][2]net.Conn{{server, game}, {game, server}} {
			m.eventually("it goes on", func() bool {
				_, err := way[0].Write([]byte("go on"))
				_ = way[1].SetReadDeadline(time.Now().Add(500 * time.Millisecond))
				n := 0
				if err == nil {
					n, err = way[1].Read(b)
				}
				return err == nil && string(b[:n]) == "go on"
			})
		}
		game.Close()
		m.eventually("the server is told that the client's port is closed", func() bool {
			_, err := server.Write([]byte("still there?"))
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
}

// connect makes the kernel tell a socket of errors about an address.
func connect(t *testing.T, conn *net.UDPConn, to netip.AddrPort) {
	t.Helper()
	var address unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	if to.Addr().Is4() {
		address = &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.Connect(int(fd), address) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
}

// TestUDPAvoided checks that flows to a target that the gateway refuses do not ask for it again and again.
func TestUDPAvoided(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greetUDP(53)
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
	c := m.config(divert.Redirect)
	c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
	node := m.startRelay(c)
	before := node.await("the target to be avoided", func(f figures) bool { // not by the first one, if the gateway's answer is late
		if f.Relay.Avoided == 1 {
			return true
		}
		if way := m.ask(m.udp(origin4+":53"), "first"); way != "forwarded" {
			t.Fatalf("the first: %s", way)
		}
		return false
	}).Relay
	for i := range 5 {
		if way := m.ask(m.udp(origin4+":53"), fmt.Sprint(i)); way != "forwarded" {
			t.Errorf("the flow %d: %s", i, way)
		}
	}
	if f := node.figures().Relay; f.Refused != before.Refused || f.UDP.Total != before.UDP.Total {
		t.Errorf("%d refused, %d flows; before %d and %d", f.Refused, f.UDP.Total, before.Refused, before.UDP.Total)
	}
}
