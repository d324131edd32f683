// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const mbit = 1e6 / 8

// A node simulates what a Processor observes, in virtual time: a processor with a real
// cost and a quota, and a path. Both may change.
type node struct {
	p      *Processor
	now    time.Time
	sample Sample

	cost  float64 // true cost in seconds per byte, at the path's rate
	idle  float64 // factor on cost for few bytes: a processor with time to spare is woken for each packet
	quota float64 // share of one processor that the process can get
	path  float64 // rate of the path, bytes per second
	// What clients would move, in bytes per second: new connections through the relay if it
	// takes them, otherwise directly.
	demand float64
	kept   float64 // part of demand that is carried regardless of the decision
	noise  func() float64

	pace     float64 // of the current rehearsal
	until    time.Time
	asked    int // number of rehearsals
	switches int
}

var epoch = time.Unix(1e9, 0)

func newNode(share, cost, guess float64) *node {
	n := &node{now: epoch, cost: cost, idle: 1, quota: 1, path: assumedPath, noise: func() float64 { return 1 }}
	n.p = New(epoch, share, time.Duration(guess*1e12), 1e3)
	return n
}

// step simulates one Interval.
func (n *node) step() {
	seconds := Interval.Seconds()
	offered := min(n.demand, n.path) * n.noise()
	carried := min(n.kept, offered)
	if n.p.Takes() == All {
		carried = offered
	}
	direct := offered - carried
	carried = min(carried, n.quota/n.cost)
	cpu := carried * n.cost * (n.idle - (n.idle-1)*carried/n.path)
	late := time.Duration(0)
	if cpu >= 0.95*n.quota && carried > 0 {
		late = 90 * time.Millisecond
	}
	rehearsal := 0.0
	if n.pace > 0 {
		rehearsal = max(min(n.pace, n.quota)-cpu, 0)
	}
	n.now = n.now.Add(Interval + late)
	seconds += late.Seconds()
	n.sample.CPU += time.Duration((cpu + rehearsal) * seconds * 1e9)
	n.sample.Carried += uint64(carried * seconds)
	n.sample.Path.In.Bytes += uint64((carried + direct) * seconds)
	n.sample.Path.In.Packets += uint64((carried+direct)*seconds/1400) + 1
	n.sample.Path.Out.Bytes += uint64((carried + direct) * seconds / 50)
	n.sample.Path.Out.Packets += uint64((carried+direct)*seconds/2800) + 1

	before := n.p.Takes()
	if n.pace > 0 && !n.now.Before(n.until) {
		pace := n.pace
		n.pace = 0
		n.p.Rehearsed(n.now, pace, min(pace, n.quota))
	}
	if pace := n.p.Tick(n.now, n.sample); pace > 0 {
		n.asked++
		n.pace, n.until = pace, n.now.Add(RehearsalTime)
	}
	if n.p.Takes() != before {
		n.switches++
	}
}

func (n *node) pass(d time.Duration) {
	for end := n.now.Add(d); n.now.Before(end); {
		n.step()
	}
}

