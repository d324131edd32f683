// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
)

var servers = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")}

func waiting() time.Duration { return 0 }

func undrawn() Ticket { return Ticket{Measured: true} }

// TestJoin: which flows join which session.
func TestJoin(t *testing.T) {
	var s Sessions
	var found []*Session
	for _, f := range []struct {
		at             time.Duration
		client, server int
		want           int // the first flow of its session
	}{
		{0, 0, 0, 0}, {time.Second, 0, 0, 0}, {time.Second, 1, 0, 2}, {time.Second, 0, 1, 3}, {5 * time.Second, 0, 0, 0},
		{5*time.Second + 1, 0, 0, 5}, {7 * time.Second, 0, 1, 6}, {10 * time.Second, 0, 0, 5}, {11 * time.Second, 0, 0, 8},
	} {
		now := start.Add(f.at)
		s.Age(now)
		found = append(found, s.Join(now, clients[f.client], servers[f.server], undrawn))
		if got := slices.Index(found, found[len(found)-1]); got != f.want {
			t.Errorf("after %v %d joins %d, not %d", f.at, len(found)-1, got, f.want)
		}
	}
	if n := len(s.young); n != 2 {
		t.Errorf("%d sessions can be joined", n)
	}
	for i := range 2 * maxYoung {
		s.Join(start.Add(11*time.Second), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), servers[0], undrawn)
		if s.Age(start.Add(11 * time.Second)); len(s.young) > maxYoung {
			t.Fatalf("%d sessions can be joined", len(s.young))
		}
	}
}

// TestOver: a session is over when its last flow has ended and no other can join, and counts once.
func TestOver(t *testing.T) {
	at := func(s float64) time.Time { return start.Add(seconds(s)) }
	var s Sessions
	x := s.Join(at(0), clients[0], servers[0], undrawn)
	if !x.Open(waiting) || x.Open(waiting) || x.Close(Flow{}) || x.Close(Flow{}) {
		t.Error("over, and flows can join")
	}
	if over := s.Age(at(5)); len(over) != 0 {
		t.Error("over, and flows can join")
	}
	if over := s.Age(at(5.1)); len(over) != 1 || over[0] != x {
		t.Errorf("%v are over", over)
	}
	y := s.Join(at(6), clients[0], servers[0], undrawn)
	y.Open(waiting)
	if over := s.Age(at(20)); len(over) != 0 {
		t.Error("over, and a flow is open")
	}
	if !y.Close(Flow{}) {
		t.Error("not over")
	}
	s.Join(at(21), clients[0], servers[0], undrawn) // its flow never opens
	if over := s.Age(at(40)); len(over) != 0 {
		t.Error("a session without a flow counts")
	}
}

// TestQuiet: a flow does not join a session whose client has not waited for a while.
func TestQuiet(t *testing.T) {
	at := func(s float64) time.Time { return start.Add(seconds(s)) }
	for name, flows := range map[string]int{"one flow": 1, "more flows than are asked": 2 * maxIdle} {
		var s Sessions
		idle := make([]time.Duration, flows)
		join := func(seconds float64) *Session { return s.Join(at(seconds), clients[0], servers[0], undrawn) }
		set := func(all, last time.Duration) {
			for i := range idle {
				idle[i] = all
			}
			idle[flows-1] = last
		}
		x := join(0)
		if join(1.5) != x {
			t.Errorf("%s: before a flow has begun, a session is quiet", name)
		}
		for i := range idle {
			x.Open(func() time.Duration { return idle[i] })
		}
		if n := len(x.idle); n != min(flows, maxIdle) {
			t.Errorf("%s: %d are asked", name, n)
		}
		if join(3) != x {
			t.Errorf("%s: the client waits, and another does not join", name)
		}
		set(2*sessionQuiet, 2*sessionQuiet)
		if join(3.1) != x {
			t.Errorf("%s: another does not join one that is about to begin", name)
		}
		set(2*sessionQuiet, sessionQuiet)
		if x.Waited(at(1), at(2)); join(4) != x {
			t.Errorf("%s: the client has waited a moment ago, and another does not join", name)
		}
		set(2*sessionQuiet, 2*sessionQuiet)
		quiet := *x
		s = Sessions{young: []*Session{&quiet}}
		if y := join(4.6); y == &quiet || join(4.7) != y {
			t.Errorf("%s: the next ones do not begin a session after a quiet one", name)
		}
		s = Sessions{young: []*Session{x}}
		x.Waited(at(2), at(3)) // as the client asks again
		set(0, 0)
		if y := join(4.1); y == x {
			t.Errorf("%s: another joins a session that has been quiet", name)
		}
		if s.Age(at(10)); x.idle != nil {
			t.Errorf("%s: an old session keeps them", name)
		}
	}
}

