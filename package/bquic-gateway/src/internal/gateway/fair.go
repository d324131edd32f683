// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"container/heap"
	"time"
)

// A fairRate admits events at a rate that their sources share fairly (max-min
// fairness). A source that asks for more than its share is refused first, and
// capacity that others leave goes to the sources that ask for it. A single source
// may use the whole rate.
//
// It is a fair queue that keeps only the queues' lengths. Each event adds one to
// its source's debt, and all sources in debt pay it off at equal parts of the
// rate (Demers, Keshav, Shenker, 1989). A source may add to its debt as long as
// the debt does not exceed the unused part of the burst (dynamic thresholds:
// Choudhury and Hahne, 1998). So each of n greedy sources has burst/(n+1) at once
// and rate/n from then on, and the next source finds room for as much as each of
// them.
type fairRate struct {
	rate  float64 // events per second
	burst float64 // events: the limit on the sum of all debts

	at     time.Time // debts are paid off up to this time
	paid   float64   // events paid by a source that was in debt all the time
	debt   float64   // of all sources
	debtor debtors
}

// A debt is a source's state in a fairRate. The zero value is no debt.
type debt struct {
	until float64 // paid off when fairRate.paid reaches this
	index int     // in debtors, from 1; 0: no debt
}

// allow reports whether an event of a source is admitted now, and charges it if
// so.
func (f *fairRate) allow(now time.Time, d *debt) bool {
	f.pay(now)
	if f.of(d)+1 > f.burst-f.debt {
		return false
	}
	f.add(d)
	return true
}

// charge counts an event that can no longer be refused.
func (f *fairRate) charge(now time.Time, d *debt) {
	f.pay(now)
	f.add(d)
}

func (f *fairRate) of(d *debt) float64 {
	if d.index == 0 {
		return 0
	}
	return d.until - f.paid
}

func (f *fairRate) add(d *debt) {
	f.debt++
	if d.index == 0 {
		d.until = f.paid + 1
		heap.Push(&f.debtor, d)
		return
	}
	d.until++
	heap.Fix(&f.debtor, d.index-1)
}

// pay pays off debts until now.
func (f *fairRate) pay(now time.Time) {
	money := f.rate * now.Sub(f.at).Seconds()
	if money <= 0 {
		return
	}
	f.at = now
	for len(f.debtor) > 0 {
		n := float64(len(f.debtor))
		least := f.debtor[0]
		whole := (least.until - f.paid) * n // until its debt is zero
		if whole > money {
			f.paid += money / n
			f.debt -= money
			return
		}
		money -= whole
		f.debt -= whole
		f.paid = least.until
		heap.Pop(&f.debtor)
	}
	f.debt, f.paid = 0, 0 // drop rounding errors
}

// debtors is a heap; the debt that is paid off first is at the top.
type debtors []*debt

func (h debtors) Len() int           { return len(h) }
func (h debtors) Less(i, j int) bool { return h[i].until < h[j].until }
func (h debtors) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *debtors) Push(x any) {
	d := x.(*debt)
	*h = append(*h, d)
	d.index = len(*h)
}

func (h *debtors) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	*d = debt{}
	return d
}
