// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
	"bquic/internal/relay"
)

// recovery is the timeout for connections to be carried again after a fault. It is
// six times what docs/gateway.md states, because the machine may be busy.
const recovery = 60 * time.Second

// transfers run continuously in both directions between phone and origin. Whatever happens
// on the path, a transfer that ends without an error at either end must be complete.
type transfers struct {
	m        *mesh
	complete atomic.Int64
	broken   atomic.Int64
	stop     chan struct{}
	wg       sync.WaitGroup
}

const (
	transferPort  = 90
	transferSize  = 256 << 10
	transferPiece = 8 << 10
)

// transferred returns the content of the transfer id.
func transferred(id uint64) []byte {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], id)
	b := make([]byte, transferSize)
	rand.NewChaCha8(seed).Read(b)
	return b
}

// slowly writes at about 0.8 MB/s, so that a fault hits transfers in progress.
func slowly(conn net.Conn, b []byte) error {
	for ; len(b) > 0; time.Sleep(10 * time.Millisecond) {
		n, err := conn.Write(b[:min(len(b), transferPiece)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// check reads to the end. The test fails if conn ends without an error and its
// content is not that of the transfer id.
func (x *transfers) check(where string, conn io.Reader, id uint64) error {
	got, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if want := transferred(id); sha256.Sum256(got) != sha256.Sum256(want) {
		x.m.t.Errorf("%s: transfer %d ended in peace after %d of %d bytes, %v of them right", where, id, len(got), len(want), bytes.HasPrefix(want, got))
	}
	return nil
}

// startTransfers runs several transfers at a time until the test ends.
func (m *mesh) startTransfers() *transfers {
	m.t.Helper()
	x := &transfers{m: m, stop: make(chan struct{})}
	m.listen(fmt.Sprintf(":%d", transferPort), func(conn *net.TCPConn) {
		header := make([]byte, 8)
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		id := binary.BigEndian.Uint64(header)
		if id%2 == 0 {
			if slowly(conn, transferred(id)) == nil {
				conn.CloseWrite()
				io.Copy(io.Discard, conn)
			}
			return
		}
		if x.check("origin", conn, id) == nil {
			conn.Write([]byte("k"))
		}
	})
	var last atomic.Uint64
	for range 6 {
		x.wg.Go(func() {
			for {
				select {
				case <-x.stop:
					return
				default:
				}
				id, begun := last.Add(1), time.Now()
				if err := x.one(id); err != nil {
					x.broken.Add(1)
					m.t.Logf("transfer %d, from %s to %s: %v", id, begun.Format(time.StampMilli), time.Now().Format(time.StampMilli), err)
					time.Sleep(20 * time.Millisecond) // do not retry at full speed
				} else {
					x.complete.Add(1)
				}
			}
		})
	}
	m.t.Cleanup(x.end)
	return x
}

// one runs one transfer: a download if id is even, an upload if it is odd.
func (x *transfers) one(id uint64) error {
	conn, err := x.m.dial(fmt.Sprintf("%s:%d", origin4, transferPort))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := sendAll(conn, binary.BigEndian.AppendUint64(nil, id)); err != nil {
		return err
	}
	if id%2 == 0 {
		return x.check("phone", conn, id)
	}
	if err := errors.Join(slowly(conn, transferred(id)), conn.CloseWrite()); err != nil {
		return err
	}
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "k" {
		return fmt.Errorf("the origin said %q: %w", answer, err)
	}
	return nil
}

func (x *transfers) end() {
	select {
	case <-x.stop:
	default:
		close(x.stop)
	}
	x.wg.Wait()
}

// await waits until n more transfers are complete.
func (x *transfers) await(n int64) {
	x.m.t.Helper()
	want := x.complete.Load() + n
	for deadline := time.Now().Add(patience); x.complete.Load() < want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.m.t.Fatalf("%d transfers are missing, %d were completed, %d were broken", want-x.complete.Load(), x.complete.Load(), x.broken.Load())
		}
	}
}

// recovers waits until a new connection is carried.
func (m *mesh) recovers(after string) {
	m.t.Helper()
	start := time.Now()
	m.becomes("carried", origin4+":80")
	took := time.Since(start)
	if took > recovery {
		m.t.Errorf("after %s: carried again only after %v", after, took)
	}
	m.t.Logf("after %s: carried again after %v", after, took.Round(time.Millisecond))
}

// TestKilled kills gateway and relay during transfers, and restarts them.
func TestKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		gateway := m.startGateway()
		node := m.startRelay(m.config(mode))
		x := m.startTransfers()
		for range 2 {
			x.await(6)
			gateway.signal(syscall.SIGKILL)
			gateway = m.startGateway()
			m.recovers("a kill of the gateway")
			x.await(6)
			node.signal(syscall.SIGKILL)
			node = m.start("node", role{Relay: ptr(m.config(mode))})
			m.recovers("a kill of the relay")
		}
		x.await(6)
		x.end()
		if x.broken.Load() == 0 {
			t.Error("no transfer was under way at any kill")
		}
		t.Logf("%d transfers completed, %d broken", x.complete.Load(), x.broken.Load())
	})
}