// TestWaits compares with a count of all milliseconds.
func TestWaits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 2000 {
		s := &Session{began: start}
		var waiting [1000]bool
		n := 1 + rnd.IntN(maxWaits) // with more, separate waits would be merged
		for range n {
			from := rnd.IntN(900)
			to := from + rnd.IntN(100)
			s.Waited(start.Add(time.Duration(from)*time.Millisecond), start.Add(time.Duration(to)*time.Millisecond))
			for ms := from; ms < to; ms++ {
				waiting[ms] = true
			}
		}
		want := time.Duration(0)
		for _, w := range waiting {
			if w {
				want += time.Millisecond
			}
		}
		if _, all, _ := s.outcome(); all != want {
			t.Fatalf("%v, not %v: %v", all, want, s.waits)
		}
	}
	// A connection that is kept for long: the pauses do not count, however many there are.
	s := &Session{began: start}
	const many = 50 * maxWaits
	for i := range many {
		s.Waited(start.Add(time.Duration(i)*time.Second), start.Add(time.Duration(i)*time.Second+time.Millisecond))
	}
	if len(s.waits) > maxWaits {
		t.Errorf("%d waits", len(s.waits))
	}
	if _, all, _ := s.outcome(); all != many*time.Millisecond {
		t.Errorf("%v, not %d ms", all, many)
	}
	// Beside them, another flow's waits end only now.
	s.Waited(start.Add(many/2*time.Second), start.Add(many*time.Second))
	if _, all, _ := s.outcome(); (all - (many/2*time.Second + many/2*time.Millisecond)).Abs() > time.Second {
		t.Errorf("%v, not half of %d s", all, many)
	}
	s.Waited(start, start.Add(many*time.Second))
	if _, all, _ := s.outcome(); (all - many*time.Second).Abs() > time.Millisecond {
		t.Errorf("%v, not %d s", all, many)
	}
}

// TestPages: the times of sessions, of pages and others, are compared and stored.
func TestPages(t *testing.T) {
	const weeksOfPages = 100
	var held, sure int
	for seed := range uint64(weeksOfPages) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		p := New(Config{Share: 0.3})
		var s Sessions
		for i := range 1500 {
			now := start.Add(time.Duration(i) * time.Minute)
			for _, over := range s.Age(now) {
				p.RecordSession(over)
			}
			client := clients[rnd.IntN(len(clients))]
			x := s.Join(now, client, servers[0], func() Ticket { return p.Draw(now, client, rnd.Uint32()) })
			page := math.Exp(rnd.NormFloat64())
			if x.Arm() == Carried {
				page *= 0.8
			}
			for range 1 + rnd.IntN(6) { // all as slow as the page
				first := x.Open(waiting)
				x.Waited(now, now.Add(seconds(page)))
				if x.Close(Flow{2000, 20000, 8, 20}); first {
					p.Record(x.Ticket(), Outcome{20000, seconds(page), seconds(page)})
				}
			}
		}
		e := p.sessions(Other, HTTP2)
		if i := e.interval(); i.low <= math.Log(0.8) && math.Log(0.8) <= i.high {
			held++
		}
		if e.interval().sure() {
			sure++
		}
		r := p.Report(start.Add(1500 * time.Minute))
		if all := r.Overall.Carried + r.Overall.Direct; e.carried+e.direct != all-1 { // the last one is not over
			t.Fatalf("%d sessions, %d connections that were drawn", e.carried+e.direct, all)
		}
		total := uint32(0)
		for _, k := range r.Kinds {
			total += k.Carried + k.Direct
		}
		if total != e.carried+e.direct {
			t.Errorf("%+v are not %d", r.Kinds, e.carried+e.direct)
		}
	}
	t.Logf("%d hold the truth, %d are sure", held, sure)
	if held < least || sure < 95 {
		t.Errorf("%d of %d hold the truth, %d are sure", held, weeksOfPages, sure)
	}
}

