// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bquic/internal/cert"
	"bquic/internal/divert"
	"bquic/internal/relay"
	"bquic/internal/tunnel"
)

func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	for _, mode := range []string{divert.Redirect, divert.TProxy} {
		t.Run(mode, func(t *testing.T) { f(t, mode) })
	}
}

func TestTaking(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		m := newMesh(t)
		m.ip("origin", "addr add 203.0.113.3/24 dev eth0", "addr add 203.0.113.4/24 dev eth0",
			"addr add 192.168.5.5/32 dev eth0", "-6 addr add fd99::5/128 dev eth0 nodad")
		m.ip("gateway", "route add 192.168.5.5 via "+origin4, "-6 route add fd99::5 via "+origin6)
		m.greet(":80")
		m.startGateway()
		c := m.config(mode)
		c.Exclude = []netip.Prefix{netip.MustParsePrefix("203.0.113.3/32"), netip.MustParsePrefix("10.0.0.0/7")}
		node := m.startRelay(c)

		for _, tc := range []struct{ target, want string }{
			{origin4 + ":80", "carried"},
			{"[" + origin6 + "]:80", "carried"},
			{"203.0.113.4:80", "carried"},
			{"203.0.113.3:80", "forwarded"},
			{"192.168.5.5:80", "forwarded"},
			{"[fd99::5]:80", "forwarded"},
		} {
			if got := m.wayBy(node, tc.target); got != tc.want {
				t.Errorf("%s was %s, not %s", tc.target, got, tc.want)
			}
		}
		// Neither the relay's port on any address of the node nor the gateway's
		// addresses lead to a tunnel.
		for _, target := range []string{"10.77.0.1", node4, "[fd77::1]"} {
			if way := m.way(fmt.Sprintf("%s:%d", target, relay.DefaultPort)); !strings.Contains(way, "reset") {
				t.Errorf("the relay's port at %s: %q, not a reset", target, way)
			}
		}
		if _, err := m.dial(gateway4 + ":80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the gateway's own address: %v, not refused", err)
		}
		if f := node.figures(); f.Relay.Carried.Total != 3 || f.Relay.Direct.Total != f.Relay.Late {
			t.Errorf("counted %d carried and %d direct, not 3 and %d", f.Relay.Carried.Total, f.Relay.Direct.Total, f.Relay.Late)
		}
		// The relay tries targets that the gateway refuses directly, and they reset the
		// connection as without a relay: a closed port, and the gateway's own address on
		// the far side.
		for i, target := range []string{origin4 + ":81", exit4 + ":22"} {
			for deadline := time.Now().Add(patience); node.figures().Relay.Refused == uint64(i); {
				if way := m.way(target); !strings.Contains(way, "reset") {
					t.Errorf("%s: %q, not a reset", target, way)
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: the gateway refuses nothing", target)
				}
			}
		}
		node.logs("gateway itself") // why the gateway refused its own address
	})
}

// How an exchange ends.
const (
	upFirst     = iota // the phone ends its direction, then the origin answers
	downFirst          // the origin ends its direction first
	bothAtOnce         //
	phoneResets        // after all of its data has arrived
	originResets
	kinds
)

// An exchange is one connection of TestThousand. The header of every second exchange
// looks like a TLS record, so that it is sent before the answer.
type exchange struct {
	id       uint32
	kind     int
	up, down int
	done     chan error // result of the origin's end
}

const headerLen = 9

func (e *exchange) header() []byte {
	h := []byte{'x', 3, 1, 0, 4}
	if e.id%2 == 0 {
		h[0] = 22
	}
	return binary.BigEndian.AppendUint32(h, e.id)
}

// pattern returns the data of one direction of the exchange.
func (e *exchange) pattern(direction byte, n int) []byte {
	var seed [32]byte
	binary.BigEndian.PutUint32(seed[:], e.id)
	seed[4] = direction
	b := make([]byte, n)
	rand.NewChaCha8(seed).Read(b)
	return b
}

func sendAll(conn *net.TCPConn, b []byte) error {
	_, err := conn.Write(b)
	return err
}

func receiveAll(conn *net.TCPConn, want []byte) error {
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, len(want), err)
	}
	if string(got) != string(want) {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}

func receiveEnd(conn *net.TCPConn) error {
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("got %d bytes and error %v, not the end", n, err)
	}
	return nil
}