func TestTakes(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name           string
		carries, guess float64 // Mbit/s with half of the processor: true, and as measured at the start
		path, demand   float64 // Mbit/s
		quota          float64
		first          Takes // after 2 s without demand
		then, then2    Takes // after 10 s with demand, and another minute later
	}{
		{name: "a PC: faster than any path", carries: 900, guess: 900, path: 50, demand: 1000, quota: 1, first: All, then: All, then2: All},
		{name: "a MIPS node on a fast leg", carries: 8, guess: 8, path: 30, demand: 1000, quota: 1, first: Small, then: Small, then2: Small},
		{name: "a MIPS node on a slow leg learns it by what goes direct", carries: 8, guess: 8, path: 5, demand: 1000, quota: 1, first: Small, then: All, then2: All},
		{name: "it was thought to be slower", carries: 80, guess: 40, path: 30, demand: 1000, quota: 1, first: Small, then: All, then2: All},
		{name: "it was thought to be faster than the path", carries: 20, guess: 200, path: 30, demand: 1000, quota: 1, first: All, then: Small, then2: Small},
		{name: "a quota below the path", carries: 900, guess: 900, path: 50, demand: 1000, quota: 0.02, first: Nothing, then: Nothing, then2: Nothing},
		{name: "a quota above the path, below what is assumed of it", carries: 900, guess: 900, path: 10, demand: 1000, quota: 0.02, first: Nothing, then: All, then2: All},
		{name: "nobody needs it", carries: 8, guess: 8, path: 30, demand: 0, quota: 1, first: Small, then: Small, then2: Small},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const share = 0.5
			n := newNode(share, share/(tc.carries*mbit), share/(tc.guess*mbit))
			n.path, n.quota = tc.path*mbit, tc.quota
			n.pass(2 * second)
			if got := n.p.Takes(); got != tc.first {
				t.Errorf("at first it takes %s, not %s: %+v", got, tc.first, n.p.Status())
			}
			n.demand = tc.demand * mbit
			n.pass(10 * second)
			if got := n.p.Takes(); got != tc.then {
				t.Errorf("then it takes %s, not %s: %+v", got, tc.then, n.p.Status())
			}
			n.pass(time.Minute)
			if got := n.p.Takes(); got != tc.then2 {
				t.Errorf("a minute later it takes %s, not %s: %+v", got, tc.then2, n.p.Status())
			}
		})
	}
}

// TestStarved: a quota begins and ends while connections are carried.
func TestStarved(t *testing.T) {
	n := newNode(0.5, 0.5/(200*mbit), 0.5/(200*mbit))
	n.path, n.demand, n.kept = 20*mbit, 1000*mbit, 1000*mbit
	n.pass(10 * time.Second)
	if n.p.Takes() != All {
		t.Fatalf("at first: %+v", n.p.Status())
	}
	n.quota = 0.02 // 8 Mbit/s
	n.pass(5 * time.Second)
	if n.p.Takes() != Nothing || n.p.Status().Why != WhyBusy {
		t.Errorf("starved: %+v", n.p.Status())
	}
	n.quota = 1
	n.pass(10 * time.Second)
	if n.p.Takes() != All {
		t.Errorf("no more: %+v", n.p.Status())
	}
}

// TestRehearsalWhileCarrying: on a processor that is fast enough to begin, every rehearsal
// leaves the time that carrying takes.
func TestRehearsalWhileCarrying(t *testing.T) {
	cost := 0.5 / (200 * mbit)
	n := newNode(0.5, cost, cost)
	n.path, n.demand = 20*mbit, 1000*mbit
	n.pass(10 * time.Second)
	n.quota = 1.01 * enterSlack * n.p.need()
	asked := n.asked
	for n.now.Before(epoch.Add(5 * time.Minute)) {
		n.step()
		if left := n.quota - n.pace; n.p.Takes() == All && n.pace > 0 && left < 0.1*n.quota {
			t.Fatalf("a rehearsal leaves %g of %g, and what is carried may take %g", left, n.quota, n.p.need())
		}
	}
	if n.asked == asked || n.p.Takes() != All {
		t.Errorf("%d rehearsals, %+v", n.asked-asked, n.p.Status())
	}
}

// TestRehearsalIsNotLoad: the time that rehearsals take is not shown as used, and costs nothing.
func TestRehearsalIsNotLoad(t *testing.T) {
	n := newNode(0.5, 0.5/(200*mbit), 0.5/(200*mbit))
	for n.now.Before(epoch.Add(3 * proofAge)) {
		n.step()
		if st := n.p.Status(); st.Used > 0 {
			t.Fatalf("nothing is carried, and after %d rehearsals: %+v", n.asked, st)
		}
	}
	if n.asked < 3 {
		t.Errorf("%d rehearsals", n.asked)
	}
}

