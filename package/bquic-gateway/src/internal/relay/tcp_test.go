// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/divert"
	"bquic/internal/relay"
	"bquic/internal/tunnel"
)

// TestMultipath has a client that offers Multipath TCP (RFC 8684), as phones do.
func TestMultipath(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.startGateway()
		m.startRelay(m.config(mode))
		for _, target := range []string{m.greet(origin4 + ":80"), m.greet("[" + origin6 + "]:80")} {
			m.becomes("carried", target)
			var conn net.Conn
			if err := m.in("phone", func() (err error) {
				d := net.Dialer{Timeout: patience}
				d.SetMultipathTCP(true)
				conn, err = d.Dial("tcp", target)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			if way, err := io.ReadAll(conn); err != nil || route[phone4] == string(way) || len(way) == 0 {
				t.Errorf("%s: %q, %v", target, way, err)
			}
		}
	})
}

// TestFurtherPath has a phone with a connection of Multipath TCP by its mobile network, which the mesh's WiFi joins.
func TestFurtherPath(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.listen(origin4+":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		m.startRelay(m.config(mode))
		m.becomes("carried", origin4+":80")
		m.link("phone", "mobile", "10.81.0.2/24", "origin", "mobile", "10.81.0.1/24")
		m.ip("phone", "route add default via 10.81.0.1 table 81", "rule add from 10.81.0.2 table 81",
			"mptcp limits set subflow 2", "mptcp endpoint add "+phone4+" dev lan subflow")
		m.ip("origin", "mptcp limits set subflow 2")
		var conn net.Conn
		if err := m.in("phone", func() (err error) {
			d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.81.0.2")}}
			d.SetMultipathTCP(true)
			conn, err = d.Dial("tcp", origin4+":81")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		if err := errors.Join(sendAll(conn.(*net.TCPConn), []byte("hello")), receiveAll(conn.(*net.TCPConn), []byte("hello"))); err != nil {
			t.Fatal(err)
		}
		m.eventually("the second path joins", func() bool {
			return strings.Contains(m.run("origin", "ss", "-Htn", "state", "established"), phone4+":")
		})
	})
}

// TestOthersRules has nodes whose other rules keep the relay's from delivering a connection. At the latest after a few
// connections, the relay takes none, and says why.
func TestOthersRules(t *testing.T) {
	const (
		before = "chain before { type filter hook prerouting priority %s; %s; }; "
		after  = "chain after { type filter hook postrouting priority mangle; ct mark set meta mark; }; "
	)
	for name, tc := range map[string]struct {
		rules string
		modes []string
	}{
		"nothing is tracked":   {fmt.Sprintf(before, "raw", "notrack"), []string{divert.Redirect, divert.TProxy}},
		"all marks are set":    {fmt.Sprintf(before, "-140", "meta mark set 0x1"), []string{divert.TProxy}},
		"all marks are stored": {fmt.Sprintf(before, "mangle", "meta mark set ct mark") + after, []string{divert.TProxy}},
	} {
		for _, mode := range tc.modes {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				m := newMesh(t)
				targets := []string{m.greet(origin4 + ":80"), m.greet("[" + origin6 + "]:80")}
				m.startGateway()
				node := m.startRelay(m.config(mode))
				noticed := strings.Contains(tc.rules, "notrack") // by the relay's own rules, so that not even one is lost
				if noticed {
					m.becomes("carried", targets[0])
				}
				m.run("node", "nft", "table inet others { "+tc.rules+"}")
				for _, target := range targets {
					if !noticed {
						m.becomes("forwarded", target)
					}
				}
				for range 3 {
					for _, target := range targets {
						if way := m.way(target); way != "forwarded" {
							t.Errorf("%s is %s", target, way)
						}
					}
				}
				if !noticed {
					m.eventually("the relay to say why", func() bool {
						u := node.figures().Relay.Unseen
						return u != nil && u.Why == relay.UnseenMissing
					})
				}
			})
		}
	}
}

// TestSleeping checks that the relay lets a phone sleep: keep-alive asks the client of an idle connection less than twice an hour,
// but before conntrack on OpenWrt forgets the connection (7440 s).
func TestSleeping(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		node := m.startRelay(m.config(mode))
		conn := m.carry(node, origin4+":81")
		if err := errors.Join(sendAll(conn, []byte("hello")), receiveAll(conn, []byte("hello"))); err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
		var minutes int
		m.eventually("the connection to rest", func() bool { // the last acknowledgement's timer comes first
			_, timer, found := strings.Cut(m.run("node", "ss", "-Htno", "state", "established", "dport = :"+port), "timer:(keepalive,")
			_, err := fmt.Sscanf(timer, "%dmin", &minutes)
			return found && err == nil
		})
		if minutes < 30 || minutes > 120 {
			t.Errorf("the next probe is in %d min", minutes)
		}
	})
}

