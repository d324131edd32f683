// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// blockSize is the size of a block of ChaCha20's keystream, in bytes.
const blockSize = 64

// A stream is the ChaCha20 keystream of one key and nonce (RFC 8439, 2.4).
type stream struct {
	// initial is the state before the rounds of the next block; [12] counts blocks.
	initial [16]uint32
	// ahead is columns 1 to 3 after the first round, each from top to bottom. The
	// counter is in column 0, so they are the same for every block.
	ahead [12]uint32
}

// init starts the keystream at block number counter.
func (s *stream) init(key *[8]uint32, counter uint32, nonce *[NonceSize]byte) {
	x := &s.initial
	x[0], x[1], x[2], x[3] = 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 // "expand 32-byte k"
	x[4], x[5], x[6], x[7] = key[0], key[1], key[2], key[3]
	x[8], x[9], x[10], x[11] = key[4], key[5], key[6], key[7]
	x[12] = counter
	x[13] = binary.LittleEndian.Uint32(nonce[0:])
	x[14] = binary.LittleEndian.Uint32(nonce[4:])
	x[15] = binary.LittleEndian.Uint32(nonce[8:])
	y := &s.ahead
	y[0], y[1], y[2], y[3] = quarterRound(x[1]+x[5], x[5], x[9], x[13])
	y[4], y[5], y[6], y[7] = quarterRound(x[2]+x[6], x[6], x[10], x[14])
	y[8], y[9], y[10], y[11] = quarterRound(x[3]+x[7], x[7], x[11], x[15])
}

// xor sets dst to src xor the next bytes of the keystream; the rest of the last block
// is not used. dst is as long as src, and either is src or does not overlap it.
func (s *stream) xor(dst, src []byte) {
	for len(src) >= blockSize {
		s.xorBlock((*[blockSize]byte)(dst), (*[blockSize]byte)(src))
		dst, src = dst[blockSize:], src[blockSize:]
	}
	if len(src) > 0 {
		var last [blockSize]byte
		copy(last[:], src)
		s.xorBlock(&last, &last)
		copy(dst, last[:])
	}
}

// xorBlock is xor for one block. The rounds work on local variables, for which MIPS
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

// quarterRound is RFC 8439, 2.1, except that the caller has added b to a: with this
// instruction at the call, Go needs no NOP to mark the inlined call. Go recognises
// rotations spelled this way; with math/bits, it would not inline the function.
func quarterRound(a, b, c, d uint32) (uint32, uint32, uint32, uint32) {
	d ^= a
	d = d<<16 | d>>16
	c += d
	b ^= c
	b = b<<12 | b>>20
	a += b
	d ^= a
	d = d<<8 | d>>24
	c += d
	b ^= c
	b = b<<7 | b>>25
	return a, b, c, d
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
