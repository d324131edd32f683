// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import "encoding/binary"

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
	if n > 0 {
		addBlocks(m, b[:n])
	}
	if n < len(b) {
		var last [16]byte
		copy(last[:], b[n:])
		addBlocks(m, last[:])
	}
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