// TestLastWords has an origin that says why it ends a connection, and then resets it, as a server does that does not want all
// of an upload. Its clients learn the reason, as without a relay.
func TestLastWords(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.slow("20mbit")
	words := bytes.Repeat([]byte("413 too large\r\n"), 64)
	m.listen(":80", func(conn *net.TCPConn) {
		io.ReadFull(conn, make([]byte, 1000))
		conn.Write(words)
		tunnel.Reset(conn)
	})
	for way, more := range map[string]string{
		"carried": "", "direct": "\tlist connect_to '192.0.2.0/24'", "rated": "config peer north\n\tlist token 'token-of-north'\n\toption rate '100'",
	} {
		gateway := m.startGatewayAt(443, more)
		c := m.config(divert.Redirect)
		if way == "rated" {
			c.Token = "token-of-north"
		}
		node := m.startRelay(c)
		for _, much := range []bool{false, true} {
			for range 10 {
				var conn *net.TCPConn
				if way != "direct" {
					conn = m.carry(node, origin4+":80")
				} else if conn, _ = m.dial(origin4 + ":80"); conn == nil {
					t.Fatal("no connection")
				}
				sent := make(chan error, 1)
				go func() {
					_, err := conn.Write(make([]byte, 1000))
					for err == nil && much {
						_, err = conn.Write(make([]byte, 64<<10))
					}
					sent <- err
				}()
				got, err := io.ReadAll(conn)
				if !bytes.Equal(got, words) {
					t.Errorf("%s, an upload that goes on: %t: %d of %d bytes, and %v", way, much, len(got), len(words), err)
				}
				if err := errors.Join(err, <-sent); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s, an upload that goes on: %t: %v, not a reset", way, much, err)
				}
			}
		}
		node.signal(syscall.SIGKILL)
		gateway.signal(syscall.SIGKILL)
	}
}

// TestLastBytes has an origin that resets a connection after a large answer, when all of it has been acknowledged, and a client with a
// slower link than the origin's. The end of the answer waits in the relay by then, and reaches the client, as without a relay.
func TestLastBytes(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.run("node", "tc", "qdisc", "add", "dev", "br-lan", "root", "tbf", "rate", "20mbit", "burst", "20kb", "latency", "60ms")
	answer := bytes.Repeat([]byte("a large answer\r\n"), 16<<10)
	m.listen(":80", func(conn *net.TCPConn) {
		io.ReadFull(conn, make([]byte, 1))
		conn.Write(answer)
		m.acknowledged(conn)
		tunnel.Reset(conn)
	})
	load := func(way string, conn *net.TCPConn) {
		t.Helper()
		if err := sendAll(conn, []byte("?")); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(conn); !bytes.Equal(got, answer) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %d of %d bytes, and %v", way, len(got), len(answer), err)
		}
	}
	dial := func() *net.TCPConn {
		t.Helper()
		conn, err := m.dial(origin4 + ":80")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	load("without a relay", dial())
	gateway := m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	load("carried", m.carry(node, origin4+":80"))
	gateway.signal(syscall.SIGKILL)
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'")
	node.signal(syscall.SIGKILL)
	m.startRelay(m.config(divert.Redirect))
	load("direct", dial())
}

// TestLastUpload has a client that resets a connection after an upload, when all of it has been acknowledged, and a mesh that is slower
// than the client's link. The end of the upload waits in the relay by then, and reaches the server, as without a relay.
func TestLastUpload(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.slow("20mbit")
	upload := bytes.Repeat([]byte("a large upload\r\n"), 16<<10)
	all := make(chan []byte)
	m.listen(":80", func(conn *net.TCPConn) {
		go func() { // what the client does not read
			for _, err := conn.Write(upload); err == nil; _, err = conn.Write(upload) {
			}
		}()
		b, _ := io.ReadAll(conn) // one of both gets the reset
		if len(b) > 0 {          // else mesh.carry has given it up
			all <- b
		}
	})
	send := func(way string, conn *net.TCPConn) {
		t.Helper()
		if err := sendAll(conn, upload); err != nil {
			t.Error(err)
		}
		m.acknowledged(conn)
		tunnel.Reset(conn)
		if got := <-all; !bytes.Equal(got, upload) {
			t.Errorf("%s: %d of %d bytes", way, len(got), len(upload))
		}
	}
	dial := func() *net.TCPConn {
		t.Helper()
		conn, err := m.dial(origin4 + ":80")
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	send("without a relay", dial())
	gateway := m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	send("carried", m.carry(node, origin4+":80"))
	gateway.signal(syscall.SIGKILL)
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'")
	node.signal(syscall.SIGKILL)
	m.startRelay(m.config(divert.Redirect))
	send("direct", dial())
}

// acknowledged waits until a connection's peer has acknowledged all that was written.
func (m *mesh) acknowledged(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		m.t.Error(err)
		return
	}
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		if err := raw.Control(func(fd uintptr) { left, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
			return // the test has ended
		}
	}
}