func receiveReset(conn *net.TCPConn) error {
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("got %d bytes and error %v, not a reset", n, err)
	}
	return nil
}

// play exchanges data at the phone's or the origin's end.
func (e *exchange) play(conn *net.TCPConn, phone bool) error {
	defer conn.Close()
	out, in := e.pattern('d', e.down), e.pattern('u', e.up)
	first := e.kind == downFirst
	resets := e.kind == originResets
	if phone {
		out, in = in, out
		first = e.kind == upFirst
		resets = e.kind == phoneResets
	}
	send := func() error { return errors.Join(sendAll(conn, out), conn.CloseWrite()) }
	receive := func() error { return errors.Join(receiveAll(conn, in), receiveEnd(conn)) }
	switch e.kind {
	case upFirst, downFirst:
		if first {
			return errors.Join(send(), receive())
		}
		return errors.Join(receive(), send())
	case bothAtOnce:
		sent := make(chan error, 1)
		go func() { sent <- send() }()
		return errors.Join(receive(), <-sent)
	}
	// The end that resets sends its data, waits for the confirmation, and resets.
	if resets {
		err := errors.Join(sendAll(conn, out), receiveAll(conn, []byte("k")))
		tunnel.Reset(conn)
		return err
	}
	return errors.Join(receiveAll(conn, in), sendAll(conn, []byte("k")), receiveReset(conn))
}

// TestThousand opens 1,000 connections at a time and checks every byte, FIN and reset.
func TestThousand(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		const count = 1000
		sizes := []int{0, 1, 100, 1460, 2000, 5000, 10_000, 16 << 10, 65_536, 300_001}
		m := newMesh(t)
		exchanges := make([]*exchange, count)
		for i := range exchanges {
			exchanges[i] = &exchange{
				id: uint32(i), kind: i % kinds,
				up: sizes[i/kinds%len(sizes)], down: sizes[i/kinds/len(sizes)%len(sizes)],
				done: make(chan error, 1),
			}
		}
		m.listen(":80", func(conn *net.TCPConn) {
			// On a busy machine the relay may stop waiting for the gateway and connect
			// directly. The phone then tries again.
			h := make([]byte, headerLen)
			if _, err := io.ReadFull(conn, h); err != nil {
				return
			}
			sendAll(conn, []byte(wayOf(conn)[:1]))
			if receiveAll(conn, []byte("go")) != nil {
				return
			}
			e := exchanges[binary.BigEndian.Uint32(h[5:])]
			e.done <- e.play(conn, false)
		})
		gateway := m.startGateway()
		c := m.config(mode)
		c.Connections = 2
		node := m.startRelay(c)
		m.greet(":81")
		node.await("all sessions", func(f figures) bool { return len(f.Relay.Connections) == c.Connections })
		for range 2 * c.Connections {
			m.way(origin4 + ":81") // the first connection of each session sets up all state
		}
		idle := func(p *process) figures {
			return p.await("connections to end", func(f figures) bool {
				return f.Relay != nil && f.Relay.Carried.Now+f.Relay.Direct.Now == 0 || f.Gateway != nil && f.Gateway.Open == 0
			})
		}
		relayBefore, gatewayBefore := idle(node), idle(gateway)

		var retries atomic.Int32
		// open tries until a connection is carried, and returns it.
		open := func(target string, e *exchange) *net.TCPConn {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				conn, err := m.dial(target)
				if err != nil {
					t.Error(err)
					return nil
				}
				way := make([]byte, 1)
				err = sendAll(conn, e.header())
				if err == nil {
					_, err = io.ReadFull(conn, way)
				}
				if err == nil && way[0] == 'c' && sendAll(conn, []byte("go")) == nil {
					return conn
				}
				retries.Add(1)
				conn.Close()
			}
			return nil
		}
		// Open all connections, few at a time, because each dial holds a thread.
		conns := make([]*net.TCPConn, count)
		var wg sync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				for i := worker; i < count; i += 16 {
					target := origin4 + ":80"
					if i%3 == 0 {
						target = "[" + origin6 + "]:80"
					}
					if conns[i] = open(target, exchanges[i]); conns[i] == nil {
						t.Errorf("connection %d: not carried", i)
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		if now := node.figures().Relay.Carried.Now; now != count {
			t.Errorf("%d connections are carried at the same time, not %d", now, count)
		}
		start := time.Now()
		total := 0
		for i, e := range exchanges {
			total += e.up + e.down
			wg.Go(func() {
				if err := e.play(conns[i], true); err != nil {
					t.Errorf("phone, connection %d, kind %d: %v", i, e.kind, err)
				}
				select {
				case err := <-e.done:
					if err != nil {
						t.Errorf("origin, connection %d, kind %d: %v", i, e.kind, err)
					}
				case <-time.After(patience):
					t.Errorf("origin, connection %d, kind %d: not done", i, e.kind)
				}
			})
		}
		wg.Wait()
		t.Logf("%d MB in %v, %d connections tried again", total>>20, time.Since(start).Round(time.Millisecond), retries.Load())

		for _, p := range []struct {
			*process
			name   string
			before figures
		}{{node, "relay", relayBefore}, {gateway, "gateway", gatewayBefore}} {
			p.await("the goroutines and files of the "+p.name+" to be as before", func(f figures) bool {
				return f.Goroutines <= p.before.Goroutines && f.Files <= p.before.Files
			})
		}
	})
}