// TestKilledDirect kills the relay during an upload that it passes on directly. The server does not take what it has for the whole.
func TestKilledDirect(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	m.listen(":80", func(conn *net.TCPConn) {
		io.ReadFull(conn, make([]byte, 1000))
		close(begun)
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	})
	m.startGatewayAt(443, "\tlist connect_to '192.0.2.0/24'") // refuses the origin
	node := m.startRelay(m.config(divert.Redirect))
	conn, err := m.dial(origin4 + ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sendAll(conn, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	<-begun
	if f := node.figures(); f.Relay.Direct.Now != 1 {
		t.Fatalf("%d direct connections, not 1", f.Relay.Direct.Now)
	}
	node.cmd.Process.Kill()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the upload ended with %v", err)
	}
}

// TestStopped stops gateway and relay gracefully during transfers, and restarts them.
func TestStopped(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.routerLike()
		m.stops(m.config(mode), nil)
	})
}

// stops stops gateway and relay gracefully and in turn during transfers, and restarts them. No transfer may notice.
// With each stop it calls also. BQUIC_STOPS sets how often, 4 by default.
func (m *mesh) stops(c relay.Config, also func()) {
	t := m.t
	t.Helper()
	stops := 4
	if s := os.Getenv("BQUIC_STOPS"); s != "" {
		var err error
		if stops, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	m.greet(":80")
	gateway := m.startGateway()
	node := m.startRelay(c)
	x := m.startTransfers()
	for i := range stops {
		x.await(6)
		which, process := "gateway", &gateway
		if i%2 == 1 {
			which, process = "relay", &node
		}
		if err := (*process).signal(syscall.SIGTERM); err != nil {
			t.Errorf("the %s ended with %v", which, err)
		}
		if also != nil {
			also()
		}
		x.await(6)
		if which == "gateway" {
			gateway = m.startGateway()
		} else {
			node = m.start("node", role{Relay: &c})
		}
		m.recovers("a stop of the " + which)
	}
	x.await(6)
	x.end()
	if broken := x.broken.Load(); broken > 0 {
		t.Errorf("%d of %d transfers were broken", broken, broken+x.complete.Load())
	}
	t.Logf("%d transfers completed", x.complete.Load())
}

func ptr[T any](v T) *T { return &v }

// TestCut drops all packets between node and gateway for 40 s. What is carried goes on after that, as without a relay.
func TestCut(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	carried := m.echo(node, origin4+":81")
	carried.says("before the cut")
	x := m.startTransfers()
	x.await(6)
	m.run("gateway", "nft", `table inet cut {
		chain in { type filter hook prerouting priority -400; iifname "mesh" drop; }
		chain out { type filter hook postrouting priority 400; oifname "mesh" drop; }
	}`)
	cut := time.Now()
	node.await("the relay to notice", func(f figures) bool { return f.Relay.State == "away" && !f.Relay.Taking })
	t.Logf("noticed after %v", time.Since(cut).Round(time.Millisecond))
	time.Sleep(time.Until(cut.Add(40 * time.Second)))
	m.run("gateway", "nft", "delete table inet cut")
	m.recovers("a cut of 40 s")
	carried.says("after the cut")
	x.await(12)
	x.end()
	t.Logf("%d transfers completed, %d broken", x.complete.Load(), x.broken.Load())
}

// TestTakenOver checks that connections of a dead gateway end as soon as without a
// second gateway, which takes over new ones meanwhile.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGatewayAt(443)
	m.startGatewayAt(444)
	c := m.config(divert.Redirect)
	c.Gateways = relay.InOrder(gateway4+":443", gateway4+":444")
	node := m.startRelay(c)
	uses := func(port string) func(figures) bool {
		return func(f figures) bool { return f.Relay.Taking && f.Relay.Gateway == gateway4+":"+port }
	}
	node.await("the first gateway", uses("443"))
	carried := m.echo(node, origin4+":81")
	carried.says("by the first")
	m.silence()
	cut := time.Now()
	if err := sendAll(carried.TCPConn, []byte("unheard")); err != nil {
		t.Fatal(err)
	}
	node.await("the second gateway", uses("444"))
	if err := receiveReset(carried.TCPConn); err != nil {
		t.Error(err)
	}
	t.Logf("reset after %v", time.Since(cut).Round(time.Millisecond))
	// QUIC itself would time out, too, but only after 2 min.
	node.logs("connection ended")
	if log := node.log.String(); strings.Contains(log, "no recent network activity") {
		t.Error("the relay left it to the idle timeout to end what the first gateway carried")
	}
}

