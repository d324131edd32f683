// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

func newAdmission(connections int, memory uint64) *admission {
	a := new(admission)
	a.init()
	a.limit(connections, memory)
	return a
}

func TestAdmissionCounts(t *testing.T) {
	a := newAdmission(8, 1<<30)
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var leaves []func()
	enter := func(client netip.Addr, want error) {
		t.Helper()
		leave, err := a.enter(client)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", client, err, want)
		} else if err == nil {
			leaves = append(leaves, leave)
		}
	}
	enter(one, nil)
	enter(one, nil)
	enter(one, errSource) // a quarter of 8
	enter(other, nil)
	leaves[0]()
	leaves[0]() // once is enough
	enter(one, nil)
	enter(one, errSource)
	for i := range 5 {
		enter(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), nil)
	}
	enter(netip.MustParseAddr("10.9.9.9"), errFull)
	if r := a.refusals(); r != (Refusals{Full: 1, Source: 2}) {
		t.Errorf("refusals %+v", r)
	}
	a.limit(16, 1<<30)
	enter(netip.MustParseAddr("10.9.9.9"), nil)

	// A subscriber's IPv6 addresses are one source.
	for i := range 5 {
		want := error(nil)
		if i == 4 {
			want = errSource
		}
		enter(netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::1", i)), want)
	}
	enter(netip.MustParseAddr("2001:db8:0:100::1"), nil)
	for _, leave := range leaves[1:] {
		leave()
	}
	if a.open != 0 {
		t.Errorf("%d connections are left", a.open)
	}
}

func TestAdmissionRates(t *testing.T) {
	a := newAdmission(1<<20, 1<<30)
	flood := func(n int, address func(i int) netip.Addr) (let int) {
		for i := range n {
			if leave, err := a.enter(address(i)); err == nil {
				let++
				leave()
			} else if !errors.Is(err, errRate) {
				t.Fatal(err)
			}
		}
		return let
	}
	// The buckets fill while the loop runs: not by a hundred.
	if let := flood(1000, func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }); let < sourceBurst || let > sourceBurst+100 {
		t.Errorf("of one source %d were let in", let)
	}
	let := flood(20000, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) })
	if rest := handshakeBurst - sourceBurst; let < rest-100 || let > rest+200 {
		t.Errorf("of many sources %d were let in", let)
	}
	if len(a.sources) > maxSources {
		t.Errorf("%d sources are remembered", len(a.sources))
	}
	suspicious := 0
	for range 1000 {
		if a.suspicious() {
			suspicious++
		}
	}
	if suspicious > 1000-unverifiedBurst || suspicious < 1000-unverifiedBurst-100 {
		t.Errorf("%d of 1000 had to verify their address", suspicious)
	}
}

func TestAdmissionMemory(t *testing.T) {
	a := newAdmission(1000, 32<<20)
	if stream, connection := a.windows(); stream != 32<<10 || connection != 32<<10 {
		t.Errorf("windows %d, %d", stream, connection)
	}
	if stream, connection := newAdmission(1000, 8<<30).windows(); stream != initialStreamWindow || connection != initialConnectionWindow {
		t.Errorf("windows %d, %d with much memory", stream, connection)
	}
	a.used.Store(24 << 20)
	if !a.tight() || a.short() {
		t.Error("three quarters are tight, not short")
	}
	a.used.Store(32 << 20)
	if _, err := a.enter(netip.MustParseAddr("192.0.2.1")); !errors.Is(err, errMemory) {
		t.Errorf("with no memory: %v", err)
	}
	a.measure()
	if used := a.used.Load(); used < 1<<20 || used > 4<<30 {
		t.Errorf("measured %d bytes", used)
	}
}

func TestAdmissionRequests(t *testing.T) {
	a := newAdmission(1000, 16*requestMemory)
	one := netip.MustParseAddr("192.0.2.1")
	var ends []func()
	serve := func(client netip.Addr) bool {
		end, ok := a.begin(client)
		if ok {
			ends = append(ends, end)
		}
		return ok
	}
	for i := range 5 {
		if ok := serve(one); ok != (i < 4) { // a quarter of 16
			t.Errorf("request %d of a source: %t", i, ok)
		}
	}
	for i := range 13 {
		if ok := serve(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})); ok != (i < 12) {
			t.Errorf("request %d: %t", 4+i, ok)
		}
	}
	ends[0]()
	ends[0]() // once is enough
	if !serve(one) || serve(one) {
		t.Error("one request ended: one more may begin")
	}
	if r := a.refusals(); r.Requests != 3 {
		t.Errorf("refusals %+v", r)
	}
	if _, err := a.enter(one); err != nil {
		t.Fatal(err)
	}
	if s := a.largest(); s != netip.MustParsePrefix("192.0.2.1/32") {
		t.Errorf("the source with the most connections is %s", s)
	}
}
