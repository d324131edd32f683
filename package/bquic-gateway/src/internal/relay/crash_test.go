// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bquic/internal/divert"
)

// TestCrashes kills the relay at random moments while clients download and open
// connections. Without a restart, the next connection must be forwarded, and the
// kernel's state must be as before.
func TestCrashes(t *testing.T) {
	t.Parallel()
	const kills, loops = 100, 10
	m := newMesh(t)
	m.greet(":80")
	m.listen(":81", func(conn *net.TCPConn) {
		for b := make([]byte, 16<<10); ; {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	})
	m.greetUDP(53)
	m.slow("20mbit")
	m.startGateway()
	kernel := func() string {
		out := ""
		for _, args := range [][]string{{"nft", "list", "tables"}, {"ip", "rule"}, {"ip", "-6", "rule"}} {
			out += m.run("node", args...)
		}
		for line := range strings.Lines(m.run("node", "ip", "route", "show", "table", "all")) {
			if strings.HasPrefix(line, "local default") {
				out += line
			}
		}
		return out
	}
	before := kernel()
	restored := func() {
		t.Helper()
		defer func() {
			if now := kernel(); now != before {
				t.Errorf("the kernel had:\n%s\nand has:\n%s", before, now)
			}
		}()
		m.eventually("nothing is left in the kernel", func() bool { return kernel() == before })
	}

	// The load: two clients that download, and two that open one connection or flow
	// after the other. All of them may fail, because the relay is killed meanwhile.
	var wg sync.WaitGroup
	var over atomic.Bool
	defer wg.Wait()
	defer over.Store(true)
	load := func(target string, most int64) {
		wg.Go(func() {
			for !over.Load() {
				if conn, err := m.dial(target); err == nil {
					_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
					_, _ = io.Copy(io.Discard, io.LimitReader(conn, most))
					conn.Close()
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for range 2 {
		load(origin4+":81", 1<<30)
	}
	load("["+origin6+"]:80", 100)
	load(origin4+":80", 100)

	var slowest time.Duration
	works := func(when string) {
		t.Helper()
		start := time.Now()
		if way := m.way(origin4 + ":80"); way != "forwarded" {
			t.Errorf("%s: a new connection was %s", when, way)
		}
		slowest = max(slowest, time.Since(start))
	}
	config := func(i int) role {
		c := m.config([]string{divert.Redirect, divert.TProxy}[i%2])
		if i%4 >= 2 {
			c.UDPPorts = []divert.Ports{{First: 53, Last: 53}}
		}
		return role{Relay: &c}
	}
	taking := 0
	for i := range kills {
		node := m.spawn("node", config(i))
		if i%3 > 0 { // else it may not yet take connections
			node.await("the relay to take connections", func(f figures) bool { return f.Relay.Taking })
			taking++
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		node.signal(syscall.SIGKILL)
		works("after a kill")
		if i%4 >= 2 {
			if way := m.ask(m.udp(origin4+":53"), "after a kill"); way != "forwarded" {
				t.Errorf("a new flow was %s", way)
			}
		}
		restored()
	}
	for i := range loops {
		node := m.spawn("node", config(i))
		time.Sleep(rand.N(100 * time.Millisecond))
		node.signal(syscall.SIGKILL)
	}
	works("after a crash loop")
	restored()
	if tables := m.tables(); slices.Contains(tables, "table inet bquic_relay") {
		t.Errorf("tables: %v", tables)
	}
	t.Logf("%d kills, %d of them of a relay that took connections; the slowest new connection took %v", kills, taking, slowest)
}