// TestGatewayKilled kills the gateway during transfers.
func TestGatewayKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		// An origin that sends forever.
		m.listen(":81", func(conn *net.TCPConn) {
			for b := make([]byte, 1000); ; time.Sleep(10 * time.Millisecond) {
				if sendAll(conn, b) != nil {
					return
				}
			}
		})
		gateway := m.startGateway()
		node := m.startRelay(m.config(mode))

		const count = 20
		var ended sync.WaitGroup
		for range count {
			conn := m.carry(node, origin4+":81")
			ended.Go(func() {
				defer conn.Close()
				if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("a carried connection ended with %v, not with a reset", err)
				}
			})
		}
		node.await("transfers", func(f figures) bool { return f.Relay.Carried.Now == count && f.Relay.Carried.Down > 100_000 })
		gateway.signal(syscall.SIGKILL)

		// From the first moment, new connections succeed: within 2 s, unless the machine is busy.
		var slowest time.Duration
		killed := time.Now()
		for time.Since(killed) < 5*time.Second {
			start := time.Now()
			way := m.way(origin4 + ":80")
			took := time.Since(start)
			slowest = max(slowest, took)
			if way != "direct" && way != "forwarded" {
				t.Errorf("%v after the kill: %q", start.Sub(killed), way)
			}
			if took > recovery/2 {
				t.Errorf("%v after the kill: the connection took %v", start.Sub(killed), took)
			}
			time.Sleep(20 * time.Millisecond)
		}
		ended.Wait() // nothing can hang: all connections have a deadline
		t.Logf("slowest new connection: %v; all carried ones were reset after %v", slowest, time.Since(killed))

		m.startGateway()
		restarted := time.Now()
		for m.way(origin4+":80") != "carried" {
			if time.Since(restarted) > recovery {
				t.Fatalf("%v after the gateway's return, connections are not carried", recovery)
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("carried again %v after the gateway's return", time.Since(restarted))
		node.logs("no gateway answers")
		node.await("the log to say that the gateway is reached again", func(figures) bool {
			return strings.Count(node.log.String(), "gateway reached") >= 2
		})
		neverTwice(t, node.log.String())
	})
}

// neverTwice fails the test if the log reports a gateway as away twice for the same
// reason, although it was not reached in between.
func neverTwice(t *testing.T, log string) {
	t.Helper()
	last := ""
	for line := range strings.Lines(log) {
		_, text, _ := strings.Cut(line, " level=")
		switch {
		case strings.Contains(text, "gateway reached"):
			last = ""
		case strings.Contains(text, "no gateway answers") && text == last:
			t.Errorf("the log says it twice: %s", text)
		case strings.Contains(text, "no gateway answers"):
			last = text
		}
	}
}

// TestGatewayRestarted restarts the gateway at once. It has lost the connections that it
// carried before, which must end.
func TestGatewayRestarted(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
	gateway := m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	conn := m.carry(node, origin4+":81")
	gateway.signal(syscall.SIGKILL)
	m.startGateway()
	start := time.Now()
	if err := receiveReset(conn); err != nil {
		t.Error(err)
	}
	t.Logf("reset after %v", time.Since(start).Round(time.Millisecond))
}