// TestRehearsalForLess: a rehearsal for less than what is needed by its end is followed by another one.
func TestRehearsalForLess(t *testing.T) {
	p := New(epoch, 0.5, 5*time.Millisecond, 1e6/8) // carries 100 Mbit/s
	now, s := epoch, Sample{}
	direct := func(rate float64) (pace float64) {
		for range plateau + 1 {
			now = now.Add(Interval)
			s.Path.In.Bytes += uint64(rate * Interval.Seconds())
			s.Path.In.Packets += uint64(rate * Interval.Seconds() / 1400)
			pace = max(pace, p.Tick(now, s))
		}
		return pace
	}
	small := direct(5 * mbit)
	direct(30 * mbit) // while it rehearses
	if p.Rehearsed(now, small, small); small == 0 || p.Takes() == All {
		t.Errorf("after a rehearsal with a share of %g: %+v", small, p.Status())
	}
	large := direct(30 * mbit)
	if p.Rehearsed(now, large, large); p.Takes() != All {
		t.Errorf("after a rehearsal with a share of %g: %+v", large, p.Status())
	}
}

// TestStarvedIdle: nothing is carried that would show the quota.
func TestStarvedIdle(t *testing.T) {
	n := newNode(0.5, 0.5/(200*mbit), 0.5/(200*mbit))
	n.pass(2 * time.Second)
	n.quota = 0.01
	n.pass(proofAge + 2*time.Second)
	if n.p.Takes() != Nothing {
		t.Errorf("starved while idle: %+v", n.p.Status())
	}
}

// TestStarvedSmall: a node that is too slow for TCP takes no UDP either while it gets no time, however little it uses.
func TestStarvedSmall(t *testing.T) {
	n := newNode(0.5, 0.5/(8*mbit), 0.5/(8*mbit))
	n.path = 30 * mbit
	n.pass(2 * time.Second)
	if n.p.Takes() != Small {
		t.Fatalf("at first: %+v", n.p.Status())
	}
	n.kept, n.demand, n.quota = 5*mbit, 1000*mbit, 0.1
	n.pass(5 * time.Second)
	if n.p.Takes() != Nothing {
		t.Errorf("starved: %+v", n.p.Status())
	}
}

// TestFewBytes: a byte costs several times as much while there are few, which says nothing about the cost of many.
func TestFewBytes(t *testing.T) {
	cost := 0.5 / (40 * mbit)
	n := newNode(0.5, cost, cost)
	n.path, n.idle = 20*mbit, 4
	n.demand = 1000 * mbit
	n.pass(10 * time.Second)
	n.demand = 2 * mbit // pages, calls
	n.pass(10 * time.Minute)
	if n.p.Takes() != All {
		t.Errorf("it carries twice what the path does: %+v", n.p.Status())
	}
	n.demand = 1000 * mbit
	n.pass(time.Minute)
	if n.p.Takes() != All {
		t.Errorf("it carries twice what the path does, and has: %+v", n.p.Status())
	}
}

// TestOther: what the process moves besides says nothing about the cost of what it carries.
func TestOther(t *testing.T) {
	n := newNode(0.5, 0.5/(40*mbit), 0.5/(40*mbit))
	n.path, n.demand = 20*mbit, 1000*mbit
	n.pass(10 * time.Second)
	for end := n.now.Add(time.Minute); n.now.Before(end); n.step() {
		n.sample.Other += 1e6
		n.sample.CPU += Interval / 5
	}
	if st := n.p.Status(); st.Takes != "all" || math.Abs(st.Carries/40e6-1) > 0.05 || math.Abs(st.Used-0.45) > 0.01 {
		t.Errorf("it carries twice what the path does: %+v", st)
	}
	for end := n.now.Add(5 * time.Second); n.now.Before(end); n.step() {
		n.sample.Other += 1e6
		n.sample.CPU += Interval / 2
	}
	if st := n.p.Status(); st.Takes != "nothing" {
		t.Errorf("it has no time: %+v", st)
	}
}

