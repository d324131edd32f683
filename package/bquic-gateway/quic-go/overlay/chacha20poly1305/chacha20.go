// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import "encoding/binary"

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
	whole := len(src) &^ (blockSize - 1)
	if whole > 0 {
		xorBlocks(s, dst[:whole], src[:whole])
	}
	if whole < len(src) {
		var last [blockSize]byte
		copy(last[:], src[whole:])
		xorBlocks(s, last[:], last[:])
		copy(dst[whole:], last[:])
	}
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
