// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func source(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}

func places(total int) *Places {
	p := new(Places)
	p.SetTotal(total)
	return p
}

// takeAll takes places for a peer until it is refused.
func takeAll(p *Places, peer string, most int, source netip.Prefix) (n int, err error) {
	for ; err == nil; n++ {
		err = p.Take(peer, most, source)
	}
	return n - 1, err
}

func TestPlaces(t *testing.T) {
	type want struct {
		peer   string
		most   int
		source int
		least  int // lower bound of what it receives when it asks for all
		mostly int
		err    error
	}
	for _, tc := range []struct {
		name  string
		total int
		wants []want
	}{
		{"none", 0, []want{{"a", 0, 1, 0, 0, errFull}}},
		{"one", 1, []want{{"a", 0, 1, 1, 1, errFull}, {"b", 0, 2, 0, 0, errFull}}},
		{"alone", 1000, []want{{"a", 0, 1, 780, 889, errShare}}},
		{"alone with a limit", 1000, []want{{"a", 100, 1, 88, 99, errShare}, {"a", 100, 2, 8, 11, nil}}},
		{"alone with a limit that it cannot reach", 1000, []want{{"a", 5000, 1, 780, 800, errShare}}},
		// Each leaves room for the next.
		{"a second one", 1000, []want{{"a", 0, 1, 780, 889, errShare}, {"b", 0, 2, 80, 187, errShare}, {"c", 0, 3, 8, 40, nil}, {"a", 0, 1, 0, 0, errShare}}},
		{"sources of one", 1000, []want{{"a", 0, 1, 780, 800, errShare}, {"a", 0, 2, 80, 90, errShare}, {"a", 0, 3, 8, 11, nil}, {"b", 0, 4, 80, 100, nil}}},
		{"more peers than places", 2, []want{{"a", 0, 1, 2, 2, errFull}, {"b", 0, 2, 0, 0, errFull}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := places(tc.total)
			for _, w := range tc.wants {
				n, err := takeAll(p, w.peer, w.most, source(w.source))
				if n < w.least || n > w.mostly || w.err != nil && !errors.Is(err, w.err) {
					t.Errorf("%s from source %d got %d (%v), want %d to %d (%v)", w.peer, w.source, n, err, w.least, w.mostly, w.err)
				}
			}
			if p.Used() > tc.total {
				t.Errorf("%d places of %d are taken", p.Used(), tc.total)
			}
		})
	}
}

// TestPlacesMaxMin checks that, as tunnels come and go, peers with a small demand
// receive all of it, and greedy peers converge to equal numbers.
func TestPlacesMaxMin(t *testing.T) {
	for _, tc := range []struct {
		total   int
		demands []int
	}{
		{1000, []int{2000, 20, 20, 20}},
		{1000, []int{2000, 2000, 100, 10}},
		{1000, []int{2000, 2000, 2000, 2000, 2000, 1, 1}},
		{8000, append([]int{1 << 20}, slices.Repeat([]int{20}, 299)...)},
		{512, []int{5000, 5000}},
	} {
		t.Run(fmt.Sprint(tc.total, len(tc.demands)), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			p := places(tc.total)
			var open []int // peers of the open tunnels
			held := make([]int, len(tc.demands))
			refused := make([]int, len(tc.demands))
			for step := range 200 * tc.total {
				// A peer with unmet demand asks; greedy peers ask without limit.
				i := rng.IntN(len(tc.demands))
				if step%2 == 0 {
					i = 0
				}
				if held[i] < tc.demands[i] {
					if err := p.Take(fmt.Sprint(i), 0, source(i)); err == nil {
						held[i]++
						open = append(open, i)
					} else if step > 100*tc.total {
						refused[i]++
					}
				}
				// A random tunnel ends.
				if len(open) > 0 && rng.IntN(3) == 0 {
					n := rng.IntN(len(open))
					i := open[n]
					open[n] = open[len(open)-1]
					open = open[:len(open)-1]
					held[i]--
					p.Give(fmt.Sprint(i), source(i))
				}
			}
			fair := fairShare(tc.total, tc.demands)
			for i, demand := range tc.demands {
				if demand <= fair/2 && refused[i] > 0 {
					t.Errorf("peer %d, which wants %d, was refused %d times", i, demand, refused[i])
				}
				if demand > tc.total && (held[i] < fair*7/10 || held[i] > fair*13/10) {
					t.Errorf("peer %d, which wants all, holds %d: the fair share is %d", i, held[i], fair)
				}
			}
		})
	}
}