// TestStarvedWithLittle: what little a starved node carries says nothing about the cost of much.
func TestStarvedWithLittle(t *testing.T) {
	p := New(epoch, 0.5, 5*time.Millisecond, 1e6/8) // carries 100 Mbit/s
	var s Sample
	for i := range 1000 {
		s.CPU += 2 * time.Millisecond
		s.Carried += 1000
		p.Tick(epoch.Add(time.Duration(i)*(Interval+2*lateness)), s)
	}
	if st := p.Status(); math.Abs(st.Carries/100e6-1) > 0.05 {
		t.Errorf("%+v", st)
	}
}

// TestFewBytesOfMany: a cost that intervals with few bytes do not show is noticed when there are many.
func TestFewBytesOfMany(t *testing.T) {
	n := newNode(0.5, 0.5/(15*mbit), 0.5/(40*mbit))
	n.path, n.demand = 20*mbit, 1000*mbit
	n.pass(20 * time.Second)
	if n.p.Takes() == All {
		t.Errorf("it was thought to take less than half of what it does: %+v", n.p.Status())
	}
}

// TestOverLoad: a path that has shown little turns out to be faster than the processor.
func TestOverLoad(t *testing.T) {
	n := newNode(0.5, 0.5/(8*mbit), 0.5/(8*mbit))
	n.path, n.demand = 2*mbit, 100*mbit // a slow server
	n.pass(10 * time.Second)
	if n.p.Takes() != All {
		t.Fatalf("at first: %+v", n.p.Status())
	}
	n.path = 30 * mbit
	n.pass(5 * time.Second)
	if n.p.Takes() == All {
		t.Errorf("it is slower than the path: %+v", n.p.Status())
	}
	n.pass(time.Minute)
	if n.p.Takes() != Small || n.p.Status().Path < 29e6 {
		t.Errorf("what went direct has told nothing: %+v", n.p.Status())
	}
}

// TestOthersOnThePath: a path that others use at more than this processor can carry shows it before the relay is overloaded.
func TestOthersOnThePath(t *testing.T) {
	n := newNode(0.5, 0.5/(8*mbit), 0.5/(8*mbit))
	n.path, n.demand = 2*mbit, 2*mbit
	n.pass(10 * time.Second)
	if n.p.Takes() != All {
		t.Fatalf("at first: %+v", n.p.Status())
	}
	for end := n.now.Add(10 * time.Second); n.now.Before(end); n.step() {
		others := 30 * mbit * Interval.Seconds()
		n.sample.Path.In.Bytes += uint64(others)
		n.sample.Path.In.Packets += uint64(others / 1400)
	}
	if n.p.Takes() != Small {
		t.Errorf("it is slower than the path: %+v", n.p.Status())
	}
}

// TestPathShown: bulk traffic of either direction shows a path's rate; small packets, single bursts and slow streams do not.
func TestPathShown(t *testing.T) {
	for _, tc := range []struct {
		name    string
		in, out Count  // in each interval
		burst   uint64 // bytes in one interval of eight
		shown   bool
	}{
		{name: "a download", in: Count{500e3, 400}, out: Count{10e3, 200}, shown: true},
		{name: "an upload", in: Count{10e3, 200}, out: Count{500e3, 400}, shown: true},
		{name: "small packets", in: Count{60e3, 300}},
		{name: "small packets and bursts", in: Count{60e3, 300}, burst: 1e6},
		{name: "small packets, and large ones the other way", in: Count{50e3, 40}, out: Count{500e3, 2500}},
		{name: "a radio station", in: Count{10e3, 7}},
	} {
		p := New(epoch, 0.5, time.Microsecond, 1)
		var s Sample
		for i := range 1000 {
			s.Path.In = Count{s.Path.In.Bytes + tc.in.Bytes, s.Path.In.Packets + tc.in.Packets}
			s.Path.Out = Count{s.Path.Out.Bytes + tc.out.Bytes, s.Path.Out.Packets + tc.out.Packets}
			if i%8 == 0 {
				s.Path.In.Bytes += tc.burst
				s.Path.In.Packets += tc.burst / 1400
			}
			p.Tick(epoch.Add(time.Duration(i)*Interval), s)
		}
		if st := p.Status(); (st.Path > 0) != tc.shown {
			t.Errorf("%s: a path of %.1f Mbit/s", tc.name, st.Path/1e6)
		}
	}
}

