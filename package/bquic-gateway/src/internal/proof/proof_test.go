// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
	"unsafe"
)

var start = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// A node simulates a node in normal use: perHour new connections on average, three times as many in
// the evening as at night, when everything takes up to twice as long. Sizes have a Pareto distribution
// with a shape of 1.1, from 3 KB to 100 MB, as Crovella and Bestavros found for transfers. A connection
// takes its round trips, and its size at the path's rate. Both vary between connections by a factor of
// two (a standard deviation of the logarithm of 0.7), and one in fifty takes ten times as long. Carried
// connections take factor times as long.
type node struct {
	rnd     *rand.Rand
	proof   *Proof
	perHour float64
	factor  float64
	weather float64 // how much longer all connections take, as a logarithm
	lost    float64 // share of all without an answer
	silent  float64 // share of the carried without an answer, besides those

	waited, direct float64 // seconds waited, and if all had been direct
	turned         time.Duration
	doubted        time.Duration // the last time at which there was a doubt
	every          time.Duration // between two calls of Tick
}

func newNode(seed uint64, c Config, perHour, factor float64) *node {
	return &node{rnd: rand.New(rand.NewPCG(seed, 1)), proof: New(c), perHour: perHour, factor: factor, lost: 0.01, turned: -1, doubted: -1, every: time.Minute}
}

var clients = [...]netip.Addr{
	netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.3.9"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("2001:db8::7"),
}

// run simulates the time between from and to, minute by minute.
func (n *node) run(from, to time.Duration) {
	for at := from; at < to; at += time.Minute {
		now := start.Add(at)
		busy := 1 + 0.5*math.Sin(2*math.Pi*(at.Hours()-13)/24)
		for expected := n.perHour / 60 * busy; expected > 0; expected-- {
			if expected >= 1 || n.rnd.Float64() < expected {
				n.connection(now, busy)
			}
		}
		if at%n.every == 0 {
			n.proof.Tick(now)
		}
		if n.proof.spared && n.turned < 0 {
			n.turned = at
		}
		if w := n.proof.window(now); w.share > w.unsure && !n.proof.untried(w) {
			n.doubted = at
		}
	}
}