// TestOutage breaks the path to the gateway for less than the relay's timeout of 10 s.
// Carried connections survive, and new ones go another way meanwhile, however many sessions there are.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, connections := range map[string]int{"one session": 1, "auto": 0} {
		t.Run(name, func(t *testing.T) { testOutage(t, connections) })
	}
}

func testOutage(t *testing.T, connections int) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) {
		io.Copy(conn, conn)
	})
	m.startGateway()
	c := m.config(divert.Redirect)
	c.Connections = connections
	node := m.startRelay(c)
	conn := m.carry(node, origin4+":81")
	if connections == 0 {
		node.await("further sessions", func(f figures) bool { return len(f.Relay.Connections) > 1 })
	}
	echo := func(text string) {
		t.Helper()
		if err := errors.Join(sendAll(conn, []byte(text)), receiveAll(conn, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	echo("before")
	// In both directions: the gateway receives nothing, and the relay cannot even send.
	m.run("gateway", "nft", "table inet outage { chain c { type filter hook input priority 0; udp dport 443 drop; }; }")
	m.run("node", "nft", "table inet outage { chain c { type filter hook output priority 0; udp dport 443 drop; }; }")
	node.await("the relay to notice", func(f figures) bool { return f.Relay.State == "away" && !f.Relay.Taking })
	if way := m.way(origin4 + ":80"); way != "forwarded" {
		t.Errorf("during the outage a connection was %s", way)
	}
	m.run("gateway", "nft", "delete table inet outage")
	m.run("node", "nft", "delete table inet outage")
	echo("after")
	node.await("the relay to recover", func(f figures) bool { return f.Relay.Taking })
	m.becomes("carried", origin4+":80")
	echo("later")
}

// TestEnd checks what a relay leaves behind, and that a new relay can start nevertheless.
func TestEnd(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		m.run("node", "nft", "table inet other { chain c { } ; }")
		rules := func() string { return m.run("node", "ip", "rule") + m.run("node", "ip", "-6", "rule") }
		rulesBefore := rules()

		node := m.startRelay(m.config(mode))
		if !slices.Contains(m.tables(), "table inet bquic_relay") {
			t.Fatalf("there is no table: %v", m.tables())
		}
		node.signal(syscall.SIGKILL)
		m.eventually("a killed relay leaves nothing", func() bool {
			return slices.Equal(m.tables(), []string{"table inet other"}) && rules() == rulesBefore
		})
		if way := m.way(origin4 + ":80"); way != "forwarded" {
			t.Errorf("after a killed relay: %s", way)
		}
		node = m.startRelay(m.config(mode))
		m.becomes("carried", origin4+":80")
		conn := m.carry(node, origin4+":81")
		kept := m.carry(node, origin4+":81")
		node.cmd.Process.Signal(syscall.SIGTERM)
		m.becomes("forwarded", origin4+":80")
		if err := m.in("node", divert.Clean); err != nil { // like the init script
			t.Errorf("what a killed relay would have left: %v", err)
		}
		if err := errors.Join(sendAll(conn, []byte("later")), receiveAll(conn, []byte("later"))); err != nil {
			t.Errorf("a connection that was carried before the end: %v", err)
		}
		conn.Close()
		select {
		case err := <-node.ended:
			t.Errorf("ended with %v while a connection is carried", err)
		case <-time.After(time.Second):
		}
		if err := node.signal(syscall.SIGTERM); err != nil {
			t.Errorf("ended with %v", err)
		}
		if err := receiveReset(kept); err != nil {
			t.Errorf("a connection that does not end: %v", err)
		}
		if got := m.tables(); !slices.Equal(got, []string{"table inet other"}) {
			t.Errorf("left behind: %v", got)
		}
		if got := rules(); got != rulesBefore {
			t.Errorf("rules before:\n%s\nand after:\n%s", rulesBefore, got)
		}
		if way := m.way(origin4 + ":80"); way != "forwarded" {
			t.Errorf("without a relay: %s", way)
		}
	})
}

