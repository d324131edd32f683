// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"bquic/internal/metrics"
	"bquic/internal/peer"
)

var epoch = time.Unix(1e9, 0)

func newAdmission(connections int, memory uint64) *admission {
	a := new(admission)
	a.init()
	a.limit(connections, memory, 1<<20)
	return a
}

func numbered(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// check recomputes the sums and compares them.
func (a *admission) check(t *testing.T) {
	t.Helper()
	open, requests := int64(0), int64(0)
	for prefix, s := range a.sources {
		of := int64(0)
		for e := range s.entries {
			if e.source != s || peer.SourceOf(e.client) != prefix {
				t.Errorf("%s has an entry of another", prefix)
			}
			of += e.requests
		}
		if of != s.requests {
			t.Errorf("%s has %d requests, its entries %d", prefix, s.requests, of)
		}
		open += s.open()
		requests += of
	}
	if open != a.open || requests != a.requests {
		t.Errorf("%d connections and %d requests, the sources have %d and %d", a.open, a.requests, open, requests)
	}
}

func TestAdmissionCounts(t *testing.T) {
	a := newAdmission(8, 1<<30)
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var entries []*entry
	enter := func(client netip.Addr, want error) {
		t.Helper()
		e, err := a.enter(epoch, client, true)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", client, err, want)
		} else if err == nil {
			entries = append(entries, e)
		}
		a.check(t)
	}
	enter(one, nil)
	enter(one, nil)
	enter(one, errSource) // a quarter of 8
	enter(other, nil)
	entries[0].leave()
	entries[0].leave() // once is enough
	enter(one, nil)
	enter(one, errSource)
	for i := range 5 {
		enter(numbered(i), nil)
	}
	enter(netip.MustParseAddr("10.9.9.9"), errFull)
	if r := a.refusals(); r != (Refusals{Full: 1, Source: 2}) {
		t.Errorf("refusals %+v", r)
	}
	a.limit(20, 1<<30, 1<<20)
	enter(netip.MustParseAddr("10.9.9.9"), nil)

	// A subscriber's IPv6 addresses are one source.
	for i := range 4 {
		want := error(nil)
		if i == 3 { // a third of the 11 that were free
			want = errSource
		}
		enter(netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::1", i)), want)
	}
	enter(netip.MustParseAddr("2001:db8:0:100::1"), nil)
	for _, e := range entries[1:] {
		e.leave()
	}
	if a.check(t); a.open != 0 {
		t.Errorf("%d connections are left", a.open)
	}
}

// TestAdmissionShares checks that any number of greedy sources hold the same number of places, and that the
// next source receives as many, at least one.
func TestAdmissionShares(t *testing.T) {
	for _, test := range []struct{ most, greedy, least int }{
		{1000, 1, 250}, {1000, 4, 140}, {1000, 30, 29}, {1000, 300, 2}, {1000, 999, 1}, {100, 10, 7}, {2, 1, 1},
	} {
		a := newAdmission(test.most, 1<<40)
		got := make([]int, test.greedy+1)
		now := epoch
		enter := func(i int) bool {
			now = now.Add(time.Second) // slow enough for the rate not to matter
			_, err := a.enter(now, numbered(i), true)
			if err == nil {
				got[i]++
			}
			return err == nil
		}
		for more := true; more; {
			more = false
			for i := range test.greedy {
				more = enter(i) || more
			}
		}
		for enter(test.greedy) {
		}
		for i, n := range got[:test.greedy] {
			if n < test.least || n > got[0] || n < got[0]-1 {
				t.Errorf("%d of %d want %d places: the first has %d, number %d has %d, at least %d expected", test.greedy, test.greedy, test.most, got[0], i, n, test.least)
				break
			}
		}
		if next := got[test.greedy]; next < 1 || next < test.least/2 {
			t.Errorf("%d have taken all they got of %d: the next one got %d", test.greedy, test.most, next)
		}
	}
}

func TestAdmissionRates(t *testing.T) {
	a := newAdmission(1<<20, 1<<40)
	flood := func(now time.Time, n int, address func(i int) netip.Addr) (let int) {
		for i := range n {
			if e, err := a.enter(now, address(i), true); err == nil {
				let++
				e.leave()
			} else if !errors.Is(err, errRate) {
				t.Fatal(err)
			}
		}
		return let
	}
	one := func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }
	if let := flood(epoch, 1000, one); let != handshakeBurst/2 {
		t.Errorf("of one source %d were let in", let)
	}
	if let := flood(epoch, 20000, numbered); let != handshakeBurst/2 {
		t.Errorf("of many sources %d were let in", let)
	}
	if len(a.sources) > maxSources {
		t.Errorf("%d sources are remembered", len(a.sources))
	}
	// A second later there is room again, mostly for sources that had little.
	if let := flood(epoch.Add(time.Second), 1000, one); let != 0 {
		t.Errorf("of the greedy source %d were let in, where others wait", let)
	}
	if let := flood(epoch.Add(time.Second), 1, numbered); let != 1 {
		t.Error("another source was refused")
	}
	if let := flood(epoch.Add(time.Hour), 1000, one); let != handshakeBurst/2 {
		t.Errorf("of one source %d were let in after an hour", let)
	}
}