func (n *node) connection(now time.Time, busy float64) {
	bytes := min(3e3/math.Pow(n.rnd.Float64(), 1/1.1), 1e8)
	first := 0.12 * busy * math.Exp(0.7*n.rnd.NormFloat64())
	all := 2*first + bytes/(1.5e6/busy)*math.Exp(0.7*n.rnd.NormFloat64())
	if n.rnd.IntN(50) == 0 {
		all *= 10
	}
	first, all = first*math.Exp(n.weather), all*math.Exp(n.weather)
	lost := n.rnd.Float64() < n.lost
	t := n.proof.Draw(now, clients[n.rnd.IntN(len(clients))], n.rnd.Uint32())
	n.direct += all
	if t.Arm == Carried {
		first, all = first*n.factor, all*n.factor
		lost = lost || n.rnd.Float64() < n.silent
	}
	n.waited += all
	o := Outcome{uint64(bytes), seconds(first), seconds(all)}
	if lost {
		o = Outcome{}
	}
	n.proof.Record(t, o)
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

const (
	day   = 24 * time.Hour
	weeks = 100
)

// least is how many of 100 intervals must contain the true value. With 95 on average, fewer have a probability of 1 in 90.
const least = 90

func TestIntervalHoldsTheTruth(t *testing.T) {
	for _, factor := range []float64{0.8, 1, 1.25} {
		truth := math.Log(factor)
		held := map[string]int{}
		excluded, turned := 0, 0
		for seed := range uint64(weeks) {
			n := newNode(seed, Config{Share: DefaultShare, Auto: factor == 1}, 200, factor)
			n.every = 10 * time.Minute
			n.run(0, 7*day)
			for name, e := range map[string]effect{
				"all":                     n.proof.compare(all, complete),
				"all, first byte":         n.proof.compare(all, firstByte),
				"0.1 to 1 MB":             n.proof.compare(part{1, -1, -1}, complete),
				"0.1 to 1 MB, first byte": n.proof.compare(part{1, -1, -1}, firstByte),
				"evening":                 n.proof.compare(part{-1, 3, -1}, complete),
				"of a prefix":             n.proof.compare(part{-1, -1, 2}, complete),
			} {
				if s := e.interval(); s.low <= truth && truth <= s.high {
					held[name]++
				}
			}
			e := n.proof.compare(part{1, -1, -1}, throughput)
			if s := e.interval(); s.low <= -truth && -truth <= s.high {
				held["throughput"]++
			}
			if n.proof.compare(all, complete).interval().sure() {
				excluded++
			}
			if n.turned >= 0 {
				turned++
			}
		}
		t.Logf("factor %v: held %v, sure %d, turned %d", factor, held, excluded, turned)
		for name, times := range held {
			if times < least {
				t.Errorf("factor %v, %s: %d of %d intervals hold the truth", factor, name, times, weeks)
			}
		}
		if factor != 1 && excluded < 95 {
			t.Errorf("factor %v: %d of %d are sure of it", factor, excluded, weeks)
		}
		if turned > 5 {
			t.Errorf("no difference, and auto turned in %d of %d weeks", turned, weeks)
		}
	}
}

// TestWhyLogarithms draws 2,000 and 30 times from a Pareto distribution with a shape of 1.5, whose variance is
// infinite. The 2,000 take 0.8 times as long.
func TestWhyLogarithms(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	time := func() float64 { return 0.1 / math.Pow(rnd.Float64(), 1/1.5) }
	var plain, logs int
	const trials = 1000
	for range trials {
		var p, l strata
		var pm, lm [2]moments
		counts := [2]uint32{2000, 30}
		for arm, factor := range []float64{0.8, 1} {
			for i := range counts[arm] {
				x := time() * factor
				pm[arm].add(i+1, x)
				lm[arm].add(i+1, math.Log(x))
			}
		}
		p.add(counts, pm)
		l.add(counts, lm)
		hold := func(s strata, truth float64) int {
			v, _ := s.variances() // Welch's alone
			e := join([]strata{s})
			e.variance = (v[Carried] + v[Direct]) / (s.weight * s.weight)
			if i := e.interval(); i.low <= truth && truth <= i.high {
				return 1
			}
			return 0
		}
		plain += hold(p, 0.3*(0.8-1)) // the mean is 0.1*1.5/(1.5-1)
		logs += hold(l, math.Log(0.8))
	}
	t.Logf("of %d intervals, %d of plain means and %d of logarithms hold the truth", trials, plain, logs)
	if plain >= trials*80/100 || logs < trials*90/100 {
		t.Errorf("of %d intervals, %d of plain means and %d of logarithms hold the truth", trials, plain, logs)
	}
}

// TestIntervalOfFew: one connection in ten waits for news, for a minute or so. Some sixty that go direct, and there may be
// few of these, or none, among them: their own variance is then far too small.
func TestIntervalOfFew(t *testing.T) {
	const trials = 2000
	held, slower := 0, 0
	for seed := range uint64(trials) {
		rnd := rand.New(rand.NewPCG(seed, 78))
		p := New(Config{Share: DefaultShare})
		for i := range 100 * (1 + rnd.IntN(12)) {
			now := start.Add(time.Duration(i) * time.Minute)
			tk := p.Draw(now, clients[0], rnd.Uint32())
			wait := math.Exp(0.8*rnd.NormFloat64() - 1)
			if rnd.Float64() < 0.1 {
				wait = 60 * math.Exp(0.7*rnd.NormFloat64())
			}
			p.Record(tk, Outcome{1000, seconds(wait / 2), seconds(wait)})
		}
		i := p.compare(all, complete).interval()
		if i.low <= 0 && i.high >= 0 {
			held++
		}
		if i.low > 0 {
			slower++
		}
	}
	t.Logf("of %d intervals, %d hold the truth, %d are certain that carrying is slower", trials, held, slower)
	if held < trials*95/100 || slower > trials*25/1000 {
		t.Errorf("of %d intervals, %d hold the truth, %d are certain that carrying is slower", trials, held, slower)
	}
}

// TestAuto simulates a node of some twenty people (1,000 new connections an hour), and a quiet one, whose carried
// connections take factor times as long. Most turn within an hour: of a quiet node's few connections, not all.
func TestAuto(t *testing.T) {
	for _, tc := range []struct {
		perHour, factor float64
		late            int // at most, of 100
	}{{1000, 1.6, 5}, {1000, 2, 5}, {300, 1.6, 5}, {100, 2, 5}, {100, 1.6, 40}} {
		late := 0
		var week float64
		for seed := range uint64(weeks) {
			n := newNode(seed, Config{Share: DefaultShare, Auto: true}, tc.perHour, tc.factor)
			n.run(18*time.Hour, 19*time.Hour)
			if n.turned < 0 {
				late++
			}
			if seed >= 5 { // chance decides only the first hour, and more weeks take long
				continue
			}
			n.run(19*time.Hour, 18*time.Hour+7*day)
			week += 100 * (n.waited/n.direct - 1) / 5
		}
		t.Logf("%v: %d of %d had not turned after an hour; the week cost %.2f %%", tc, late, weeks, week)
		if late > tc.late {
			t.Errorf("%v: %d of %d had not turned after an hour", tc, late, weeks)
		}
		if week > 2 {
			t.Errorf("%v: it cost %.1f %% of a week", tc, week)
		}
	}
}

// TestAutoAfterGoodDays: after a week in which carrying helped, something on the way changes at 10:00: carried
// connections take factor times as long, or a share of them gets no answer. Until then, one in a hundred goes direct.
func TestAutoAfterGoodDays(t *testing.T) {
	const since = 7*day + 10*time.Hour
	for _, tc := range []struct {
		perHour, factor, silent float64
		within                  time.Duration
	}{
		{1000, 1.6, 0, time.Hour}, {1000, 2, 0, time.Hour}, {100, 1.6, 0, 9 * time.Hour}, {100, 2, 0, 5 * time.Hour},
		{1000, 0.8, 0.3, time.Hour}, {1000, 0.8, 1, time.Hour}, {100, 0.8, 1, 2 * time.Hour},
	} {
		var took []time.Duration
		for seed := range uint64(10) {
			n := newNode(100+seed, Config{Share: DefaultShare, Auto: true}, tc.perHour, 0.8)
			n.every = 10 * time.Minute
			if n.run(0, since); n.turned >= 0 || n.doubted >= 0 {
				t.Errorf("%v, seed %d: turned after %v, in doubt after %v, though carrying helped", tc, seed, n.turned, n.doubted)
			}
			n.turned, n.factor, n.silent, n.every = -1, tc.factor, tc.silent, time.Minute
			for at := since; n.turned < 0 && at < since+7*day; at += time.Hour {
				n.run(at, at+time.Hour)
			}
			took = append(took, n.turned-since)
		}
		slices.Sort(took)
		t.Logf("%v: turned after %v", tc, took)
		if took[0] < 0 || took[len(took)-1] > tc.within {
			t.Errorf("%v: turned after %v", tc, took)
		}
	}
}

// TestAutoAfterRestarts: a node that restarts each night, and whenever its operator wonders why it has become slow, notices harm as soon.
func TestAutoAfterRestarts(t *testing.T) {
	var took []time.Duration
	for seed := range uint64(10) {
		n := newNode(400+seed, Config{Share: DefaultShare, Auto: true}, 1000, 0.8)
		n.every = 10 * time.Minute
		restart := func(at time.Duration) {
			again := New(n.proof.config)
			if err := again.Restore(n.proof.Append(nil), start.Add(at)); err != nil {
				t.Fatal(err)
			}
			n.proof = again
		}
		for at := time.Duration(0); at < 7*day; at += day {
			n.run(at, at+4*time.Hour)
			restart(at + 4*time.Hour)
			n.run(at+4*time.Hour, at+day)
		}
		const since = 7*day + 14*time.Hour
		n.run(7*day, 7*day+4*time.Hour)
		restart(7*day + 4*time.Hour)
		if n.run(7*day+4*time.Hour, since); n.turned >= 0 || n.doubted >= 0 {
			t.Errorf("seed %d: turned after %v, in doubt after %v, though carrying helped", seed, n.turned, n.doubted)
		}
		n.factor, n.every = 2, time.Minute
		at := since
		for ; n.doubted < 0 && at < since+12*time.Hour; at += time.Minute {
			n.run(at, at+time.Minute)
		}
		restart(at)
		for ; n.turned < 0 && at < since+day; at += time.Minute {
			n.run(at, at+time.Minute)
		}
		took = append(took, at-since)
	}
	slices.Sort(took)
	t.Logf("turned after %v", took)
	if took[len(took)-1] > time.Hour {
		t.Errorf("turned after %v", took)
	}
}

// TestWeather: carrying helps, and after a week everything takes longer on some days and in some hours, whichever way it goes. Doubts come and
// go; they cost little, and nothing turns.
func TestWeather(t *testing.T) {
	const spread = 0.3 // standard deviation of the days' logarithms, and of the hours'
	for _, tc := range []struct{ perHour, factor, most float64 }{{1000, 0.8, 0.6}, {100, 0.8, 1.5}, {1000, 0.95, 0.6}} {
		var cost float64
		doubts := 0
		const nodes = 4
		for seed := range uint64(nodes) {
			n := newNode(300+seed, Config{Share: DefaultShare, Auto: true}, tc.perHour, tc.factor)
			n.every = 10 * time.Minute
			n.run(0, 7*day)
			n.waited, n.direct = 0, 0
			hours := 0.0
			for at := 7 * day; at < 14*day; at += day {
				today := spread * n.rnd.NormFloat64()
				for hour := at; hour < at+day; hour += time.Hour {
					hours = 0.7*hours + 0.7*spread*n.rnd.NormFloat64()
					n.weather = today + hours
					n.run(hour, hour+time.Hour)
				}
				if n.doubted >= at {
					doubts++
				}
			}
			cost += 100 * (n.waited/n.direct/tc.factor - 1) / nodes
			if n.turned >= 0 {
				t.Errorf("%v, seed %d: turned after %v, though carrying helped", tc, seed, n.turned)
			}
		}
		t.Logf("%v: doubts on %d of %d days; it cost %.2f %%", tc, doubts, 7*nodes, cost)
		if cost > tc.most {
			t.Errorf("%v: it cost %.2f %%", tc, cost)
		}
	}
}

// TestServersAway: carrying helps, and after a week half of all connections get no answer for some hours, whichever way they go. That is a
// reason for a doubt, and no harm.
func TestServersAway(t *testing.T) {
	const since, hours = 7*day + 10*time.Hour, 4 * time.Hour
	turned, doubted := 0, 0
	const nodes = 20
	for seed := range uint64(nodes) {
		n := newNode(500+seed, Config{Share: DefaultShare, Auto: true}, 300, 0.8)
		n.every = time.Hour
		n.run(0, since)
		n.lost, n.every, n.doubted = 0.5, time.Minute, -1
		n.run(since, since+hours)
		n.lost, n.every = 0.01, 10*time.Minute
		if n.run(since+hours, since+day); n.turned >= 0 {
			turned++
		}
		if n.doubted >= 0 {
			doubted++
		}
	}
	t.Logf("of %d, %d turned, and %d doubted", nodes, turned, doubted)
	if turned > 0 || doubted < nodes {
		t.Errorf("of %d, %d turned, and %d doubted", nodes, turned, doubted)
	}
}

// TestDoubt: what begins a doubt, how many are drawn meanwhile, and what ends it.
func TestDoubt(t *testing.T) {
	n := newNode(1, Config{Share: DefaultShare, Auto: true}, 1000, 0.8)
	share := func() float64 { return float64(n.proof.windows[n.proof.newest%Days].share) / DefaultShare }
	now := 2*day + 10*time.Hour
	if n.run(0, now); math.Abs(share()-sureShare) > 1e-3 {
		t.Fatalf("after two days: %v of the usual share", share())
	}
	until := func(what string, want float64) {
		t.Helper()
		for range 6 * 60 {
			n.run(now, now+time.Minute)
			if now += time.Minute; math.Abs(share()-want) < 1e-3 {
				return
			}
		}
		t.Fatalf("%s: %v of the usual share, not %v", what, share(), want)
	}
	n.weather = 1
	until("everything takes longer", doubtShare)
	again := New(n.proof.config)
	if err := again.Restore(n.proof.Append(nil), start.Add(now)); err != nil {
		t.Errorf("during a doubt: %v", err)
	}
	until("carrying still helps", sureShare)
	for range 120 {
		n.run(now, now+time.Minute)
		if now += time.Minute; share() > 1 {
			t.Fatal("a doubt about what is usual now")
		}
	}
	n.factor = 2
	until("carrying harms", doubtShare)
	if n.run(now, now+time.Hour); n.turned < 0 {
		t.Error("carrying harms, and auto has not turned after an hour")
	}
}

// TestMomentsJoin: the moments of two samples together are those of all values.
func TestMomentsJoin(t *testing.T) {
	var one, other, both moments
	for i, x := range []float64{3, 1, 4, 1, 5, 9, 2, 6} {
		if both.add(uint32(i+1), x); i < 3 {
			one.add(uint32(i+1), x)
		} else {
			other.add(uint32(i-2), x)
		}
	}
	var none moments
	one.join(3, 0, none)
	one.join(3, 5, other)
	none.join(0, 8, both)
	for _, m := range []moments{one, none} {
		if math.Abs(float64(m.mean-both.mean)) > 1e-5 || math.Abs(float64(m.m2-both.m2)) > 1e-4 {
			t.Errorf("%v, not %v", m, both)
		}
	}
}

// TestUsual: of what is usual at an hour, the last day is half.
func TestUsual(t *testing.T) {
	p := New(Config{Share: DefaultShare})
	const days = 10
	for d := range days {
		now := start.Add(time.Duration(d) * day)
		for i := range 1000 {
			x := float64(i % 2 * 2) // a mean and a variance of 1
			if d == days-1 {
				x += 4
			}
			p.Record(p.Draw(now, clients[0], math.MaxUint32), Outcome{1000, time.Millisecond, seconds(math.Exp(x))})
		}
		p.Draw(now.Add(time.Hour), clients[0], 0)
	}
	u := p.usual[0][0]
	if mean, variance := u.by.mean, u.by.m2/float32(u.n); math.Abs(float64(mean)-3) > 0.1 || math.Abs(float64(variance)-5) > 0.1 {
		t.Errorf("a mean of %v and a variance of %v", mean, variance)
	}
}

func TestAutoReturns(t *testing.T) {
	for seed := range uint64(20) {
		n := newNode(seed, Config{Share: DefaultShare, Auto: true}, 1000, 1.6)
		n.run(0, 6*time.Hour)
		n.factor = 0.8
		if n.run(6*time.Hour, 8*day); n.turned < 0 || n.proof.spared {
			t.Errorf("seed %d: turned after %v, and is it still: %v", seed, n.turned, n.proof.spared)
		}
		if n.proof.Set(Config{Share: DefaultShare}); n.proof.spared {
			t.Error("auto was switched off, and connections go direct")
		}
	}
}

func TestAutoOnSilence(t *testing.T) {
	n := newNode(1, Config{Share: DefaultShare, Auto: true}, 1000, 1)
	n.silent = 0.3
	if n.run(0, 12*time.Hour); n.turned < 0 || n.proof.verdict() != Spared {
		t.Errorf("a third of the carried connections get no answer: %+v", n.proof.answers(0))
	}
}

// TestShares: the sizes of the groups, and the share once the result is certain.
func TestShares(t *testing.T) {
	p := New(Config{Share: 0.1})
	count := func(p *Proof, now time.Time) (n [3]float64) {
		rnd := rand.New(rand.NewPCG(3, 4))
		for range 100000 {
			n[p.Draw(now, clients[0], rnd.Uint32()).Arm] += 1e-5
		}
		return n
	}
	check := func(what string, got, want [3]float64) {
		t.Helper()
		for arm := range want {
			if math.Abs(got[arm]-want[arm]) > 0.005 {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	record := func(p *Proof, now time.Time, n int, slower float64) {
		for range n {
			tk := p.Draw(now, clients[0], rnd.Uint32())
			factor := 1.0
			if tk.Arm == Carried {
				factor = slower
			}
			p.Record(tk, Outcome{1000, seconds(0.1 * factor), seconds(factor * (0.5 + rnd.Float64()))})
		}
	}
	check("unsure", count(p, start), [3]float64{0.9, 0.1, 0})
	auto := New(Config{Share: 0.1, Auto: true})
	check("untried, with auto", count(auto, start), [3]float64{0.5, 0.5, 0})
	check("untried a day later, with auto", count(auto, start.Add(day)), [3]float64{0.5, 0.5, 0})
	record(auto, start.Add(day), 200, 1)
	if auto.Tick(start.Add(day)) {
		t.Error("no difference, and auto turned")
	}
	check("no great harm, with auto", count(auto, start.Add(day)), [3]float64{0.6, 0.4, 0})
	record(auto, start.Add(day), 200, 1)
	check("unsure a day later, with auto", count(auto, start.Add(2*day)), [3]float64{0.6, 0.4, 0})
	check("the largest share, with auto", count(New(Config{Share: 0.3, Auto: true}), start), [3]float64{0.5, 0.5, 0})
	record(p, start, 4000, 2)
	check("sure, and the day is not over", count(p, start), [3]float64{0.9, 0.1, 0})
	check("sure, a day later", count(p, start.Add(day)), [3]float64{0.98, 0.02, 0})
	p.Set(Config{Share: 0.1})
	if p.Tick(start.Add(day)) {
		t.Error("auto turned, and is off")
	}
	p.Set(Config{Share: 0.1, Auto: true})
	if !p.Tick(start.Add(day)) {
		t.Error("auto did not turn")
	}
	check("spared", count(p, start.Add(day)), [3]float64{0.02, 0.1, 0.88})
	p.Set(Config{})
	check("switched off", count(p, start.Add(day)), [3]float64{1, 0, 0})
	if p.Draw(start, clients[0], 0).Measured {
		t.Error("switched off, and measured")
	}
}

// TestSharesDoNotMix: on a slow day many are drawn, on a fast day few. Pooled, direct connections would look slow.
func TestSharesDoNotMix(t *testing.T) {
	p := New(Config{Share: 0.5})
	rnd := rand.New(rand.NewPCG(7, 8))
	for d, slow := range []float64{10, 1} {
		now := start.Add(time.Duration(d) * day)
		p.Set(Config{Share: []float64{0.5, 0.02}[d]})
		for range 5000 {
			tk := p.Draw(now, clients[0], rnd.Uint32())
			p.Record(tk, Outcome{1000, time.Millisecond, seconds(slow * (0.5 + rnd.Float64()))})
		}
	}
	if c := p.Report(start.Add(day)).Overall.Complete; c == nil || math.Abs(c.Change) > 0.1 {
		t.Errorf("no difference, but %+v", c)
	}
}

// TestVerdictOfBoth: connections and page loads are the result. While they say the opposite, none is certain.
func TestVerdictOfBoth(t *testing.T) {
	for _, c := range []struct {
		connections, pages float64
		want               Verdict
	}{{0.5, 0.5, Faster}, {0.5, 1, Faster}, {0.5, 2, Unsure}, {2, 2, Slower}, {2, 1, Slower}, {2, 0.5, Unsure}} {
		p := New(Config{Share: 0.5})
		rnd := rand.New(rand.NewPCG(14, 15))
		for range 1000 {
			s := &Session{ticket: p.Draw(start, clients[0], rnd.Uint32()), began: start}
			connection, page := math.Exp(0.1*rnd.NormFloat64()), 5*math.Exp(0.1*rnd.NormFloat64())
			if s.Arm() == Carried {
				connection, page = connection*c.connections, page*c.pages
			}
			p.Record(s.Ticket(), Outcome{20000, seconds(connection), seconds(connection)})
			s.Waited(start, start.Add(seconds(page)))
			s.Close(Flow{4000, 200000, 20, 150})
			p.RecordSession(s)
		}
		r := p.Report(start)
		if r.Pages.Carried == 0 {
			t.Fatal("no pages")
		}
		if r.Verdict != c.want {
			t.Errorf("%+v: %v", c, r.Verdict)
		}
	}
}

// TestReportShare: operators read the share that they have set, not 0.05000000074505806.
func TestReportShare(t *testing.T) {
	for _, want := range []float64{0.01, 0.05, 0.07, 0.5} {
		if got := New(Config{Share: want}).Report(start).Share; got != want {
			t.Errorf("%v: %v", want, got)
		}
	}
}

func TestAging(t *testing.T) {
	p := New(Config{Share: 0.5})
	tk := p.Draw(start, clients[0], 0)
	p.Record(tk, Outcome{1000, time.Second, time.Second})
	for _, d := range []int{0, 7, 0} { // and back: the clock was wrong
		if r := p.Report(start.Add(time.Duration(d) * day)); r.Days != d+1 || r.Overall.Direct != 1 {
			t.Errorf("after %d days: %+v", d, r)
		}
	}
	if r := p.Report(start.Add(8 * day)); r.Days != 0 || r.Overall.Direct != 0 {
		t.Errorf("after 8 days: %+v", r)
	}
	p.Record(tk, Outcome{1000, time.Second, time.Second})
	if r := p.Report(start.Add(8 * day)); r.Overall.Direct != 0 {
		t.Error("a connection that began before all that counts is counted")
	}
	// The clock goes back by an hour, and by a year.
	p.Record(p.Draw(start.Add(8*day), clients[0], 0), Outcome{1000, time.Second, time.Second})
	if r := p.Report(start.Add(8*day - time.Hour)); r.Overall.Direct != 1 {
		t.Error("a clock that goes back a little has cost what was known")
	}
	if r := p.Report(start.Add(-365 * day)); r.Overall.Direct != 0 {
		t.Error("days of the future count")
	}
	for _, early := range []time.Time{time.Unix(-5, 0), time.Unix(-5*daySeconds, 0)} {
		p := New(Config{Share: 0.5})
		p.Record(p.Draw(early, clients[0], 0), Outcome{1000, time.Second, time.Second})
		if r := p.Report(early); r.Days != 1 || r.Overall.Direct != 1 {
			t.Errorf("a clock before 1970: %+v", r)
		}
	}
}

// TestAgingWhileOff: what is old does not count, even if nothing new is compared.
func TestAgingWhileOff(t *testing.T) {
	p := New(Config{Share: 0.5})
	p.Record(p.Draw(start, clients[0], 0), Outcome{1000, time.Second, time.Second})
	p.Set(Config{})
	for d, want := range map[int]int{7: 8, 8: 0} {
		q := *p
		if r := q.Report(start.Add(time.Duration(d) * day)); r.Days != want || r.Verdict != Off || r.Overall.Direct > uint32(want) {
			t.Errorf("after %d days: %+v", d, r)
		}
		q.Set(Config{Share: 0.5})
		if w := q.window(start.Add(time.Duration(d) * day)); w.share != 0.5 {
			t.Errorf("after %d days, and switched on: a share of %v", d, w.share)
		}
	}
}

func TestPrefixes(t *testing.T) {
	p := New(Config{Share: 0.5})
	for i := range 20 {
		p.Record(p.Draw(start, netip.AddrFrom4([4]byte{10, 0, byte(i), 1}), 0), Outcome{1, time.Second, time.Second})
	}
	p.Record(p.Draw(start, netip.MustParseAddr("::ffff:10.0.0.99"), 0), Outcome{1, time.Second, time.Second})
	r := p.Report(start)
	if len(r.Clients) != Prefixes || r.Clients[0].Prefix != "10.0.0.0/24" || r.Clients[0].Direct != 2 || r.Clients[Prefixes-1].Prefix != "" || r.Clients[Prefixes-1].Direct != 13 {
		t.Errorf("%+v", r.Clients)
	}
	// A prefix that was seen stays what it is on the next day, and is again what it was.
	q := New(Config{Share: 0.5})
	for d, client := range []string{"10.0.0.1", "10.0.1.1", "10.0.0.1"} {
		q.Record(q.Draw(start.Add(time.Duration(d)*day), netip.MustParseAddr(client), math.MaxUint32), Outcome{1, time.Second, time.Second})
	}
	if r := q.Report(start.Add(2 * day)); len(r.Clients) != 2 || r.Clients[0].Prefix != "10.0.0.0/24" || r.Clients[0].Carried != 2 || r.Clients[1].Prefix != "10.0.1.0/24" {
		t.Errorf("%+v", r.Clients)
	}
	// Prefixes that were not seen for long make room for others.
	later := start.Add(9 * day)
	p.Record(p.Draw(later, netip.MustParseAddr("fd00:1:2:3:4::1"), 0), Outcome{1, time.Second, time.Second})
	if r := p.Report(later); len(r.Clients) != 1 || r.Clients[0].Prefix != "fd00:1:2:3::/64" {
		t.Errorf("%+v", r.Clients)
	}
}

// TestTicket: a connection counts with the share with which it was drawn, and not for less than its first byte took.
func TestTicket(t *testing.T) {
	for share, want := range map[float64]float32{-1: 0, 2: MaxShare} {
		if p := New(Config{Share: share}); p.Draw(start, clients[0], 0).share != want {
			t.Errorf("a share of %v is not %v", share, want)
		}
	}
	p := New(Config{Share: 0.5})
	before := p.Draw(start, clients[0], 0)
	w := p.window(start)
	*w = window{day: w.day, share: 0.25, unsure: 0.25} // as after a doubt
	p.Record(before, Outcome{1000, time.Second, time.Second})
	p.Record(Ticket{}, Outcome{1000, time.Second, time.Second})
	p.Record(p.Draw(start, clients[0], 0), Outcome{1000, seconds(math.E), time.Second})
	for _, quarter := range w.cells[0] {
		if c := quarter[0][Direct]; c.n > 0 && (c.n != 1 || c.by[complete].mean != 1) {
			t.Errorf("%+v", c)
		}
	}
	if u := p.Report(start).Unanswered; u.DirectOf != 1 || u.CarriedOf != 0 {
		t.Errorf("%+v", u)
	}
}

func TestMemory(t *testing.T) {
	young := maxYoung * (unsafe.Sizeof(Session{}) + (maxWaits+1)*unsafe.Sizeof(wait{}))
	if size := unsafe.Sizeof(Proof{}) + young; size > 64<<10 {
		t.Errorf("%d bytes", size)
	} else {
		t.Logf("%d bytes, %d of them of sessions that began just now", size, young)
	}
	p := New(Config{Share: 0.5, Auto: true})
	chance := uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		chance += 1 << 24
		p.Record(p.Draw(start, clients[chance>>24%4], chance), Outcome{1e5, time.Second, time.Second})
	}); n != 0 {
		t.Errorf("%v allocations a connection", n)
	}
	if n := testing.AllocsPerRun(10, func() { p.Tick(start) }); n != 0 {
		t.Errorf("%v allocations a tick", n)
	}
}
