// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net/netip"
	"testing"
	"time"

	"bquic/internal/divert"
)

// TestExpected: what was taken and does not arrive takes no room for long.
func TestExpected(t *testing.T) {
	now := time.Unix(1000, 0)
	packet := func(i int) *divert.Packet {
		return &divert.Packet{
			Client: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), uint16(1024+i)),
			Target: netip.MustParseAddrPort("192.0.2.1:80"), Out: 7, Mark: uint32(i),
		}
	}
	var e expected
	for i := range maxExpected {
		if ok, _ := e.add(packet(i), now); !ok {
			t.Fatalf("no room for the connection %d", i)
		}
	}
	if ok, _ := e.add(packet(maxExpected), now); ok {
		t.Error("there was room for one too many")
	}
	p := packet(5)
	if x := e.come(pair{p.Client, p.Target}); x.out != 7 || x.mark != 5 {
		t.Errorf("came as %+v", x)
	}
	if x := e.come(pair{p.Client, p.Target}); x.out != 0 {
		t.Errorf("came twice: %+v", x)
	}
	if n := e.len(now); n != maxExpected-1 {
		t.Errorf("%d are expected", n)
	}
	if ok, known := e.add(p, now); !ok || !known || e.len(now) != maxExpected-1 {
		t.Error("a SYN that came twice counts as another connection")
	}
	now = now.Add(expectTimeout)
	if n := e.len(now); n != 0 {
		t.Errorf("%d are expected still", n)
	}
	for i := range maxRemembered + 10 {
		p := packet(i)
		if ok, _ := e.add(p, now); !ok || e.come(pair{p.Client, p.Target}).out != 7 || len(e.by) > maxRemembered {
			t.Fatalf("the connection %d of those that come at once: %d are remembered", i, len(e.by))
		}
	}
}
