// SPDX-License-Identifier: Apache-2.0

package proof

import "math"

// An effect is an estimate of carried minus direct, with its variance and the variance's
// degrees of freedom. Without degrees of freedom, it is unknown.
type effect struct {
	carried, direct uint32 // connections
	mean, variance  float64
	freedom         float64
}

// A span is an interval around an effect.
type span struct{ low, high float64 }

// sure says if the span excludes zero.
func (s span) sure() bool { return s.low > 0 || s.high < 0 }

var unknown = span{math.Inf(-1), math.Inf(1)}

// leastFreedom is the least number of degrees of freedom for a result: from there on, quantile is accurate to a thousandth.
const leastFreedom = 5

// interval is the 95 % confidence interval.
func (e effect) interval() span {
	if e.freedom < leastFreedom {
		return unknown
	}
	half := quantile(e.freedom) * math.Sqrt(e.variance)
	return span{e.mean - half, e.mean + half}
}

const (
	// normal is the 97.5th percentile of the normal distribution.
	normal = 1.959963984540054
	// sought is the effect, as a difference of logarithms, that strict detects soonest: harm by half. With 0.2, that took a quarter longer.
	sought = 0.5
	// doubt is the probability that strict is ever wrong.
	doubt = 0.05
)

// strict is an interval that contains the true effect at all times together, except with a probability of doubt: Robbins'
// mixture ("Statistical methods related to the law of the iterated logarithm", 1970), for an effect that is normal
// with a standard deviation of sought. interval, evaluated each minute of a week, would raise a false alarm in most
// weeks.
func (e effect) strict(doubt float64) span {
	if e.freedom < leastFreedom || e.variance <= 0 {
		return unknown
	}
	widen := quantile(e.freedom) / normal // as in interval
	v, prior := e.variance*widen*widen, sought*sought
	half := math.Sqrt(v * (v + prior) / prior * math.Log((v+prior)/(v*doubt*doubt)))
	return span{e.mean - half, e.mean + half}
}

// quantile is the 97.5th percentile of Student's distribution, by its expansion around the normal one
// (Abramowitz and Stegun, 26.7.5).
func quantile(freedom float64) float64 {
	const z = normal
	const z3, z5, z7, z9 = z * z * z, z * z * z * z * z, z * z * z * z * z * z * z, z * z * z * z * z * z * z * z * z
	const g1 = (z3 + z) / 4
	const g2 = (5*z5 + 16*z3 + 3*z) / 96
	const g3 = (3*z7 + 19*z5 + 17*z3 - 15*z) / 384
	const g4 = (79*z9 + 776*z7 + 1482*z5 - 1920*z3 - 945*z) / 92160
	f := freedom
	return z + g1/f + g2/(f*f) + g3/(f*f*f) + g4/(f*f*f*f)
}

// strata adds up the strata of one class, in which each group has one variance.
type strata struct {
	count            [2]uint32
	freedom, squares [2]float64
	weight, mean     float64
	parts            [2]float64 // of weight squared, by n
}

func (s *strata) add(n [2]uint32, m [2]moments) {
	for arm := range n {
		if s.count[arm] += n[arm]; n[arm] > 0 {
			s.freedom[arm] += float64(n[arm] - 1)
			s.squares[arm] += float64(m[arm].m2)
		}
	}
	if n[Carried] == 0 || n[Direct] == 0 {
		return
	}
	n1, n0 := float64(n[Carried]), float64(n[Direct])
	w := n1 * n0 / (n1 + n0)
	s.weight += w
	s.mean += w * (float64(m[Carried].mean) - float64(m[Direct].mean))
	s.parts[Carried] += w * w / n1
	s.parts[Direct] += w * w / n0
}

// variances returns the variance that each group contributes to the weighted sum of differences.
func (s *strata) variances() (v [2]float64, ok bool) {
	for arm := range v {
		if s.freedom[arm] < 1 {
			return v, false
		}
		v[arm] = s.squares[arm] / s.freedom[arm] * s.parts[arm]
	}
	return v, s.weight > 0
}

// join combines classes, each with its own variances, into one effect (Welch, Satterthwaite).
func join(classes []strata) (e effect) {
	var weight, mean, variance, spread, pooled float64
	for i := range classes {
		s := &classes[i]
		e.carried += s.count[Carried]
		e.direct += s.count[Direct]
		v, ok := s.variances()
		if !ok {
			continue
		}
		weight += s.weight
		mean += s.mean
		// pooled is the variance under the assumption that both groups have the same.
		shared := (s.squares[0] + s.squares[1]) / (s.freedom[0] + s.freedom[1])
		pooled += shared * (s.parts[0] + s.parts[1])
		for arm := range v {
			variance += v[arm]
			spread += v[arm] * v[arm] / s.freedom[arm]
		}
	}
	if weight == 0 || spread == 0 {
		return e
	}
	// With few direct connections, their own variance is a matter of luck: it is small if those are missing that take long,
	// and then their mean is too low as well. So this takes the larger of two estimates.
	e.mean, e.variance = mean/weight, max(variance, pooled)/(weight*weight)
	e.freedom = variance * variance / spread
	return e
}

