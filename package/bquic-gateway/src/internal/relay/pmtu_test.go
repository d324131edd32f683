// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
)

// An exchange is a transfer of exchangeSize bytes in one direction, and one
// byte back when all have arrived. So no exchange can begin or end with data
// that was in flight or in a buffer before.
const (
	exchangeSize = 256 << 10
	downloadPort = 91
	uploadPort   = 92
)

// exchanging origins first send the first letter of the way by which a connection arrived.
type exchanging struct{ m *mesh }

func (m *mesh) exchanging() *exchanging {
	x := &exchanging{m}
	handle := func(exchange func(net.Conn, []byte) error) func(*net.TCPConn) {
		return func(conn *net.TCPConn) {
			_, err := io.WriteString(conn, wayOf(conn)[:1])
			for b := make([]byte, exchangeSize); err == nil; {
				err = exchange(conn, b)
			}
		}
	}
	m.listen(fmt.Sprintf("%s:%d", origin4, downloadPort), handle(give))
	m.listen(fmt.Sprintf("%s:%d", origin4, uploadPort), handle(take))
	return x
}

// give is the sender's part of an exchange, take is the receiver's.
func give(conn net.Conn, b []byte) error {
	if _, err := conn.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, b[:1])
	return err
}

func take(conn net.Conn, b []byte) error {
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	_, err := conn.Write(b[:1])
	return err
}

// An exchanger makes one exchange after the other over a connection until it is closed.
type exchanger struct {
	conn net.Conn
	done chan struct{} // after each exchange; closed when one failed
	err  error         // why it failed
}

// start begins exchanges over a new connection that the relay carries. On a machine that
// stands still for longer than the relay waits for the gateway's answer, a connection goes
// direct, and the next one must be carried.
func (x *exchanging) start(port int) *exchanger {
	t := x.m.t
	t.Helper()
	var conn net.Conn
	for deadline, way := time.Now().Add(recovery), []byte{0}; way[0] != "carried"[0]; {
		if time.Now().After(deadline) {
			t.Fatalf("no connection to port %d is carried", port)
		}
		var err error
		if conn, err = x.m.dial(fmt.Sprintf("%s:%d", origin4, port)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, way); err != nil {
			conn.Close()
			t.Fatalf("a connection to port %d: %v", port, err)
		}
		if way[0] != "carried"[0] {
			t.Logf("the way of a connection to port %d begins with %q", port, way)
			conn.Close()
			time.Sleep(50 * time.Millisecond)
		}
	}
	t.Cleanup(func() { conn.Close() })
	exchange := take
	if port == uploadPort {
		exchange = give
	}
	e := &exchanger{conn: conn, done: make(chan struct{}, 1)}
	go func() {
		defer close(e.done)
		for b := make([]byte, exchangeSize); ; {
			conn.SetDeadline(time.Now().Add(patience))
			if e.err = exchange(conn, b); e.err != nil {
				return
			}
			select {
			case e.done <- struct{}{}:
			default:
			}
		}
	}()
	return e
}

// flows waits until n exchanges have begun and ended from now on.
func (e *exchanger) flows(t *testing.T, what string, n int) {
	t.Helper()
	start := time.Now()
	for range n + 2 { // one may have just ended, one may have begun
		select {
		case _, more := <-e.done:
			if !more {
				t.Fatalf("%s: %v", what, e.err)
			}
		case <-time.After(recovery):
			t.Fatalf("%s: nothing for %s", what, recovery)
		}
	}
	t.Logf("%s: %d exchanges in %s", what, n, time.Since(start).Round(time.Millisecond))
}

// blackHole silently drops all packets larger than mtu between node and
// gateway, like a tunnel on the path whose ICMP is filtered.
func (m *mesh) blackHole(mtu int) {
	m.t.Helper()
	for _, name := range []string{"node", "gateway"} {
		m.run(name, "nft", fmt.Sprintf(`
table inet hop {
	chain prerouting {
		type filter hook prerouting priority -400
		iifname "mesh" meta length > %d drop
	}
}`, mtu))
	}
}