// TestUrgent sends urgent data (RFC 6093) both ways, as Telnet and FTP do. None of it is missing from what is carried.
func TestUrgent(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	urge := func(conn *net.TCPConn) error {
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		cerr := raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte("ur"), unix.MSG_OOB, nil) })
		return errors.Join(cerr, err, sendAll(conn, []byte("gent")))
	}
	read := make(chan error, 1)
	m.listen(":80", func(conn *net.TCPConn) {
		if receiveAll(conn, []byte("first")) == nil { // else mesh.carry has given it up
			read <- errors.Join(urge(conn), receiveAll(conn, []byte("urgent")))
		}
	})
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	conn := m.carry(node, origin4+":80")
	if err := errors.Join(sendAll(conn, []byte("first")), receiveAll(conn, []byte("urgent")), urge(conn), <-read); err != nil {
		t.Error(err)
	}
}

// TestClosedPort has a target that refuses connections. Only the first client gets a connection that is then reset.
func TestClosedPort(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.startGateway()
		node := m.startRelay(m.config(mode))
		m.becomes("carried", origin4+":80")
		m.eventually("a client is told that the port is closed", func() bool {
			conn, err := m.dial(origin4 + ":81")
			if err == nil {
				conn.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		if way := m.wayBy(node, origin4+":80"); way != "carried" {
			t.Errorf("a connection to another port is %s", way)
		}
	})
}

// TestSilentTarget has a target that drops the gateway's packets and no others. After two connections, no further one waits for it.
func TestSilentTarget(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greet(":81")
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	m.becomes("carried", origin4+":80")
	m.run("gateway", "nft", `table inet silent { chain out { type filter hook output priority 0; tcp dport 81 drop; }; }`)
	m.becomes("forwarded", origin4+":81")
	if way := m.wayBy(node, origin4+":80"); way != "carried" {
		t.Errorf("a connection to another port is %s", way)
	}
}

// TestGivenUp has a server that does not answer, and clients that give up, as those of file sharing do. They do not take up the relay's places.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.run("origin", "nft", `table inet dead { chain in { type filter hook input priority 0; tcp dport 81-84 drop; }; }`)
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	m.becomes("carried", origin4+":80")
	leave := map[string]func(*net.TCPConn){"ends": func(conn *net.TCPConn) { conn.Close() }, "resets": tunnel.Reset}
	for i, test := range []struct {
		how  string
		sent int
	}{{"ends", 5}, {"resets", 5}, {"ends", 8 << 10}, {"resets", 8 << 10}} {
		before := node.figures().Relay.Direct.Total
		conn, err := m.dial(fmt.Sprintf("%s:%d", origin4, 81+i)) // another server, because the relay avoids one that is dead
		if err != nil {
			t.Fatal(err)
		}
		if err := sendAll(conn, make([]byte, test.sent)); err != nil {
			t.Error(err)
		}
		node.await("the gateway to be late", func(f figures) bool { return f.Relay.Direct.Total > before && f.Relay.Direct.Now == 1 })
		leave[test.how](conn)
		node.await(fmt.Sprintf("the relay to give up, as a client that %s after %d bytes", test.how, test.sent), func(f figures) bool { return f.Relay.Direct.Now == 0 })
	}
}

// TestSlowHandshake has a client that gets no SYN-ACK for some seconds, as over a bad radio. The relay still knows its connection.
func TestSlowHandshake(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		target, other := m.greet(origin4+":80"), m.greet(m.servers(1, ":81")[0])
		m.startGateway()
		c := m.config(mode)
		c.ControlShare = relay.MaxControlShare
		node := m.startRelay(c)
		m.run("phone", "nft", `table inet bad { chain in { type filter hook input priority 0; tcp sport 80 drop; }; }`)
		// The client's SYN, which it repeats, is for the relay only.
		m.run("gateway", "nft", `table inet seen { chain forward { type filter hook forward priority 0; ip saddr `+phone4+` tcp dport 80 counter; }; }`)
		go func() {
			time.Sleep(6 * time.Second) // the fourth SYN-ACK gets through
			m.way(other)
			m.run("phone", "nft", "delete table inet bad")
		}()
		way := m.way(target)
		if way != "carried" && way != "direct" {
			t.Errorf("the connection was %s", way)
		}
		node.await("both to count", func(f figures) bool {
			u := f.Relay.Proof.Unanswered
			return u.CarriedOf+u.DirectOf == 2
		})
		if seen := m.run("gateway", "nft", "list table inet seen"); !strings.Contains(seen, "packets 0 ") {
			t.Errorf("the target was asked, too: %s", seen)
		}
	})
}

// TestResetFull has clients that reset uploads which their servers do not read, while no room is left for the last bytes. Other
// connections go on.
func TestResetFull(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":80", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.listen(":81", func(*net.TCPConn) { <-t.Context().Done() })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	other := m.carry(node, origin4+":80")
	for range 8 {
		conn := m.carry(node, origin4+":81")
		conn.SetNoDelay(true)
		for full := false; !full; {
			conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			_, err := conn.Write(make([]byte, 600)) // at the end, each is a frame
			full = err != nil
		}
		tunnel.Reset(conn)
	}
	node.await("the resets to arrive", func(f figures) bool { return f.Relay.Carried.Now <= 1 })
	if err := errors.Join(sendAll(other, []byte("still there")), receiveAll(other, []byte("still there"))); err != nil {
		t.Error(err)
	}
}