// TestLastTargetGone is like TestTakenOver, after a connection to a server that has gone since. It tells nothing about the gateway.
func TestLastTargetGone(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	carried := m.echo(node, origin4+":81")
	carried.says("before")
	m.echo(node, m.servers(1, ":81")[0]).says("and goodbye")
	m.ip("origin", "addr del 203.0.113.10/24 dev eth0")
	m.silence()
	carried.resets("unheard")
}

// TestLastTargetsIPv6 is like TestTakenOver, after connections to servers of IPv6, which this node reaches by this gateway only. By IPv4, it has
// another exit.
func TestLastTargetsIPv6(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	carried := m.echo(node, origin4+":81")
	carried.says("before")
	for port := 82; port < 90; port++ {
		m.listen(fmt.Sprintf("[%s]:%d", origin6, port), func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.echo(node, fmt.Sprintf("[%s]:%d", origin6, port)).says("by IPv6")
	}
	m.ip("node", "-6 route del default")
	m.silence()
	carried.SetDeadline(time.Now().Add(patience))
	carried.resets("unheard")
}

// TestOriginKilled checks that when its origin is killed, a client sees the same as
// without a relay: a FIN, or a reset if the origin had not read everything.
func TestOriginKilled(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gateway := m.startGateway()
	c := m.config(divert.Redirect)
	c.ExcludePorts = []divert.Ports{{First: 92, Last: 92}}
	node := m.startRelay(c)
	for _, tc := range []struct {
		sent string // the origin reads one byte of it
		want error  // nil: a FIN
	}{{"x", nil}, {"x, and what is not read", syscall.ECONNRESET}} {
		origin := m.start("origin", role{Origins: []string{":91", ":92"}})
		ends := map[string]chan error{}
		for _, port := range []string{":91", ":92"} {
			var conn *net.TCPConn
			var err error
			if port == ":91" {
				conn = m.carry(node, origin4+port)
			} else if conn, err = m.dial(origin4 + port); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := errors.Join(sendAll(conn, []byte(tc.sent)), receiveAll(conn, []byte("answer"))); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			ends[port] = ended
			go func() {
				_, err := io.Copy(io.Discard, conn)
				conn.Close()
				ended <- err
			}()
		}
		origin.signal(syscall.SIGKILL)
		for port, way := range map[string]string{":91": "carried", ":92": "forwarded"} {
			if err := <-ends[port]; !errors.Is(err, tc.want) {
				t.Errorf("sent %q, %s: the client sees %v, not %v", tc.sent, way, err, tc.want)
			}
		}
	}
	if f := node.figures(); f.Relay.State != "up" {
		t.Errorf("the gateway is %s", f.Relay.State)
	}
	gateway.await("all tunnels to end", func(f figures) bool { return f.Gateway.Open == 0 })
}

// TestTableKept checks that no other program can change the relay's nftables table.
func TestTableKept(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.greet(":80")
		m.listen(":81", func(conn *net.TCPConn) { io.Copy(conn, conn) })
		m.startGateway()
		node := m.startRelay(m.config(mode))
		carried := m.echo(node, origin4+":81")
		carried.says("before")
		for _, change := range []string{
			"delete table inet bquic_relay",
			"flush ruleset",
			"flush chain inet bquic_relay leaving",
			"insert rule inet bquic_relay forwarded return",
		} {
			// "flush ruleset" skips the table, and all other commands are refused.
			exec.Command("ip", append([]string{"netns", "exec", m.ns["node"], "nft"}, strings.Fields(change)...)...).Run()
			if way := m.wayBy(node, origin4+":80"); way != "carried" {
				t.Errorf("after %q: %s", change, way)
			}
			carried.says(change) // idle meanwhile
		}
		if _, err := divertOpen(m); err == nil {
			t.Error("a second relay has started")
		}
	})
}

// divertOpen does what a second relay in the node does first.
func divertOpen(m *mesh) (d *divert.Diverter, err error) {
	err = m.in("node", func() (err error) {
		d, err = divert.Open()
		return err
	})
	return d, err
}