// TestNoGroup: without a comparison, nothing is stored.
func TestNoGroup(t *testing.T) {
	p := New(Config{})
	var s Sessions
	x := s.Join(start, clients[0], servers[0], func() Ticket { return p.Draw(start, clients[0], 0) })
	if x.Measured() || x.Arm() != Carried || len(s.young) != 0 {
		t.Errorf("%+v, of %d", x, len(s.young))
	}
}

// TestLateFlow: a flow whose session has already been recorded does not count.
func TestLateFlow(t *testing.T) {
	p := New(Config{Share: 0.5})
	var s Sessions
	x := s.Join(start, clients[0], servers[0], func() Ticket { return p.Draw(start, clients[0], 0) })
	x.Open(waiting)
	x.Waited(start, start.Add(time.Second))
	x.Close(Flow{ServerBytes: 1000})
	for _, over := range s.Age(start.Add(time.Minute)) {
		p.RecordSession(over)
	}
	if x.Measured() {
		t.Error("a flow of a session that is recorded is measured")
	}
	if r := p.Report(start); len(r.Kinds) != 1 || r.Kinds[0].Direct != 1 {
		t.Errorf("%+v", r.Kinds)
	}
}

// TestClasses: every possible record has a class.
func TestClasses(t *testing.T) {
	for _, f := range []Flow{{}, {1, 0, 0, 0}, {math.MaxUint64, math.MaxUint64, 0, 0}, {math.MaxUint64, math.MaxUint64, math.MaxUint32, math.MaxUint32}} {
		if c := f.Class(); c >= Classes || c.String() == "" {
			t.Errorf("%+v is of class %d", f, c)
		}
	}
}

// recorded returns the flows of the lab, with their classes.
func recorded(t testing.TB) (rows []said) {
	t.Helper()
	data, err := os.ReadFile("testdata/classes.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestTrees: the trees give the same answers as in the lab.
func TestTrees(t *testing.T) {
	rows := recorded(t)
	seen := map[string]int{}
	for _, r := range rows {
		if seen[r.class]++; r.flow.Class().String() != r.class {
			t.Errorf("%+v is %v, and %s there", r.flow, r.flow.Class(), r.class)
		}
	}
	if len(seen) != int(Classes) {
		t.Errorf("flows of %v", seen)
	}
}

type said struct {
	flow  Flow
	class string
}

func (s *said) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.flow.ClientBytes, &s.flow.ServerBytes, &s.flow.ClientPackets, &s.flow.ServerPackets, &s.class})
}

// BenchmarkTick measures the work once per minute while nothing happens.
func BenchmarkTick(b *testing.B) {
	p := busy(1)
	for b.Loop() {
		p.Tick(start.Add(later))
	}
}

func BenchmarkClass(b *testing.B) {
	rows := recorded(b)
	rand.New(rand.NewPCG(12, 13)).Shuffle(len(rows), func(i, k int) { rows[i], rows[k] = rows[k], rows[i] })
	var n int
	for b.Loop() {
		n++
		rows[n%len(rows)].flow.Class()
	}
}