// A part says which connections are compared. A field below 0 means all.
type part struct{ size, quarter, prefix int }

var all = part{-1, -1, -1}

// compare returns the effect on the logarithm of a metric. For a prefix, only complete is known.
func (p *Proof) compare(of part, metric int) effect { return p.compareSince(0, of, metric) }

// compareSince leaves out what was before a day.
func (p *Proof) compareSince(day int32, of part, metric int) effect {
	var classes [Sizes]strata
	for i := range p.windows {
		w := &p.windows[i]
		if w.day == 0 || w.day < day {
			continue
		}
		for half := range 2 {
			for size := range classes {
				if of.size >= 0 && of.size != size {
					continue
				}
				if of.prefix >= 0 {
					c := &w.prefixes[half][of.prefix][size]
					classes[size].add([2]uint32{c[0].n, c[1].n}, [2]moments{c[0].by, c[1].by})
					continue
				}
				for quarter := range Quarters {
					if of.quarter >= 0 && of.quarter != quarter {
						continue
					}
					c := &w.cells[half][quarter][size]
					classes[size].add([2]uint32{c[0].n, c[1].n}, [2]moments{c[0].by[metric], c[1].by[metric]})
				}
			}
		}
	}
	return join(classes[:])
}

// doubtful reports whether carried connections now take longer than direct ones should, which is as long as carried ones usually do
// at this hour, and the effect of all days; or whether more of them get no answer than of all. Chance has not chosen these groups, so
// this is no result, but a reason to look for one.
func (p *Proof) doubtful() bool {
	var classes [Sizes]strata
	for size := range classes {
		now, usual := &p.recent[size], &p.usual[uint64(p.hour)%24][size]
		classes[size].add([2]uint32{now.n, usual.n}, [2]moments{now.by, usual.by})
	}
	slower, known := join(classes[:]), p.compare(all, complete)
	slower.mean += known.mean
	slower.variance += known.variance
	n := float64(p.tried.n) + 2 // with fictitious ones, as in unanswered
	share := float64(p.tried.silent+1) / n
	silent := effect{mean: share - p.unanswered(0), variance: share * (1 - share) / n, freedom: n}
	return slower.strict(doubt).low > 0 || silent.strict(doubt).low > 0
}

// settled reports whether carrying has been faster since the doubt of a day, and no more connections went unanswered. It is less certain
// than the result: an error only ends the doubt too soon, and another one may follow.
func (p *Proof) settled(day int32) bool {
	return p.compareSince(day, all, complete).interval().high < 0 && p.answers(day).interval().low <= 0
}

// sessions returns the effect on the logarithm of the time of sessions in a range of classes.
func (p *Proof) sessions(from, to Class) effect {
	var kinds [Sizes * Classes]strata
	for i := range p.windows {
		for half := range 2 {
			for size := range Sizes {
				for class := from; class <= to; class++ {
					c := &p.windows[i].sessions[half][size][class]
					kinds[size*int(Classes)+int(class)].add([2]uint32{c[0].n, c[1].n}, [2]moments{c[0].by, c[1].by})
				}
			}
		}
	}
	return join(kinds[:])
}

// unanswered returns the share of connections without an answer in both groups, since a day. One fictitious connection
// keeps its variance above zero.
func (p *Proof) unanswered(since int32) float64 {
	silent, tried := 1.0, 2.0
	for i := range p.windows {
		if p.windows[i].day < since {
			continue
		}
		for half := range 2 {
			for quarter := range Quarters {
				for _, t := range p.windows[i].tries[half][quarter] {
					silent += float64(t.silent)
					tried += float64(t.n)
				}
			}
		}
	}
	return silent / tried
}

// answers compares the shares of connections without an answer, since a day. It uses the variance of both
// groups together: if few connections were drawn, and all were answered, that group's own would be zero. Each stratum has its own, because
// in an hour in which many servers are away, more may be drawn than usual.
func (p *Proof) answers(since int32) (e effect) {
	usual := p.unanswered(since)
	var weight, mean, variance float64
	for i := range p.windows {
		if p.windows[i].day < since {
			continue
		}
		for half := range 2 {
			for quarter := range Quarters {
				t := &p.windows[i].tries[half][quarter]
				e.carried += t[Carried].n
				e.direct += t[Direct].n
				if t[Carried].n == 0 || t[Direct].n == 0 {
					continue
				}
				n1, n0 := float64(t[Carried].n), float64(t[Direct].n)
				w := n1 * n0 / (n1 + n0)
				weight += w
				mean += w * (float64(t[Carried].silent)/n1 - float64(t[Direct].silent)/n0)
				share := (float64(t[Carried].silent+t[Direct].silent) + 2*usual) / (n1 + n0 + 2)
				variance += w * share * (1 - share) // w*w*(1/n1+1/n0) times that
			}
		}
	}
	if weight == 0 {
		return e
	}
	e.mean, e.variance = mean/weight, variance/(weight*weight)
	e.freedom = float64(min(e.carried, e.direct))
	return e
}
