// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// A file is the header, the data, and a checksum of both. Numbers are little-endian. Only cells
// with data are written, each after the number of empty cells before it: about 10 KB for a busy
// node.
const (
	header = "bquic proof 3\n"
	// MaxFile is the largest possible file, in bytes.
	MaxFile = 48 << 10

	noMore = 0xffff // after the last cell of a window
)

var errFile = errors.New("not a file of the control group, or damaged, or of another version")

// Append appends the data to b.
func (p *Proof) Append(b []byte) []byte {
	start, le := len(b), binary.LittleEndian
	b = append(b, header...)
	spared := byte(0)
	if p.spared {
		spared = 1
	}
	b = append(b, spared)
	b = le.AppendUint32(b, uint32(p.newest))
	for _, x := range &p.prefixes {
		kind := byte(0)
		if x.used && x.v4 {
			kind = 4
		} else if x.used {
			kind = 6
		}
		b = append(append(b, kind), x.addr[:]...)
	}
	for i := range p.windows {
		w := &p.windows[i]
		b = le.AppendUint32(b, uint32(w.day))
		if w.day == 0 {
			continue
		}
		b = le.AppendUint32(b, math.Float32bits(w.share))
		b = le.AppendUint32(b, math.Float32bits(w.unsure))
		skipped := uint16(0)
		put := func(numbers ...uint32) {
			if numbers[0] == 0 {
				skipped++
				return
			}
			b = le.AppendUint16(b, skipped)
			skipped = 0
			for _, n := range numbers {
				b = le.AppendUint32(b, n)
			}
		}
		w.each(func(t *tries) { put(t.n, t.silent) },
			func(c *cell) {
				put(c.n, math.Float32bits(c.by[0].mean), math.Float32bits(c.by[0].m2), math.Float32bits(c.by[1].mean),
					math.Float32bits(c.by[1].m2), math.Float32bits(c.by[2].mean), math.Float32bits(c.by[2].m2))
			},
			func(s *small) { put(s.n, math.Float32bits(s.by.mean), math.Float32bits(s.by.m2)) })
		b = le.AppendUint16(b, noMore)
	}
	for hour := range p.usual {
		for _, s := range p.usual[hour] {
			b = le.AppendUint32(b, s.n)
			b = le.AppendUint32(b, math.Float32bits(s.by.mean))
			b = le.AppendUint32(b, math.Float32bits(s.by.m2))
		}
	}
	return le.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// each calls the matching function for every item in a window, always in the same order.
func (w *window) each(tried func(*tries), known func(*cell), completed func(*small)) {
	for half := range w.tries {
		for quarter := range w.tries[half] {
			for arm := range w.tries[half][quarter] {
				tried(&w.tries[half][quarter][arm])
			}
			for size := range w.cells[half][quarter] {
				for arm := range w.cells[half][quarter][size] {
					known(&w.cells[half][quarter][size][arm])
				}
			}
		}
		for i := range w.prefixes[half] {
			for size := range w.prefixes[half][i] {
				for arm := range w.prefixes[half][i][size] {
					completed(&w.prefixes[half][i][size][arm])
				}
			}
		}
		for size := range w.sessions[half] {
			for class := range w.sessions[half][size] {
				for arm := range w.sessions[half][size][class] {
					completed(&w.sessions[half][size][class][arm])
				}
			}
		}
	}
}

// A reader takes numbers from b. After an error, it returns zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) bytes(n int) []byte {
	if len(r.b) < n {
		r.b, r.bad = nil, true
		return make([]byte, n)
	}
	got := r.b[:n]
	r.b = r.b[n:]
	return got
}

func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.bytes(2)) }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }

func (r *reader) float() float32 {
	f := math.Float32frombits(r.uint32())
	if f != f || math.IsInf(float64(f), 0) {
		r.bad = true
		return 0
	}
	return f
}

func (r *reader) moments() (m moments) {
	m.mean, m.m2 = r.float(), r.float()
	r.bad = r.bad || m.m2 < 0
	return m
}

// Restore replaces the data with data that Append has written before now. On an error, p does not
// change.
func (p *Proof) Restore(data []byte, now time.Time) error {
	end := len(data) - crc32.Size
	if end < len(header) || len(data) > MaxFile || string(data[:len(header)]) != header ||
		crc32.ChecksumIEEE(data[:end]) != binary.LittleEndian.Uint32(data[end:]) {
		return errFile
	}
	r := &reader{b: data[len(header):end]}
	n := &Proof{config: p.config}
	n.spared = r.bytes(1)[0] == 1 && p.config.Auto
	n.newest = int32(r.uint32())
	for i := range n.prefixes {
		kind := r.bytes(1)[0]
		r.bad = r.bad || kind != 0 && kind != 4 && kind != 6
		n.prefixes[i] = prefix{used: kind != 0, v4: kind == 4}
		copy(n.prefixes[i].addr[:], r.bytes(8))
	}
	for i := range n.windows {
		w := &n.windows[i]
		if w.day = int32(r.uint32()); w.day == 0 || r.bad {
			continue
		}
		w.share, w.unsure = r.float(), r.float()
		r.bad = r.bad || w.day < 0 || int(w.day%Days) != i || w.day > n.newest || w.day <= n.newest-Days ||
			!(w.share > 0 && w.share <= MaxShare && w.unsure > 0 && w.unsure <= MaxShare)
		r.window(w)
	}
	for hour := range n.usual {
		for size := range n.usual[hour] {
			n.usual[hour][size] = small{r.uint32(), r.moments()}
		}
	}
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: its contents are inconsistent", errFile)
	}
	*p = *n
	if p.newest > 0 {
		p.window(now)
	}
	return nil
}

func (r *reader) window(w *window) {
	skip := r.uint16()
	due := func() bool {
		if r.bad || skip == noMore {
			return false
		}
		if skip > 0 {
			skip--
			return false
		}
		return true
	}
	counted := func() uint32 {
		n := r.uint32()
		r.bad = r.bad || n == 0
		return n
	}
	w.each(func(t *tries) {
		if due() {
			t.n, t.silent = counted(), r.uint32()
			r.bad = r.bad || t.silent > t.n
			skip = r.uint16()
		}
	}, func(c *cell) {
		if due() {
			c.n = counted()
			for i := range c.by {
				c.by[i] = r.moments()
			}
			skip = r.uint16()
		}
	}, func(s *small) {
		if due() {
			s.n, s.by = counted(), r.moments()
			skip = r.uint16()
		}
	})
	r.bad = r.bad || skip != noMore
}