// fairShare returns the largest limit for each peer at which held places and the
// places that the rule keeps free add up to total.
func fairShare(total int, demands []int) int {
	for share := total; ; share-- {
		sum := share / shareFactor
		for _, d := range demands {
			sum += min(d, share)
		}
		if sum <= total {
			return share
		}
	}
}

// TestPlacesNewcomer checks that a new peer, and a new source of a peer, takes nothing from another one that has taken all it could, but
// gets the places of tunnels that end, until it holds as many.
func TestPlacesNewcomer(t *testing.T) {
	for _, shared := range []bool{false, true} {
		p := places(4096)
		take := func(i int) (n int) {
			name := Shared
			if !shared {
				name = fmt.Sprint(i)
			}
			n, _ = takeAll(p, name, 0, source(i))
			return n
		}
		held := []int{take(0), take(1)}
		first := held[0]
		for ended := 0; held[1] < held[0] && ended < first; ended++ {
			if shared {
				p.Give(Shared, source(0))
			} else {
				p.Give("0", source(0))
			}
			held[0] += take(0) - 1
			held[1] += take(1)
		}
		if least := first * 4 / 9; held[0] < least || held[1] < least || p.Used() != held[0]+held[1] {
			t.Errorf("shared token %t: alone %d, in the end %d, and %d places are taken", shared, first, held, p.Used())
		}
	}
}

// TestPlacesManySources checks that a peer with a source for each tunnel gets no more than another, and not more than its
// limit.
func TestPlacesManySources(t *testing.T) {
	p := places(1000)
	for _, w := range []struct {
		peer      string
		most      int
		least, up int
	}{{"a", 0, 880, 889}, {"b", 10, 10, 10}} {
		for i := range 2000 {
			_ = p.Take(w.peer, w.most, source(i))
		}
		if n := p.Held(w.peer); n < w.least || n > w.up {
			t.Errorf("%s holds %d places", w.peer, n)
		}
	}
}

// FuzzPlaces takes and gives back places in any order.
func FuzzPlaces(f *testing.F) {
	f.Add([]byte{1, 1, 1, 2, 0x81, 3}, uint16(4))
	f.Fuzz(func(t *testing.T, steps []byte, total uint16) {
		p := places(int(total))
		type place struct {
			peer   string
			source netip.Prefix
		}
		var taken []place
		for _, s := range steps {
			if s&0x80 != 0 && len(taken) > 0 {
				n := int(s&0x7f) % len(taken)
				p.Give(taken[n].peer, taken[n].source)
				taken = append(taken[:n], taken[n+1:]...)
			} else if s == 0x7f {
				p.SetTotal(int(total) / 2)
			} else {
				one := place{fmt.Sprint(s & 3), source(int(s >> 2 & 3))}
				room := p.Used() < p.Total()
				held := p.Held(one.peer)
				err := p.Take(one.peer, int(s>>4&7), one.source)
				if err == nil {
					taken = append(taken, one)
				}
				if err == nil && !room || err != nil && room && held == 0 {
					t.Fatalf("room %t, %d held: %v", room, held, err)
				}
			}
			if p.Used() != len(taken) {
				t.Fatalf("%d are counted, %d are taken", p.Used(), len(taken))
			}
		}
		for _, one := range taken {
			p.Give(one.peer, one.source)
		}
		if p.Used() != 0 || len(p.holders) != 0 {
			t.Fatalf("%d places and %d holders are left", p.Used(), len(p.holders))
		}
	})
}
