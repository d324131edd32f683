// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"math"
	"net/netip"
	"time"
)

const (
	// Days is the number of days that count: today and the seven before.
	Days = 8
	// Quarters is the number of parts that a day is divided into, in UTC.
	Quarters = 4
	// Sizes is the number of size classes: up to 0.1, 1, 10 MB, and more.
	Sizes = 4
	// Prefixes is the number of client prefixes that are told apart; the last one stands for all others.
	Prefixes = 8

	// DefaultShare is drawn while it is uncertain which way is faster, and sureShare of it once that is
	// certain. While auto sends most connections direct, the carried group has the latter share from the start.
	// doubtShare of it is drawn while there is a doubt, and with auto on each day that begins without certainty: then either way may be
	// the slower one, and a larger group tells sooner. What it gives up of a gain is little as long as that is not even certain.
	DefaultShare = 0.05
	sureShare    = 0.2
	doubtShare   = 4
	// harm is a difference of logarithms. As long as nothing excludes that carrying makes things slower by that, auto draws MaxShare: for a
	// hundred connections or so.
	harm = 0.25
	// MaxShare leaves room for the other group to be as large, while most connections are in neither.
	MaxShare = 0.5

	daySeconds = 86400
)

// Limits are the largest sizes of all classes but the last, in bytes.
var Limits = [Sizes - 1]uint64{1e5, 1e6, 1e7}

func sizeOf(bytes uint64) int {
	for i, limit := range Limits {
		if bytes < limit {
			return i
		}
	}
	return Sizes - 1
}

// An Arm is the way that a connection goes.
type Arm uint8

const (
	// Carried: through a gateway.
	Carried Arm = iota
	// Direct: made by the relay itself, as a member of a group.
	Direct
	// Forwarded: left to the kernel, in no group.
	Forwarded
)

// A Ticket is the result of the draw for a connection. The zero value is for a connection
// that is carried and in no group.
type Ticket struct {
	Arm      Arm
	Measured bool // in a group: must be returned to Record

	day    int32
	share  float32 // of the window
	spared bool
	part   uint8 // quarter
	prefix uint8
}

// Uncompared is the ticket of a connection that is carried and in no group, as are those that join its session.
var Uncompared = Ticket{day: -1}

// An Outcome is the result of a connection.
type Outcome struct {
	Bytes uint64 // to the client
	// First is when the first of them arrived, Wait how long the client waited for all of them,
	// both since its request.
	First, Wait time.Duration
}

// Config is set by the operator.
type Config struct {
	Share float64 // share of new connections that are drawn; 0: none; at most MaxShare
	Auto  bool    // send connections direct if carrying them is slower beyond doubt
}

// moments are the mean and the sum of squared deviations of a sample (Welford).
type moments struct{ mean, m2 float32 }

func (m *moments) add(n uint32, x float64) {
	d := x - float64(m.mean)
	mean := float64(m.mean) + d/float64(n)
	m.m2 += float32(d * (x - mean))
	m.mean = float32(mean)
}

// join adds another sample, of more values, to one of n.
func (m *moments) join(n, more uint32, o moments) {
	if more == 0 {
		return
	}
	d, all := float64(o.mean-m.mean), float64(n)+float64(more)
	m.m2 += o.m2 + float32(d*d*float64(n)*float64(more)/all)
	m.mean += float32(d * float64(more) / all)
}

// The metrics, compared as logarithms.
const (
	firstByte  = iota // time to the first byte
	complete          // time that the client waited
	throughput        // bytes per that time
	metrics
)

// A cell holds the data of one group in one stratum. For prefixes and sessions, only complete is kept.
type cell struct {
	n  uint32
	by [metrics]moments
}

type small struct {
	n  uint32
	by moments
}

// tries counts all connections of a group, and those without an answer.
type tries struct{ n, silent uint32 }

func (t *tries) add(silent bool) {
	if t.n++; silent {
		t.silent++
	}
}

// A window is a day, or the rest of it since a doubt. Its shares never change. It has two halves, because the shares of the groups
// differ: while most connections are carried, and while auto sends them direct.
type window struct {
	day      int32   // since 1970; 0: none
	share    float32 // share drawn to go direct, while most are carried
	unsure   float32 // share while the result is uncertain: of the direct group, while most are in none
	cells    [2][Quarters][Sizes][2]cell
	tries    [2][Quarters][2]tries
	prefixes [2][Prefixes][Sizes][2]small
	sessions [2][Sizes][Classes][2]small
}

// A prefix is a client's network: 24 bits of an IPv4 address, 64 of an IPv6 address.
type prefix struct {
	addr [8]byte
	v4   bool
	used bool
}

