// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"
	"time"
)

// busy returns a Proof with data for all days.
func busy(seed uint64) *Proof {
	n := newNode(seed, Config{Share: DefaultShare, Auto: true}, 100, 1.5)
	n.every = time.Hour
	n.run(0, 8*day)
	return n.proof
}

const later = 8*day - time.Minute

func TestRestore(t *testing.T) {
	p := busy(1)
	file := p.Append(nil)
	t.Logf("%d bytes", len(file))
	if len(file) > 16<<10 {
		t.Errorf("a week of a node takes %d bytes", len(file))
	}
	again := New(p.config)
	if err := again.Restore(file, start.Add(later)); err != nil {
		t.Fatal(err)
	}
	p.lately = lately{} // not kept
	if !reflect.DeepEqual(again, p) {
		t.Error("what is restored differs from what was written")
	}
	if b := again.Append([]byte("x")); !bytes.Equal(b[1:], file) {
		t.Error("written again, it differs")
	}
	if r := again.Report(start.Add(20 * day)); r.Days != 0 {
		t.Errorf("12 days later there are %d days", r.Days)
	}
	if other := New(Config{Share: DefaultShare}); other.Restore(file, start.Add(later)) != nil || other.spared {
		t.Error("auto was switched off meanwhile, and connections go direct")
	}
	if before := New(p.config); before.Restore(file, start.Add(-20*day)) != nil || before.Report(start.Add(-20*day)).Days != 0 {
		t.Error("days of the future count")
	}
	// Switched off across a restart, and on again.
	off := New(Config{})
	if err := off.Restore(file, start.Add(later+3*day)); err != nil {
		t.Error(err)
	}
	off.Set(p.config)
	off.Record(off.Draw(start.Add(later+3*day), clients[0], 0), Outcome{1, time.Second, time.Second})
	if err := New(p.config).Restore(off.Append(nil), start.Add(later+3*day)); err != nil {
		t.Errorf("after a time without a control group: %v", err)
	}
	var empty Proof
	if err := empty.Restore((&Proof{}).Append(nil), start); err != nil {
		t.Errorf("empty: %v", err)
	}
}

// TestLargestFile has data in every cell.
func TestLargestFile(t *testing.T) {
	p := New(Config{Share: 0.5})
	for d := range Days {
		p.Draw(start.Add(time.Duration(d)*day), clients[0], 0)
	}
	for i := range p.windows {
		p.windows[i].each(func(t *tries) { t.n = 1 }, func(c *cell) { c.n = 1 }, func(s *small) { s.n = 1 })
	}
	file := p.Append(nil)
	if len(file) > MaxFile {
		t.Errorf("%d bytes", len(file))
	}
	if err := New(Config{}).Restore(file, start.Add(later)); err != nil {
		t.Error(err)
	}
}

func TestRestoreDamaged(t *testing.T) {
	p := busy(2)
	file := p.Append(nil)
	broken := map[string][]byte{
		"empty": nil, "header only": []byte(header), "other version": sign(append([]byte("bquic proof 2\n"), file[len(header):]...)),
		"longer": append(bytes.Clone(file), 0), "larger than any": make([]byte, MaxFile+1),
	}
	for n := 1; n < len(file); n += 97 {
		broken["cut"] = file[:n]
		flipped := bytes.Clone(file)
		flipped[n] ^= 4
		broken["flipped"] = flipped
		for what, data := range broken {
			q := busyBefore
			if err := q.Restore(data, start.Add(later)); !errors.Is(err, errFile) {
				t.Fatalf("%s at %d: %v", what, n, err)
			}
			if q != busyBefore {
				t.Fatalf("%s at %d: an error has changed what was known", what, n)
			}
		}
	}
}

var busyBefore = *New(Config{Share: 0.2})

// sign sets the correct checksum.
func sign(data []byte) []byte {
	if len(data) < crc32.Size {
		return data
	}
	end := len(data) - crc32.Size
	return binary.LittleEndian.AppendUint32(bytes.Clone(data[:end]), crc32.ChecksumIEEE(data[:end]))
}

// FuzzRestore reads arbitrary files with a correct checksum. Accepted data can be used, written and read
// again.
func FuzzRestore(f *testing.F) {
	small := New(Config{Share: 0.5, Auto: true})
	for i := range uint32(50) {
		small.Record(small.Draw(start, clients[i%4], i<<27), Outcome{uint64(i) * 1e5, time.Second, time.Second * time.Duration(i)})
	}
	f.Add(small.Append(nil))
	f.Add(busy(3).Append(nil))
	f.Add([]byte(header))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := New(Config{Share: 0.1, Auto: true})
		now := start.Add(later)
		if err := p.Restore(sign(data), now); err != nil {
			if *p != *New(Config{Share: 0.1, Auto: true}) {
				t.Error("an error has changed what was known")
			}
			return
		}
		p.Record(p.Draw(now, clients[0], 1), Outcome{1e6, time.Second, time.Second})
		p.Tick(now)
		if _, err := json.Marshal(p.Report(now)); err != nil {
			t.Error(err)
		}
		if err := New(Config{Share: 0.1}).Restore(p.Append(nil), now); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}
