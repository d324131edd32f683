// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/processor"
	"bquic/internal/proof"
	"bquic/internal/relay"
)

// servers gives the origin n addresses of each IP version, because connections that a client opens to another
// server within seconds are a separate session. It returns them as targets, alternating between IP versions.
func (m *mesh) servers(n int, port string) (targets []string) {
	m.t.Helper()
	var add []string
	for i := range n {
		four, six := fmt.Sprintf("203.0.113.%d", 10+i), fmt.Sprintf("2001:db8:77::1:%d", i)
		add = append(add, "addr add "+four+"/24 dev eth0", "addr add "+six+"/64 dev eth0 nodad")
		targets = append(targets, four+port, "["+six+"]"+port)
	}
	m.ip("origin", add...)
	return targets
}

// TestComparison checks that connections chosen for the comparison go direct and are counted, even after a restart.
func TestComparison(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{divert.Redirect, divert.TProxy} {
		t.Run(mode, func(t *testing.T) {
			m := newMesh(t)
			m.greet(":80")
			m.startGateway()
			c := m.config(mode)
			c.ControlShare, c.StateDir = relay.MaxControlShare, t.TempDir()
			node := m.startRelay(c)
			const connections = 40
			seen := map[string]int{}
			for _, target := range m.servers(connections/2, ":80") {
				seen[m.way(target)]++
			}
			f := node.await("all connections to count", func(f figures) bool {
				o := f.Relay.Proof.Overall
				return o.Carried+o.Direct == connections
			})
			// A connection that was not chosen goes direct, too, if the gateway's answer is late.
			o := f.Relay.Proof.Overall
			if o.Direct == 0 || int(o.Direct) > seen["direct"] || int(o.Carried) < seen["carried"] || seen["carried"] == 0 {
				t.Errorf("went %v, and count as %+v", seen, o)
			}
			if len(f.Relay.Proof.Clients) != 2 || f.Relay.Proof.Clients[0].Prefix != "10.77.0.0/24" {
				t.Errorf("clients: %+v", f.Relay.Proof.Clients)
			}

			// A port without a listener sends no byte.
			m.way(origin4 + ":9")
			f = node.await("a connection without an answer", func(f figures) bool {
				u := f.Relay.Proof.Unanswered
				return u.Carried+u.Direct == 1 && u.CarriedOf+u.DirectOf == connections+1
			})

			node.signal(syscall.SIGTERM)
			file := filepath.Join(c.StateDir, "proof")
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			node = m.startRelay(c)
			if again := node.figures().Relay.Proof; again.Overall.Carried != o.Carried || again.Overall.Direct != o.Direct || again.Unanswered != f.Relay.Proof.Unanswered {
				t.Errorf("after a restart %+v, before %+v", again, f.Relay.Proof)
			}

			// Without the comparison, all connections are carried.
			c.ControlShare = 0
			node.apply(c)
			carried := 0
			for range connections {
				before := node.figures().Relay.Carried.Total
				m.way(origin4 + ":80")
				carried += int(node.figures().Relay.Carried.Total - before)
			}
			if f := node.figures().Relay.Proof; carried < connections*3/4 || f.Verdict != proof.Off || f.Overall.Carried != o.Carried {
				t.Errorf("%d of %d are carried, %+v", carried, connections, f)
			}
			node.signal(syscall.SIGTERM)

			// A damaged file loses its content, but nothing else.
			if err := os.WriteFile(file, []byte("bquic proof 3\nand rubbish"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.ControlShare = relay.MaxControlShare
			node = m.startRelay(c)
			node.logs("starts again from nothing")
			if f := node.figures().Relay.Proof; f.Overall.Carried != 0 {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestKeptBeforeTheEnd has a relay that is killed while it waits for connections to end, as when a router restarts.
func TestKeptBeforeTheEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	c := m.config(divert.Redirect)
	c.ControlShare, c.StateDir = relay.MaxControlShare, t.TempDir()
	node := m.startRelay(c)
	m.way(origin4 + ":80")
	node.await("a connection to count", func(f figures) bool { return f.Relay.Proof.Overall.Carried+f.Relay.Proof.Overall.Direct == 1 })
	conn, err := m.dial(origin4 + ":81")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	node.await("the other one to be held", func(f figures) bool { return f.Relay.Carried.Now+f.Relay.Direct.Now == 1 })
	node.cmd.Process.Signal(syscall.SIGTERM)
	m.eventually("the comparison is kept", func() bool {
		_, err := os.Stat(filepath.Join(c.StateDir, "proof"))
		return err == nil
	})
	if st := node.figures().Relay; st.Taking || st.Carried.Now+st.Direct.Now != 1 {
		t.Errorf("while it stops, its status is %+v", st)
	}
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("the comparison was kept only when the connection had ended: %v", err)
	}
	node.signal(syscall.SIGKILL)
}

// TestPage checks that all connections that a client opens to a server at once go the same way, and count as one
// page load.
func TestPage(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	const more = 200 << 10
	m.listen(":80", func(conn *net.TCPConn) {
		io.WriteString(conn, wayOf(conn))
		io.Copy(io.Discard, conn) // until the client has sent all requests
		conn.Write(make([]byte, more))
	})
	m.startGateway()
	c := m.config(divert.Redirect)
	c.ControlShare = relay.MaxControlShare
	node := m.startRelay(c)
	ways := map[string]int{}
	const least, most, flows = 12, 40, 4
	pages := 0
	for _, target := range m.servers(most/2, ":80") {
		if pages >= least && ways["drawn"] > 0 && ways["carried"] > 0 {
			break
		}
		pages++
		var open []*net.TCPConn
		page := map[string]bool{}
		for range flows {
			conn, err := m.dial(target)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, conn)
			conn.CloseWrite()
		}
		for _, conn := range open {
			got, err := io.ReadAll(conn)
			if err != nil || len(got) < more {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			page[string(got[:len(got)-more])] = true
			conn.Close()
		}
		for way := range page {
			ways[way]++
		}
		// If the gateway's answer is late, a connection of a carried page goes direct.
		if len(page) == 1 && page["direct"] {
			ways["drawn"]++
		}
		time.Sleep(2 * processor.Interval) // the path is not full
	}
	f := node.await("all pages to be over", func(f figures) bool {
		n := f.Relay.Proof.Uncompared // on a busy machine, a page takes so long that it seems to fill the path
		for _, k := range f.Relay.Proof.Kinds {
			n += k.Carried + k.Direct
		}
		return n == uint32(pages)
	})
	p := f.Relay.Proof
	if n := p.Overall.Carried + p.Overall.Direct + p.Uncompared; n != uint32(pages) || ways["drawn"] == 0 || ways["carried"] == 0 {
		t.Errorf("%d connections count, pages went %v: %+v", n, ways, p)
	}
	for _, s := range p.Sizes {
		if s.From != 1e5 {
			t.Errorf("%+v", s)
		}
	}
}

// TestTwoPorts has a protocol such as FTP: while a client has a connection to a server, those to another of its ports must come from the same address.
func TestTwoPorts(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":21", func(conn *net.TCPConn) {
		io.WriteString(conn, wayOf(conn))
		io.Copy(io.Discard, conn)
	})
	m.greet(":2121")
	m.startGateway()
	c := m.config(divert.Redirect)
	c.ControlShare = relay.MaxControlShare
	node := m.startRelay(c)
	ways := map[string]string{} // of the first connection, by server
	for _, target := range m.servers(8, ":21") {
		conn, err := m.dial(target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		b := make([]byte, 20)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		ways[strings.TrimSuffix(target, ":21")] = string(b[:n])
	}
	time.Sleep(proof.SessionGap) // what follows does not belong to the same page
	late := node.figures().Relay.Late
	for host, want := range ways {
		if way := m.way(host + ":2121"); way != want && node.figures().Relay.Late == late {
			t.Errorf("%s: first %s, then %s", host, want, way)
		}
	}
}

// TestPortAgain has a client that uses one port for two targets. To keep the redirected connections apart, the
// kernel changes the port of the second one. The relay must still recognise it as expected.
func TestPortAgain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{divert.Redirect, divert.TProxy} {
		t.Run(mode, func(t *testing.T) {
			m := newMesh(t)
			m.greet(":80")
			m.greet(":81")
			m.startGateway()
			c := m.config(mode)
			c.ControlShare = relay.MaxControlShare
			node := m.startRelay(c)
			for _, target := range []string{origin4 + ":80", m.servers(1, ":81")[0]} {
				if err := m.in("phone", func() error {
					d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(phone4 + ":40000")), Timeout: patience, Control: func(_, _ string, raw syscall.RawConn) error {
						var err error
						return errors.Join(raw.Control(func(fd uintptr) {
							err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
						}), err)
					}}
					conn, err := d.Dial("tcp", target)
					if err != nil {
						return err
					}
					defer conn.Close()
					conn.SetDeadline(time.Now().Add(patience))
					_, err = io.ReadAll(conn)
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			node.await("both to count", func(f figures) bool {
				u := f.Relay.Proof.Unanswered
				return u.CarriedOf+u.DirectOf == 2
			})
		})
	}
}

// TestComparisonAuto checks that if carried connections are slower, the kernel forwards most new ones.
func TestComparisonAuto(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	c := m.config(divert.Redirect)
	c.ControlShare, c.Auto, c.StateDir = relay.MaxControlShare, true, t.TempDir()

	slow := proof.New(proof.Config{Share: proof.MaxShare, Auto: true})
	for i := range uint32(1000) {
		tk := slow.Draw(time.Now(), netip.MustParseAddr(phone4), i<<22)
		wait := time.Second + time.Duration(i%7)*100*time.Millisecond
		if tk.Arm == proof.Carried {
			wait *= 2
		}
		slow.Record(tk, proof.Outcome{Bytes: 1000, First: wait, Wait: wait})
	}
	if err := os.WriteFile(filepath.Join(c.StateDir, "proof"), slow.Append(nil), 0o600); err != nil {
		t.Fatal(err)
	}
	node := m.startRelay(c)
	seen := map[string]int{}
	for _, target := range m.servers(30, ":80") {
		seen[m.way(target)]++
	}
	if seen["forwarded"] == 0 || seen["direct"] == 0 {
		t.Errorf("went %v", seen)
	}
	f := node.await("the measured ones to count", func(f figures) bool {
		o := f.Relay.Proof.Overall
		return int(o.Carried+o.Direct)-1000 == 60-seen["forwarded"]
	})
	if f.Relay.Proof.Verdict != proof.Spared {
		t.Errorf("%+v", f.Relay.Proof)
	}
	node.logs("new ones go direct")
	c.Auto = false
	node.apply(c)
	m.eventually("none of 40 is left to the kernel", func() bool {
		for range 40 {
			if m.way(origin4+":80") == "forwarded" {
				return false
			}
		}
		return true
	})
}

// TestFilledPath: a transfer fills the path. Connections that begin beside it are carried and not compared: a direct one would get half of
// the path, which it takes from all that is carried.
func TestFilledPath(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.slow("4mbit")
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) {
		for b := make([]byte, 64<<10); ; {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	})
	m.startGateway()
	c := m.config(divert.Redirect)
	c.ControlShare = relay.MaxControlShare
	node := m.startRelay(c)
	conn, err := m.dial(origin4 + ":81")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.Copy(io.Discard, conn)
	path := node.await("the path's rate", func(f figures) bool { return f.Relay.Processor.Path > 2e6 }).Relay.Processor.Path
	down := func() uint64 {
		f := node.figures().Relay
		return f.Carried.Down + f.Direct.Down
	}
	filled, other := 0, 0
	for _, target := range m.servers(20, ":80") {
		if filled == 10 {
			break
		}
		before, begun := down(), time.Now()
		time.Sleep(4 * processor.Interval)
		way := m.wayBy(node, target)
		rate := float64(down()-before) * 8 / time.Since(begun).Seconds()
		if rate < 0.8*path { // on a busy machine, the transfer does not fill it all the time
			other++
			continue
		}
		if filled++; way != "carried" {
			t.Errorf("%s: %s", target, way)
		}
	}
	if o := node.figures().Relay.Proof.Overall; filled == 0 || other == 0 && o.Carried+o.Direct > 0 {
		t.Errorf("beside a transfer that filled the path %d times, %d and %d connections were compared", filled, o.Carried, o.Direct)
	}
	conn.Close()
	node.await("a connection to be compared again", func(f figures) bool {
		m.way(origin4 + ":80")
		return f.Relay.Proof.Overall.Carried+f.Relay.Proof.Overall.Direct > 1
	})
}

// TestNoWayOut has an exit that lets clients out, and no node: it translates only the clients' addresses. Connections that the relay makes
// itself reach nothing there, so it soon draws none.
func TestNoWayOut(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.startGateway()
	m.run("gateway", "nft", fmt.Sprintf(`table inet exit {
		chain forward { type filter hook forward priority 0; ip saddr %s drop; ip6 saddr %s drop; }
	}`, node4, node6))
	c := m.config(divert.Redirect)
	c.ControlShare = relay.MaxControlShare
	node := m.startRelay(c)
	targets := m.servers(30, ":80")
	for _, target := range targets {
		conn, err := m.dial(target)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	node.logs("reach no server: clients' are not drawn to go direct\" ipv6=false")
	node.logs("reach no server: clients' are not drawn to go direct\" ipv6=true")
	time.Sleep(proof.SessionGap) // the next ones are drawn anew
	for _, target := range targets {
		if way := m.wayBy(node, target); way != "carried" {
			t.Fatalf("a connection to %s: %s", target, way)
		}
	}
}

// TestServersDown has a client that looks for servers which are not there, as file sharing does. They say nothing about the node's own way out.
func TestServersDown(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.run("gateway", "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0")
	m.run("gateway", "nft", `table inet gone {
		chain forward { type filter hook forward priority 0; ip daddr 203.0.113.64/26 reject with icmp host-unreachable; }
		chain out { type filter hook output priority 0; ip daddr 203.0.113.64/26 reject with icmp host-unreachable; }
	}`)
	m.startGateway()
	c := m.config(divert.Redirect)
	c.ControlShare = relay.MaxControlShare
	node := m.startRelay(c)
	const servers = 40
	for i := range servers {
		if conn, err := m.dial(fmt.Sprintf("203.0.113.%d:80", 64+i)); err == nil { // otherwise it has failed already
			defer conn.Close()
		}
	}
	node.await("all connections to have failed", func(f figures) bool {
		return f.Relay.Direct.Total >= servers && f.Relay.Clients[0].Connections == 0
	})
	if strings.Contains(node.log.String(), "reach no server") {
		t.Error("none is drawn any more, because some servers are down")
	}
}