func prefixOf(a netip.Addr) (p prefix) {
	p.used = true
	if a = a.Unmap(); a.Is4() {
		p.v4 = true
		b := a.As4()
		copy(p.addr[:], b[:3])
		return p
	}
	b := a.As16()
	copy(p.addr[:], b[:8])
	return p
}

func (p prefix) String() string {
	if p.v4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(p.addr[:4])), 24).String()
	}
	var b [16]byte
	copy(b[:], p.addr[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), 64).String()
}

// A Proof holds all data. It contains no pointers, and its size is fixed. It is not safe for
// concurrent use.
type Proof struct {
	config   Config
	windows  [Days]window // by day modulo Days
	newest   int32
	prefixes [Prefixes - 1]prefix
	spared   bool // auto sends new connections direct
	// usual holds carried connections of each hour of the days before, of which a day counts half as much as the next one.
	usual [24][Sizes]small

	lately
}

// lately holds carried connections of the current hour, while most are carried. It is not kept over a restart.
type lately struct {
	hour   int64 // since 1970; 0: none
	recent [Sizes]small
	tried  tries
}

// New returns a Proof without data.
func New(c Config) *Proof {
	p := &Proof{}
	p.Set(c)
	return p
}

// Set changes the configuration. A new share takes effect on the next day, except 0, which does at once.
func (p *Proof) Set(c Config) {
	c.Share = min(max(c.Share, 0), MaxShare)
	p.config = c
	if !c.Auto {
		p.spared = false
	}
}

// window returns the window of a time.
func (p *Proof) window(now time.Time) *window {
	// If the clock goes back a little, the newest day still counts: connections were drawn with its share.
	// If the clock was far ahead, the days that it left are discarded.
	// A day without a comparison has no window.
	if day := int32(now.Unix() / daySeconds); day > p.newest || day < p.newest-1 || p.windows[p.newest%Days].day == 0 {
		p.turn(day)
	}
	return &p.windows[p.newest%Days]
}

// turn starts a new day, or, without a comparison, only discards old ones.
func (p *Proof) turn(day int32) {
	if p.newest = max(day, 1); day < 1 { // a clock before 1970
		day = 1
	}
	for i := range p.windows {
		if w := &p.windows[i]; w.day > day || w.day <= day-Days {
			*w = window{}
		}
	}
	if p.windows[day%Days].day == day || p.config.Share == 0 { // the clock was ahead for a while
		return
	}
	w := window{day: day, share: float32(p.config.Share), unsure: float32(p.config.Share)}
	known := p.compare(all, complete)
	switch {
	case known.strict(doubt).sure():
		w.share *= sureShare
	case p.config.Auto:
		w.unsure = min(w.share*doubtShare, MaxShare)
		if w.share = w.unsure; known.interval().high >= harm {
			w.share = MaxShare
		}
	}
	p.windows[day%Days] = w
	for i := range p.prefixes {
		if !p.seen(i) {
			p.prefixes[i] = prefix{}
		}
	}
}

func (p *Proof) seen(prefix int) bool {
	for i := range p.windows {
		for spared := range 2 {
			for size := range Sizes {
				c := &p.windows[i].prefixes[spared][prefix][size]
				if c[Carried].n+c[Direct].n > 0 {
					return true
				}
			}
		}
	}
	return false
}

// Spared reports whether auto sends new connections direct.
func (p *Proof) Spared() bool { return p.spared }

// Draw decides the way of a new connection that would be carried. chance is uniformly
// distributed.
func (p *Proof) Draw(now time.Time, client netip.Addr, chance uint32) Ticket {
	if p.config.Share == 0 {
		return Ticket{}
	}
	w := p.window(now)
	p.strike(now.Unix() / 3600)
	t := Ticket{Measured: true, day: w.day, share: w.share, spared: p.spared, part: uint8(quarterOf(now)), prefix: p.place(client)}
	part := func(share float32) uint64 { return uint64(float64(share) * (1 << 32)) }
	x, carried := uint64(chance), part(w.unsure*sureShare)
	switch {
	case !p.spared && x < part(w.share):
		t.Arm = Direct
	case !p.spared || x < carried:
		t.Arm = Carried
	case x < carried+part(w.unsure):
		t.Arm = Direct
	default:
		return Ticket{Arm: Forwarded}
	}
	return t
}

// strike begins an hour.
func (p *Proof) strike(hour int64) {
	if hour == p.hour {
		return
	}
	if p.hour != 0 { // otherwise it begins after a restart
		for size := range p.recent {
			u, r := &p.usual[uint64(p.hour)%24][size], &p.recent[size]
			u.n, u.by.m2 = u.n/2, u.by.m2/2
			u.by.join(u.n, r.n, r.by)
			u.n += r.n
		}
	}
	p.hour, p.recent, p.tried = hour, [Sizes]small{}, tries{}
}

func quarterOf(now time.Time) int {
	return int(uint64(now.Unix()) % daySeconds / (daySeconds / Quarters))
}