// TestAdmissionUnverified checks that connections whose address may be forged have separate places, a separate
// rate and separate memory, whatever their address, and are charged to their source once verified.
func TestAdmissionUnverified(t *testing.T) {
	const most, memory = 800, 1 << 30
	victim := netip.MustParseAddr("192.0.2.1")
	a := newAdmission(most, memory)
	now := epoch
	var forged []*entry
	for i := range 100_000 { // 5,000 per second
		now = now.Add(200 * time.Microsecond)
		if a.retry(now) {
			continue
		}
		e, err := a.enter(now, victim, false)
		if err != nil {
			t.Fatalf("forged Initial %d: %v", i, err)
		}
		forged = append(forged, e)
		for range 10 {
			_, _ = e.begin()
		}
	}
	if len(forged) != most/unverifiedShare || a.unverified.requests != most/unverifiedShare {
		t.Errorf("%d forged ones have places, %d requests", len(forged), a.unverified.requests)
	}
	if a.open != 0 || a.requests != 0 || len(a.sources) != 0 {
		t.Errorf("%d connections, %d requests, %d sources", a.open, a.requests, len(a.sources))
	}
	// The address's owner still has its full share.
	for i := range most / 4 {
		e, err := a.enter(now, victim, true)
		if err != nil {
			t.Fatalf("connection %d of the address's owner: %v", i, err)
		}
		if _, err := e.begin(); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	// When they have left, a client is admitted without a Retry again, if there were not too many.
	for _, e := range forged {
		e.leave()
	}
	now = now.Add(time.Minute)
	allowed := 0
	for range 1000 {
		if !a.retry(now) {
			allowed++
		}
	}
	if allowed != unverifiedBurst {
		t.Errorf("%d of 1000 at once were not asked for their address", allowed)
	}
	if r := a.refusals(); r.Retry < 90_000 || r.Full+r.Source+r.Rate+r.Memory > 0 {
		t.Errorf("refusals %+v", r)
	}
	a.check(t)
}

func TestAdmissionVerify(t *testing.T) {
	a := newAdmission(16, 1<<30)
	client := netip.MustParseAddr("192.0.2.1")
	var entries []*entry
	for i := range 2 {
		e, err := a.enter(epoch, client, false)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		entries = append(entries, e)
	}
	if _, err := a.enter(epoch, client, false); !errors.Is(err, errFull) {
		t.Errorf("a third one has an eighth of 16: %v", err)
	}
	end, err := entries[0].begin()
	if err != nil {
		t.Fatal(err)
	}
	again, err := entries[1].begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := entries[1].begin(); !errors.Is(err, errEarly) {
		t.Errorf("a third request: %v", err)
	}
	for range 2 { // once is enough
		if err := entries[0].verify(epoch); err != nil {
			t.Fatal(err)
		}
		a.check(t)
	}
	if a.open != 1 || a.requests != 1 || a.unverified.open() != 1 || a.unverified.requests != 1 || a.handshakes.debt != 1 {
		t.Errorf("%d connections, %d requests; unverified %d, %d; debt %g", a.open, a.requests, a.unverified.open(), a.unverified.requests, a.handshakes.debt)
	}
	end()
	entries[0].leave()
	entries[1].leave()
	again()
	again()
	if err := entries[1].verify(epoch); err != nil { // the connection has ended
		t.Error(err)
	}
	if a.check(t); a.open != 0 || a.requests != 0 || a.unverified.open() != 0 || a.unverified.requests != 0 {
		t.Errorf("left: %d, %d, %d, %d", a.open, a.requests, a.unverified.open(), a.unverified.requests)
	}

	// Meanwhile, the source may have used its whole share.
	late, err := a.enter(epoch, client, false)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := a.enter(epoch, client, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := late.verify(epoch); !errors.Is(err, errSource) {
		t.Errorf("verified too late: %v", err)
	}
	if _, err := a.enter(epoch, client, false); !errors.Is(err, errSource) {
		t.Errorf("another one: %v", err)
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
	if !a.retry(epoch) {
		t.Error("memory for those who have not shown their address, where it is tight")
	}
	a.used.Store(32 << 20)
	for _, verified := range []bool{false, true} {
		if _, err := a.enter(epoch, netip.MustParseAddr("192.0.2.1"), verified); !errors.Is(err, errMemory) {
			t.Errorf("with no memory: %v", err)
		}
	}
	a.measure()
	if used := a.used.Load(); used < 1<<20 || used > 4<<30 {
		t.Errorf("measured %d bytes", used)
	}
}

// TestAdmissionGarbage checks that no client is refused because of garbage, not even during a collection, which
// can take a second.
func TestAdmissionGarbage(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before := metrics.Memory()
	// Not on this stack: of a goroutine that is preempted in a loop, the collector takes every word of its frame for a
	// pointer, also what is not used any more.
	littered := make(chan struct{})
	go func() {
		defer close(littered)
		garbage := make([][]byte, 64)
		for i := range garbage {
			garbage[i] = make([]byte, 1<<20)
		}
		runtime.KeepAlive(garbage)
	}()
	<-littered
	a := newAdmission(1000, before+32<<20)
	done := make(chan struct{})
	go func() { defer close(done); a.measure() }()
	for short := false; ; runtime.Gosched() {
		select {
		case <-done:
			if short || a.short() {
				t.Errorf("memory was short: %d of %d bytes at the end", a.used.Load(), a.ceiling.Load())
			}
			return
		default:
			short = short || a.short()
		}
	}
}

func TestAdmissionRequests(t *testing.T) {
	a := newAdmission(1000, 16*requestMemory)
	var ends []func()
	entries := make(map[netip.Addr]*entry)
	serve := func(client netip.Addr) bool {
		e := entries[client]
		if e == nil {
			var err error
			if e, err = a.enter(epoch, client, true); err != nil {
				t.Fatal(err)
			}
			entries[client] = e
		}
		end, err := e.begin()
		if err == nil {
			ends = append(ends, end)
		}
		a.check(t)
		return err == nil
	}
	one := netip.MustParseAddr("192.0.2.1")
	for i := range 5 {
		if ok := serve(one); ok != (i < 4) { // a quarter of 16
			t.Errorf("request %d of a source: %t", i, ok)
		}
	}
	for i := range 13 {
		if ok := serve(numbered(i)); ok != (i < 12) {
			t.Errorf("request %d: %t", 4+i, ok)
		}
	}
	for range 3 {
		ends[0]() // once is enough
	}
	for _, end := range ends[4:10] {
		end()
	}
	if !serve(numbered(100)) {
		t.Error("there was room for one more")
	}
	if r := a.refusals(); r.Requests != 2 {
		t.Errorf("refusals %+v", r)
	}
	a.limit(1000, 1<<30, 4*11) // file descriptors
	if !serve(numbered(101)) || serve(numbered(102)) {
		t.Error("11 requests fit into a quarter of the file descriptors")
	}
}

// TestShed checks that shed closes the largest connections of the source that holds most memory, as many as
// needed, but never all at once, and never a source's only, idle one.
func TestShed(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		name  string
		over  uint64
		holds map[string][]uint64 // memory of each connection, by address
		want  map[string][]uint64 // connections that are closed
	}{
		{"nobody", mib, nil, nil},
		{"all idle, one each", mib, map[string][]uint64{"192.0.2.1": {0}, "192.0.2.2": {0}}, nil},
		{"not the one with most connections", mib,
			map[string][]uint64{"192.0.2.1": {0, 0, 0, 0, 0}, "192.0.2.2": {8 * mib}}, map[string][]uint64{"192.0.2.2": {8 * mib}}},
		{"no more than needed", 5 * mib,
			map[string][]uint64{"192.0.2.1": {mib}, "192.0.2.2": {mib, 3 * mib, 4 * mib, 0, 0, 0}}, map[string][]uint64{"192.0.2.2": {4 * mib, 3 * mib}}},
		{"no more than half", 1 << 40,
			map[string][]uint64{"192.0.2.1": {mib}, "192.0.2.2": {mib, 2 * mib, 0, 0, 0}}, map[string][]uint64{"192.0.2.2": {2 * mib, mib, 0}}},
		{"many small ones are one large one", mib,
			map[string][]uint64{"192.0.2.1": {mib}, "2001:db8::1": {0}, "2001:db8:0:1::1": {mib / 2}, "2001:db8:0:2::1": {mib / 2, mib / 2}},
			map[string][]uint64{"2001:db8:0:1::1": {mib / 2}, "2001:db8:0:2::1": {mib / 2}}},
		{"idle ones of one that has many", 0,
			map[string][]uint64{"192.0.2.1": {0}, "192.0.2.2": {0, 0, 0}}, map[string][]uint64{"192.0.2.2": {0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAdmission(1000, 1<<30)
			ended := make(map[string][]uint64)
			count := 0
			for address, holds := range test.holds {
				for _, bytes := range holds {
					e, err := a.enter(epoch, netip.MustParseAddr(address), true)
					if err != nil {
						t.Fatal(err)
					}
					e.attach(func() uint64 { return bytes }, func() { ended[address] = append(ended[address], bytes) })
				}
			}
			_, ends := a.shed(test.over)
			for _, end := range ends {
				end()
			}
			for _, e := range ended {
				count += len(e)
			}
			sum := func(m map[string][]uint64) (n int, bytes uint64) {
				for _, all := range m {
					n += len(all)
					for _, b := range all {
						bytes += b
					}
				}
				return n, bytes
			}
			gotN, gotBytes := sum(ended)
			wantN, wantBytes := sum(test.want)
			if gotN != wantN || gotBytes != wantBytes || a.refusals().Shed != uint64(count) {
				t.Errorf("ended %v, want %v", ended, test.want)
			}
			for address := range ended {
				if test.want[address] == nil {
					t.Errorf("one of %s was ended", address)
				}
			}
		})
	}

	// Unverified connections are one source. TCP connections hold the memory of their requests.
	a := newAdmission(1000, 1<<30)
	ended := ""
	for i, verified := range []bool{true, false, false} {
		e, err := a.enter(epoch, numbered(i), verified)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint(i)
		e.attach(nil, func() { ended += name })
		if i == 2 {
			if _, err := e.begin(); err != nil {
				t.Fatal(err)
			}
		}
	}
	name, ends := a.shed(0)
	for _, end := range ends {
		end()
	}
	if name != "unverified" || ended != "2" {
		t.Errorf("of %s, %s was ended", name, ended)
	}
}