// TestPathMTU lowers the path's MTU during a session. Carried connections
// continue, and new connections are carried, also by a new session.
func TestPathMTU(t *testing.T) {
	for _, mtu := range []int{1420, 1320, 1230} {
		for _, under := range []string{"download", "upload", "idle"} {
			t.Run(fmt.Sprintf("%d/%s", mtu, under), func(t *testing.T) {
				m := newMesh(t)
				for _, name := range []string{"node", "gateway"} { // no offloads: packets as on a wire
					m.run(name, "ethtool", "-K", "mesh", "gso", "off", "tx-udp-segmentation", "off", "gro", "off")
				}
				x := m.exchanging()
				m.startGateway()
				config := m.config("redirect")
				config.Connections = 1
				node := m.startRelay(config)
				session := node.figures().Relay.Connections[0].Since

				var old *exchanger
				switch under {
				case "download":
					old = x.start(downloadPort)
				case "upload":
					old = x.start(uploadPort)
				}
				if old != nil {
					old.flows(t, "before", 8)
				}
				m.blackHole(mtu)
				if old != nil {
					old.flows(t, under, 4)
				}
				x.start(downloadPort).flows(t, "a new download", 2)
				x.start(uploadPort).flows(t, "a new upload", 2)
				if now := node.figures().Relay.Connections[0]; !now.Since.Equal(session) || !now.Healthy {
					t.Errorf("the session of %s is replaced by %+v", session, now)
				}
				if old != nil {
					old.flows(t, "still", 1)
				}

				node.signal(syscall.SIGKILL) // SIGTERM would wait for the connections
				m.startRelay(config)
				x.start(downloadPort).flows(t, "a download in a new session", 2)
				x.start(uploadPort).flows(t, "an upload in a new session", 2)
			})
		}
	}
}

// TestClientMTU has a client behind a router of its own, whose link to it carries only smaller packets: the router says so to the sender, also of
// datagrams of IPv6.
func TestClientMTU(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.ns["far"] = strings.TrimSuffix(m.ns["node"], "node") + "far"
		m.ip("", "netns add "+m.ns["far"])
		t.Cleanup(func() { exec.Command("ip", "netns", "del", m.ns["far"]).Run() })
		m.link("far", "eth0", "10.79.0.2/24 fd79::2/64", "phone", "far", "10.79.0.1/24 fd79::1/64")
		m.ip("phone", "link set far mtu 1300")
		m.ip("far", "route add default via 10.79.0.1", "-6 route add default via fd79::1")
		m.ip("node", "route add 10.79.0.0/24 via "+phone4, "-6 route add fd79::/64 via "+phone6)
		m.ip("gateway", "route add 10.79.0.0/24 via "+node4, "-6 route add fd79::/64 via "+node6)
		content := make([]byte, 1<<20)
		m.listen(":81", func(conn *net.TCPConn) { conn.Write(content) })
		datagram := make([]byte, 1350)
		server := m.packets("udp6", 5000)
		go func() {
			for {
				_, from, err := server.ReadFrom(make([]byte, 100))
				if err != nil {
					return
				}
				_, _ = server.WriteTo(datagram, from)
			}
		}()
		m.startGateway()
		c := m.config(mode)
		c.UDPPorts = []divert.Ports{{First: 5000, Last: 5000}}
		node := m.startRelay(c)
		node.await("the gateway", func(f figures) bool { return f.Relay.Taking })
		var flow net.Conn // first: what the kernel learns of the path holds for all
		if err := m.in("far", func() (err error) {
			flow, err = net.Dial("udp", "["+origin6+"]:5000")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer flow.Close()
		m.eventually("a datagram arrives", func() bool {
			_, err := flow.Write([]byte("question"))
			_ = flow.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			n := 0
			if err == nil {
				n, err = flow.Read(make([]byte, 2*len(datagram)))
			}
			return err == nil && n == len(datagram)
		})
		for _, host := range []string{origin4, "[" + origin6 + "]"} {
			var conn net.Conn
			if err := m.in("far", func() (err error) {
				conn, err = net.DialTimeout("tcp", host+":81", patience)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(conn, make([]byte, len(content))); err != nil {
				t.Errorf("from %s: %v", host, err)
			}
		}
		if f := node.figures(); f.Relay.Carried.Total == 0 || f.Relay.UDP.Total == 0 {
			t.Errorf("connections %d, flows %d", f.Relay.Carried.Total, f.Relay.UDP.Total)
		}
	})
}