// TestDenied has a gateway that refuses the relay, or is the wrong one.
func TestDenied(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*relay.Config)
		log    string
	}{
		{"wrong token", func(c *relay.Config) { c.Token = "x" }, "wrong or missing token"},
		{"wrong pin", func(c *relay.Config) { c.Pins = []cert.Pin{{}} }, "wrong pin"},
		{"no gateway", func(c *relay.Config) { c.Gateways = relay.InOrder(gateway4 + ":444") }, "nothing heard from the gateway"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			m.greet(":80")
			m.startGateway()
			c := m.config(divert.Redirect)
			tc.change(&c)
			node := m.start("node", role{Relay: &c})
			// On a busy machine, the gateway may at first say nothing in time.
			f := node.await("the error", func(f figures) bool { return strings.Contains(f.Relay.LastError, tc.log) })
			if strings.Contains(f.Relay.LastError, "\n") || strings.Contains(f.Relay.LastError, "CRYPTO_ERROR") {
				t.Errorf("the error is %q", f.Relay.LastError)
			}
			if way := m.way(origin4 + ":80"); way != "forwarded" {
				t.Errorf("a connection was %s", way)
			}
			time.Sleep(2 * time.Second) // for some more attempts
			node.logs(tc.log)
			neverTwice(t, node.log.String())
		})
	}
}

// TestLimit opens more connections than the relay may hold.
func TestLimit(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":80", func(conn *net.TCPConn) { io.WriteString(conn, wayOf(conn)[:1]) })
	m.startGateway()
	c := m.config(divert.Redirect)
	c.Limit = 10
	node := m.startRelay(c)
	ways := map[string]int{}
	for range 30 {
		conn, err := m.dial(origin4 + ":80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		way := make([]byte, 1)
		if _, err := io.ReadFull(conn, way); err != nil {
			t.Fatal(err)
		}
		ways[string(way)]++
		if ways["c"]+ways["d"] == c.Limit { // held by the relay; some go direct if the machine is busy
			node.await("the limit to work", func(f figures) bool { return !f.Relay.Taking })
		}
	}
	if ways["c"] == 0 || ways["c"]+ways["d"] != 10 || ways["f"] != 20 {
		t.Errorf("ways: %v", ways)
	}
}

// TestFewFiles has more connections than file descriptors: none hangs.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":80", func(conn *net.TCPConn) { io.WriteString(conn, wayOf(conn)) })
	m.startGateway()
	c := m.config(divert.Redirect)
	node := m.startRelay(c)
	if err := unix.Prlimit(node.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil); err != nil {
		t.Fatal(err)
	}
	node.apply(c)
	ways := map[string]int{}
	for range 80 {
		conn, err := m.dial(origin4 + ":80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() // only in the end: the relay holds what it has taken
		way := make([]byte, len("forwarded"))
		n, err := io.ReadAtLeast(conn, way, len("direct"))
		if err != nil {
			t.Fatal(ways, err)
		}
		ways[string(way[:n])]++
	}
	if ways["forwarded"] == 0 || ways["forwarded"] == 80 || ways["forwarded"]+ways["carried"]+ways["direct"] != 80 {
		t.Errorf("ways: %v", ways)
	}
	if strings.Contains(node.log.String(), "too many open files") {
		t.Errorf("it was short of file descriptors: %s", node.log.String())
	}
}

// TestSlowTarget has a target that does not answer the gateway.
func TestSlowTarget(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.greet(":81")
	m.run("origin", "nft", "table inet slow { chain c { type filter hook input priority 0; ip saddr "+exit4+" tcp dport 81 drop; }; }")
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	start := time.Now()
	if way := m.way(origin4 + ":81"); way != "direct" {
		t.Errorf("the connection was %s", way)
	}
	// Sooner than the gateway's timeout of 10 s.
	if took := time.Since(start); took > 9*time.Second {
		t.Errorf("the connection took %v", took)
	}
	// The gateway is not blamed for it.
	m.becomes("carried", origin4+":80")
	direct := node.figures().Relay.Direct.Total
	// A client that gives up.
	conn, err := m.dial(origin4 + ":81")
	if err != nil {
		t.Fatal(err)
	}
	tunnel.Reset(conn)
	node.await("the relay to give up", func(f figures) bool { return f.Relay.Connections[0].Streams == 0 })
	if f := node.figures(); f.Relay.Direct.Total != direct {
		t.Error("the abandoned connection was made")
	}
	if f := node.figures(); len(f.Relay.Connections) != 1 || f.Relay.Connections[0].Since.After(start) {
		t.Errorf("another session because of a slow target: %+v", f.Relay.Connections)
	}
}
