// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import (
	"encoding/binary"
	"unsafe"
)

// A mac is the state of a Poly1305 (RFC 8439, 2.5). Numbers are arrays of 32-bit words,
// the least significant first. After clamping, r has spare bits in each word, so that
// the sum of four products fits into 64 bits. The carry from word to word of a
// multiplication is the high word of such a sum.
type mac struct {
	// h is the accumulator, modulo 2^130 - 5; carry has yet to be added to its
	// lowest word.
	h     [5]uint32
	carry uint32
	// r is the multiplier. s is its words 1 to 3 times 5/4, for products beyond 2^128
	// (2^130 is 5).
	r [4]uint32
	s [4]uint32
	// pad is added to the result.
	pad [4]uint32
}

// init takes a key, which must be used only once.
func (m *mac) init(key *[32]byte) {
	m.h, m.carry = [5]uint32{}, 0
	for i := range m.r {
		m.r[i] = binary.LittleEndian.Uint32(key[4*i:]) & 0x0ffffffc
		m.s[i] = m.r[i] + m.r[i]>>2
		m.pad[i] = binary.LittleEndian.Uint32(key[16+4*i:])
	}
	m.r[0] |= uint32(key[0]) & 3
}

// write adds b, padded with zeros to a multiple of 16 bytes.
func (m *mac) write(b []byte) {
	n := len(b) &^ 15
	m.blocks(b[:n])
	if n < len(b) {
		var last [16]byte
		copy(last[:], b[n:])
		m.blocks(last[:])
	}
}

// blocks adds b, whose length is a multiple of 16 bytes.
func (m *mac) blocks(b []byte) {
	h0, h1, h2, h3, h4, carry := m.h[0], m.h[1], m.h[2], m.h[3], m.h[4], m.carry
	r0, r1, r2, r3 := m.r[0], m.r[1], m.r[2], m.r[3]
	s1, s2, s3 := m.s[1], m.s[2], m.s[3]
	words := aligned(unsafe.Pointer(unsafe.SliceData(b)))
	for len(b) >= 16 {
		w := (*[16]byte)(b)
		var w0, w1, w2, w3 uint32
		if words {
			v := (*[4]uint32)(unsafe.Pointer(w))
			w0, w1, w2, w3 = word(v[0]), word(v[1]), word(v[2]), word(v[3])
		} else {
			w0, w1 = binary.LittleEndian.Uint32(w[0:]), binary.LittleEndian.Uint32(w[4:])
			w2, w3 = binary.LittleEndian.Uint32(w[8:]), binary.LittleEndian.Uint32(w[12:])
		}
		// h += block + 2^128.
		t := uint64(h0) + uint64(w0) + uint64(carry)
		h0 = uint32(t)
		t = uint64(h1) + uint64(w1) + t>>32
		h1 = uint32(t)
		t = uint64(h2) + uint64(w2) + t>>32
		h2 = uint32(t)
		t = uint64(h3) + uint64(w3) + t>>32
		h3 = uint32(t)
		h4 += 1 + uint32(t>>32)

		// h *= r. h4 is at most 6, r below 2^28, s below 1.25 * 2^28.
		d0 := uint64(h0)*uint64(r0) + uint64(h1)*uint64(s3) + uint64(h2)*uint64(s2) + uint64(h3)*uint64(s1)
		d1 := uint64(h0)*uint64(r1) + uint64(h1)*uint64(r0) + uint64(h2)*uint64(s3) + uint64(h3)*uint64(s2) + uint64(h4*s1) + d0>>32
		d2 := uint64(h0)*uint64(r2) + uint64(h1)*uint64(r1) + uint64(h2)*uint64(r0) + uint64(h3)*uint64(s3) + uint64(h4*s2) + d1>>32
		d3 := uint64(h0)*uint64(r3) + uint64(h1)*uint64(r2) + uint64(h2)*uint64(r1) + uint64(h3)*uint64(r0) + uint64(h4*s3) + d2>>32
		h0, h1, h2, h3 = uint32(d0), uint32(d1), uint32(d2), uint32(d3)
		h4 = h4*r0 + uint32(d3>>32)

		// The part beyond 2^130 is added five times at the bottom, with the next block.
		carry = h4>>2 + h4&^3
		h4 &= 3
		b = b[16:]
	}
	m.h, m.carry = [5]uint32{h0, h1, h2, h3, h4}, carry
}

// sum returns the tag. The mac must not be used afterwards.
func (m *mac) sum() (tag [TagSize]byte) {
	h := &m.h
	// Propagate all carries.
	t := uint64(m.carry)
	for i := range 4 {
		t += uint64(h[i])
		h[i] = uint32(t)
		t >>= 32
	}
	h[4] += uint32(t)

	// h is below 2 * (2^130 - 5). The result is h + 5 if that reaches 2^130, and
	// otherwise h, modulo 2^128.
	var g [4]uint32
	t = 5
	for i := range g {
		t += uint64(h[i])
		g[i] = uint32(t)
		t >>= 32
	}
	mask := -((h[4] + uint32(t)) >> 2) // all ones, or zero
	t = 0
	for i := range g {
		t += uint64(h[i]&^mask|g[i]&mask) + uint64(m.pad[i])
		binary.LittleEndian.PutUint32(tag[4*i:], uint32(t))
		t >>= 32
	}
	return tag
}
