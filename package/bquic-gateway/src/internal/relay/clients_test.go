// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bquic/internal/metrics"
	"bquic/internal/tunnel"
)

func TestManyClients(t *testing.T) {
	var c clients
	var carried, direct tunnel.Bytes
	const many = maxClients + 50
	var held []*client
	for i := range many {
		cl := c.enter(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), &carried, &direct)
		cl.carried.ToStream.Add(1)
		cl.direct.FromStream.Add(2)
		held = append(held, cl)
	}
	shown, others := c.status()
	if len(shown) != maxClients || others != (ClientStatus{Connections: 50, Sent: 50, Received: 100, Direct: 100}) {
		t.Errorf("%d clients, others %+v", len(shown), others)
	}
	// Each client has a unique number, as long as there are numbers.
	owners := make(map[uint8]*client)
	for i, cl := range held {
		if i >= maxClients {
			if cl.number != 0 {
				t.Errorf("client %d has number %d", i, cl.number)
			}
		} else if owners[cl.number] != nil || cl.number == 0 {
			t.Errorf("client %d has number %d, which %v has", i, cl.number, owners[cl.number])
		}
		owners[cl.number] = cl
	}
	for _, cl := range held {
		c.leave(cl)
	}
	// Now the clients that left first make room.
	time.Sleep(time.Millisecond)
	late := netip.MustParseAddr("2001:db8::1")
	cl := c.enter(late, &carried, &direct)
	if cl.number != held[0].number {
		t.Errorf("number %d, not %d of the one that made room", cl.number, held[0].number)
	}
	c.leave(cl)
	shown, others = c.status()
	if len(shown) != maxClients || shown[0].Address != late.String() || others != (ClientStatus{Sent: 51, Received: 102, Direct: 102}) {
		t.Errorf("%d clients, the first %+v, others %+v", len(shown), shown[0], others)
	}
	if up, down := carried.ToStream.Load(), direct.FromStream.Load(); up != many || down != 2*many {
		t.Errorf("sums %d, %d", up, down)
	}
}

// TestMetrics compares the names with docs/gateway.md.
func TestMetrics(t *testing.T) {
	r, err := New(validConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := new(metrics.Writer)
	w.Process("bquic_relay", "1", time.Now(), true)
	r.Metrics(w)
	doc, err := os.ReadFile("../../../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(text, pattern string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return all
	}
	written, documented := names(string(w.Text()), `(?m)^# TYPE (\S+)`), names(string(doc), "(?m)^\\| `(bquic_relay_[a-z_]+)")
	if !slices.Equal(written, documented) {
		t.Errorf("docs/gateway.md lists %q\nwritten are %q", documented, written)
	}
	for _, name := range written { // as promtool's linter has it
		if strings.Contains(name, "_bits_") {
			t.Errorf("%s: Prometheus counts in bytes", name)
		}
	}
}