// place returns the index of a client's prefix.
func (p *Proof) place(client netip.Addr) uint8 {
	want, free := prefixOf(client), len(p.prefixes)
	for i, had := range p.prefixes {
		if had == want {
			return uint8(i)
		}
		if !had.used && i < free {
			free = i
		}
	}
	if free < len(p.prefixes) {
		p.prefixes[free] = want
	}
	return uint8(free)
}

// of returns the window and half in which a ticket counts, unless its day has expired or begun again.
func (p *Proof) of(t Ticket) (w *window, half int, ok bool) {
	w = &p.windows[uint32(t.day)%Days]
	if t.spared {
		half = 1
	}
	return w, half, t.Measured && w.day == t.day && w.share == t.share
}

// Record takes the outcome of a connection that was drawn. It ignores a ticket whose day has expired.
func (p *Proof) Record(t Ticket, o Outcome) {
	w, half, ok := p.of(t)
	if !ok {
		return
	}
	recent := !t.spared && t.Arm == Carried
	w.tries[half][t.part][t.Arm].add(o.Bytes == 0)
	if recent {
		p.tried.add(o.Bytes == 0)
	}
	if o.Bytes == 0 {
		return
	}
	first, wait := logOf(o.First), logOf(max(o.Wait, o.First))
	size := sizeOf(o.Bytes)
	c := &w.cells[half][t.part][size][t.Arm]
	c.n++
	c.by[firstByte].add(c.n, first)
	c.by[complete].add(c.n, wait)
	c.by[throughput].add(c.n, math.Log(float64(o.Bytes))-wait)
	s := &w.prefixes[half][t.prefix][size][t.Arm]
	s.n++
	s.by.add(s.n, wait)
	if recent {
		r := &p.recent[size]
		r.n++
		r.by.add(r.n, wait)
	}
}

// logOf is the logarithm of seconds. Kernels count in steps of up to 10 ms; times below a millisecond count as one.
func logOf(d time.Duration) float64 { return math.Log(max(d, time.Millisecond).Seconds()) }

// reconsider raises and settles a doubt. A few direct connections tell too late that something on the way has changed. So if carried
// connections now take longer than direct ones should at this hour, or more of them get no answer, the result is no longer certain, and
// more are drawn, until those say that carrying is faster now, too. Then the time has changed, not the way: what carried connections took
// during the doubt is as usual. The window begins again each time, without connections that were drawn with another share.
func (p *Proof) reconsider(w *window) {
	switch {
	case p.untried(w):
		if p.compareSince(w.day, all, complete).interval().high < harm {
			*w = window{day: w.day, share: w.unsure, unsure: w.unsure}
		}
	case w.share < w.unsure && p.doubtful():
		*w = window{day: w.day, share: min(w.unsure*doubtShare, MaxShare), unsure: w.unsure}
	case w.share > w.unsure && p.settled(w.day):
		for size := range Sizes {
			var since small
			for quarter := range w.cells[0] {
				c := &w.cells[0][quarter][size][Carried]
				since.by.join(since.n, c.n, c.by[complete])
				since.n += c.n
			}
			for hour := range p.usual {
				p.usual[hour][size] = since
			}
		}
		p.recent, p.tried = [Sizes]small{}, tries{}
		*w = window{day: w.day, share: w.unsure * sureShare, unsure: w.unsure}
	}
}

// untried reports whether MaxShare is drawn, because nothing excludes yet that carrying does much harm. A window with a doubt has the usual
// share as unsure, this one a larger one.
func (p *Proof) untried(w *window) bool {
	return w.share > w.unsure && w.unsure > float32(p.config.Share)
}

// Tick checks whether auto must switch; call it regularly. changed says that new connections
// go another way from now on.
func (p *Proof) Tick(now time.Time) (changed bool) {
	if p.config.Share == 0 {
		return false
	}
	p.strike(now.Unix() / 3600)
	w := p.window(now)
	p.reconsider(w)
	if !p.config.Auto {
		return false
	}
	was, sure, likely := p.spared, false, false
	// Harm that begins after good days shows in the last days first. Less than a whole day would compare an evening with
	// a night, so it counts only where there is a doubt.
	first := int32(2)
	if w.share > w.unsure {
		first = 1
	}
	for days := first; days <= Days; days++ {
		since, may := p.newest-days+1, doubt/Days
		if p.untried(w) { // mostly on the first day, when all looks are one
			may = doubt / 2
		}
		for _, e := range [...]effect{p.compareSince(since, all, complete), p.answers(since)} {
			// To switch, the result must be significant for all looks together; to switch back, less than 95 % certain.
			sure = sure || e.strict(may).low > 0
			likely = likely || e.interval().low > 0
		}
	}
	p.spared = sure || was && likely
	return p.spared != was
}