// TestAge: the rate of a path that has become slower is learnt in the end.
func TestAge(t *testing.T) {
	n := newNode(0.5, 0.5/(15*mbit), 0.5/(15*mbit))
	n.path, n.demand = 30*mbit, 1000*mbit
	n.pass(time.Minute)
	if n.p.Takes() != Small {
		t.Fatalf("at first: %+v", n.p.Status())
	}
	n.path = 10 * mbit
	for range 2 { // alone, and together with later ones
		n.pass(3 * pathAge / 4)
		if n.p.Takes() != Small {
			t.Errorf("forgotten after %v: %+v", n.now.Sub(epoch), n.p.Status())
		}
	}
	n.pass(pathAge)
	if n.p.Takes() != All {
		t.Errorf("never forgotten: %+v", n.p.Status())
	}
}

func TestUnjudged(t *testing.T) {
	n := newNode(0, 1e-3, 1e-3)
	n.demand = 1000 * mbit
	n.pass(time.Minute)
	if n.p.Takes() != All || n.asked > 0 || n.p.Status().Why != "" {
		t.Errorf("%d rehearsals, %+v", n.asked, n.p.Status())
	}
	n.p.SetShare(0.5)
	if n.pass(5 * time.Second); n.p.Takes() != Small {
		t.Errorf("judged from now on: %+v", n.p.Status())
	}
}

// TestNoFlapping: whatever happens, decisions and rehearsals are not too frequent.
func TestNoFlapping(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		cost := 0.5 / (math.Exp(r.Float64()*5) * 3 * mbit)
		n := newNode(0.5, cost, cost*math.Exp(r.Float64()*2-1))
		n.noise = func() float64 { return 0.5 + r.Float64()/2 }
		const hours = 2
		for end := epoch.Add(hours * time.Hour); n.now.Before(end); {
			switch r.IntN(4) {
			case 0:
				n.quota = math.Exp(-5 * r.Float64())
			case 1:
				n.path = math.Exp(r.Float64()*5) * mbit
			case 2:
				n.demand = math.Exp(r.Float64()*7-2) * mbit
			case 3:
				n.kept = r.Float64() * n.demand
			}
			n.pass(time.Duration(r.ExpFloat64() * float64(20*time.Second)))
		}
		// The pause after each failure doubles up to maxPause, and starts over when a path's
		// rate becomes known, or after a calm time.
		limit := 2 * (hours*int(time.Hour/maxPause) + 40)
		if n.switches > limit {
			t.Errorf("seed %d: %d switches in %d hours, more than %d", seed, n.switches, hours, limit)
		}
		if most := hours * int(time.Hour/doubtPause); n.asked > most {
			t.Errorf("seed %d: %d rehearsals, more than %d", seed, n.asked, most)
		}
	}
}

