// SPDX-License-Identifier: Apache-2.0

//go:build !(mips32r2 && (mips || mipsle))

package chacha20poly1305

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// xorBlocks is [stream.xor] for whole blocks.
func xorBlocks(s *stream, dst, src []byte) {
	for len(src) >= blockSize {
		s.xorBlock((*[blockSize]byte)(dst), (*[blockSize]byte)(src))
		dst, src = dst[blockSize:], src[blockSize:]
	}
}

// xorBlock is xorBlocks for one block. The rounds work on local variables, for which MIPS
// and ARM have enough registers.
func (s *stream) xorBlock(dst, src *[blockSize]byte) {
	x, y := &s.initial, &s.ahead
	x0, x4, x8, x12 := quarterRound(x[0]+x[4], x[4], x[8], x[12])
	x1, x5, x9, x13 := y[0], y[1], y[2], y[3]
	x2, x6, x10, x14 := y[4], y[5], y[6], y[7]
	x3, x7, x11, x15 := y[8], y[9], y[10], y[11]
	for i := 10; ; {
		x0, x5, x10, x15 = quarterRound(x0+x5, x5, x10, x15)
		x1, x6, x11, x12 = quarterRound(x1+x6, x6, x11, x12)
		x2, x7, x8, x13 = quarterRound(x2+x7, x7, x8, x13)
		x3, x4, x9, x14 = quarterRound(x3+x4, x4, x9, x14)
		if i--; i == 0 {
			break
		}
		x0, x4, x8, x12 = quarterRound(x0+x4, x4, x8, x12)
		x1, x5, x9, x13 = quarterRound(x1+x5, x5, x9, x13)
		x2, x6, x10, x14 = quarterRound(x2+x6, x6, x10, x14)
		x3, x7, x11, x15 = quarterRound(x3+x7, x7, x11, x15)
	}
	if aligned(unsafe.Pointer(dst)) && aligned(unsafe.Pointer(src)) {
		d, w := (*[16]uint32)(unsafe.Pointer(dst)), (*[16]uint32)(unsafe.Pointer(src))
		d[0] = w[0] ^ word(x0+x[0])
		d[1] = w[1] ^ word(x1+x[1])
		d[2] = w[2] ^ word(x2+x[2])
		d[3] = w[3] ^ word(x3+x[3])
		d[4] = w[4] ^ word(x4+x[4])
		d[5] = w[5] ^ word(x5+x[5])
		d[6] = w[6] ^ word(x6+x[6])
		d[7] = w[7] ^ word(x7+x[7])
		d[8] = w[8] ^ word(x8+x[8])
		d[9] = w[9] ^ word(x9+x[9])
		d[10] = w[10] ^ word(x10+x[10])
		d[11] = w[11] ^ word(x11+x[11])
		d[12] = w[12] ^ word(x12+x[12])
		d[13] = w[13] ^ word(x13+x[13])
		d[14] = w[14] ^ word(x14+x[14])
		d[15] = w[15] ^ word(x15+x[15])
	} else {
		xorWord(dst, src, 0, x0+x[0])
		xorWord(dst, src, 4, x1+x[1])
		xorWord(dst, src, 8, x2+x[2])
		xorWord(dst, src, 12, x3+x[3])
		xorWord(dst, src, 16, x4+x[4])
		xorWord(dst, src, 20, x5+x[5])
		xorWord(dst, src, 24, x6+x[6])
		xorWord(dst, src, 28, x7+x[7])
		xorWord(dst, src, 32, x8+x[8])
		xorWord(dst, src, 36, x9+x[9])
		xorWord(dst, src, 40, x10+x[10])
		xorWord(dst, src, 44, x11+x[11])
		xorWord(dst, src, 48, x12+x[12])
		xorWord(dst, src, 52, x13+x[13])
		xorWord(dst, src, 56, x14+x[14])
		xorWord(dst, src, 60, x15+x[15])
	}
	x[12]++
}

// xorWord sets the word of dst at byte i to that of src xor key. It works on bytes,
// because MIPS needs aligned loads, and to assemble words from bytes takes longer.
func xorWord(dst, src *[blockSize]byte, i int, key uint32) {
	dst[i] = src[i] ^ byte(key)
	dst[i+1] = src[i+1] ^ byte(key>>8)
	dst[i+2] = src[i+2] ^ byte(key>>16)
	dst[i+3] = src[i+3] ^ byte(key>>24)
}

// aligned says if words can be loaded at p.
func aligned(p unsafe.Pointer) bool { return uintptr(p)&3 == 0 }

// word converts a word between the processor's byte order and little endian.
func word(x uint32) uint32 {
	if cpu.IsBigEndian {
		return x<<24 | x<<8&0xff0000 | x>>8&0xff00 | x>>24
	}
	return x
}

// addBlocks adds b, whose length is a multiple of 16 bytes.
func addBlocks(m *mac, b []byte) {
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