// TestNeverSlower: taken connections are carried at the speed of the path, except for the
// time that detection takes.
func TestNeverSlower(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		cost := 0.5 / (math.Exp(r.Float64()*5) * 3 * mbit)
		guess := cost * math.Exp(r.Float64()-0.5)
		n := newNode(0.5, cost, guess)
		n.path, n.demand = math.Exp(r.Float64()*4)*mbit, 1000*mbit
		n.quota = math.Exp(-4 * r.Float64())
		slower := time.Duration(0)
		const span = 10 * time.Minute
		for end := epoch.Add(span); n.now.Before(end); {
			taken := n.p.Takes() == All && n.quota/n.cost < 0.97*n.path
			before := n.now
			n.step()
			if taken {
				slower += n.now.Sub(before)
			}
		}
		if slower > 6*time.Second {
			t.Errorf("seed %d: slower than the path for %v: path %.1f Mbit/s, processor %.1f, quota %.3f: %+v",
				seed, slower, n.path/mbit, 0.5/n.cost/mbit, n.quota, n.p.Status())
		}
		// A cost that was overestimated is never tried, and therefore never corrected.
		if able := min(0.5, n.quota) / max(cost, guess); able > 1.5*n.path && n.path > 2*bulkRate && n.p.Takes() != All {
			t.Errorf("seed %d: path %.1f Mbit/s, processor %.1f, and nothing is carried: %+v", seed, n.path/mbit, able/mbit, n.p.Status())
		}
	}
}

// TestBite: a rehearsal uses the share that it asks for, if available, and pauses in any case.
func TestBite(t *testing.T) {
	for _, available := range []float64{1, 0.5, 0.1} {
		for _, pace := range []float64{0.02, 0.1, 0.4, 0.7} {
			passed, spent, longest := time.Duration(0), time.Duration(0), time.Duration(0)
			for passed < RehearsalTime {
				bite := Bite(pace, passed, spent)
				spent += bite
				longest = max(longest, bite)
				passed += time.Duration(float64(bite)/available) + BitePause
			}
			if got := spent.Seconds() / passed.Seconds(); available == 1 && math.Abs(got/pace-1) > 0.03 {
				t.Errorf("of %g, at a pace of %g it uses %g", available, pace, got)
			}
			if most := time.Duration(2 * pace / (1 - pace) * float64(BitePause)); longest > most {
				t.Errorf("of %g, at a pace of %g there was no pause in %v of processor time, more than %v", available, pace, longest, most)
			}
		}
	}
}

func FuzzProcessor(f *testing.F) {
	// The clock stands still, and goes back.
	f.Add([]byte{25, 0, 0, 0, 0, 0, 0, 1, 25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200, 9, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := New(epoch, 0.5, time.Microsecond, 100)
		var s Sample
		now := epoch
		for ; len(b) >= 8; b = b[8:] {
			now = now.Add(time.Duration(int8(b[0])) * 10 * time.Millisecond) // also backwards
			s.CPU += time.Duration(b[1]) * time.Millisecond
			s.Carried += uint64(b[2]) << (b[3] % 64)
			s.Path.In.Bytes += uint64(b[4]) << (b[5] % 64)
			s.Path.In.Packets += uint64(b[6])
			if pace := p.Tick(now, s); pace > 0 && b[7]&1 == 1 {
				p.Rehearsed(now, pace, float64(b[7])/128)
			}
			st := p.Status()
			for _, x := range []float64{st.Carries, st.Path, st.Used} {
				if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
					t.Fatalf("%+v", st)
				}
			}
			if (st.Why == "") != (p.Takes() == All) {
				t.Fatalf("%+v", st)
			}
		}
	})
}

// TestFills: what the process moves fills a path that has shown its rate, whether it is carried or goes direct.
func TestFills(t *testing.T) {
	n := newNode(0, 1e-9, 1e-9)
	n.path = 20 * mbit
	is := func(what string, demand float64, fills bool) {
		t.Helper()
		n.demand = demand * mbit
		if n.pass(3 * time.Second); n.p.Fills() != fills {
			t.Errorf("%s: %v", what, n.p.Fills())
		}
	}
	is("nothing yet", 0, false)
	is("all that it can", 100, true)
	is("a little", 2, false)
	is("most", 15, true)
	is("no longer", 0, false)
	for range 12 {
		n.sample.Other += uint64(20 * mbit / 4)
		n.step()
	}
	if !n.p.Fills() {
		t.Error("direct connections do not count")
	}
}
