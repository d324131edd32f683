// SPDX-License-Identifier: Apache-2.0

//go:build mips32r2 && (mips || mipsle)

#include "go_asm.h"
#include "textflag.h"

// Words of memory are little endian, wherever they begin. SWAP reverses the bytes of a word
// on a processor that is not.
#ifdef GOARCH_mips
#define LOAD(n, p, w) MOVWL n(R(p)), R(w); MOVWR (n+3)(R(p)), R(w)
#define STORE(w, n, p) MOVWL R(w), n(R(p)); MOVWR R(w), (n+3)(R(p))
#define SWAP(w) WSBH R(w), R(w); ROTR $16, R(w)
#else
#define LOAD(n, p, w) MOVWR n(R(p)), R(w); MOVWL (n+3)(R(p)), R(w)
#define STORE(w, n, p) MOVWR R(w), n(R(p)); MOVWL R(w), (n+3)(R(p))
#define SWAP(w)
#endif

// Registers that both functions use.
#define state 1
#define src 2
#define left 3
#define t 4

// ChaCha20's. The state of the rounds is in x0 to x15.
#define dst 5
#define round 6
#define x0 7
#define x1 8
#define x2 9
#define x3 10
#define x4 11
#define x5 12
#define x6 13
#define x7 14
#define x8 15
#define x9 16
#define x10 17
#define x11 18
#define x12 19
#define x13 20
#define x14 21
#define x15 22

#define QUARTER_ROUND(a, b, c, d) \
	ADDU R(b), R(a); XOR R(a), R(d); ROTR $16, R(d); \
	ADDU R(d), R(c); XOR R(c), R(b); ROTR $20, R(b); \
	ADDU R(b), R(a); XOR R(a), R(d); ROTR $24, R(d); \
	ADDU R(d), R(c); XOR R(c), R(b); ROTR $25, R(b)

// OUTPUT sets a word of dst to that of src xor the keystream.
#define OUTPUT(i, x) \
	MOVW (stream_initial+4*i)(R(state)), R(t); \
	ADDU R(t), R(x); \
	SWAP(x); \
	LOAD(4*i, src, t); \
	XOR R(t), R(x); \
	STORE(x, 4*i, dst)

// func xorBlocks(s *stream, dst, src []byte)
TEXT ·xorBlocks(SB), NOSPLIT, $0-28
	MOVW s+0(FP), R(state)
	MOVW dst_base+4(FP), R(dst)
	MOVW src_base+16(FP), R(src)
	MOVW src_len+20(FP), R(left)

block:
	MOVW (stream_initial+0)(R(state)), R(x0)
	MOVW (stream_initial+16)(R(state)), R(x4)
	MOVW (stream_initial+32)(R(state)), R(x8)
	MOVW (stream_initial+48)(R(state)), R(x12)
	MOVW (stream_ahead+0)(R(state)), R(x1)
	MOVW (stream_ahead+4)(R(state)), R(x5)
	MOVW (stream_ahead+8)(R(state)), R(x9)
	MOVW (stream_ahead+12)(R(state)), R(x13)
	MOVW (stream_ahead+16)(R(state)), R(x2)
	MOVW (stream_ahead+20)(R(state)), R(x6)
	MOVW (stream_ahead+24)(R(state)), R(x10)
	MOVW (stream_ahead+28)(R(state)), R(x14)
	MOVW (stream_ahead+32)(R(state)), R(x3)
	MOVW (stream_ahead+36)(R(state)), R(x7)
	MOVW (stream_ahead+40)(R(state)), R(x11)
	MOVW (stream_ahead+44)(R(state)), R(x15)
	QUARTER_ROUND(x0, x4, x8, x12)
	MOVW $9, R(round)

rounds:
	QUARTER_ROUND(x0, x5, x10, x15)
	QUARTER_ROUND(x1, x6, x11, x12)
	QUARTER_ROUND(x2, x7, x8, x13)
	QUARTER_ROUND(x3, x4, x9, x14)
	QUARTER_ROUND(x0, x4, x8, x12)
	QUARTER_ROUND(x1, x5, x9, x13)
	QUARTER_ROUND(x2, x6, x10, x14)
	QUARTER_ROUND(x3, x7, x11, x15)
	ADDU $-1, R(round)
	BNE R(round), rounds

	QUARTER_ROUND(x0, x5, x10, x15)
	QUARTER_ROUND(x1, x6, x11, x12)
	QUARTER_ROUND(x2, x7, x8, x13)
	QUARTER_ROUND(x3, x4, x9, x14)

	OUTPUT(0, x0)
	OUTPUT(1, x1)
	OUTPUT(2, x2)
	OUTPUT(3, x3)
	OUTPUT(4, x4)
	OUTPUT(5, x5)
	OUTPUT(6, x6)
	OUTPUT(7, x7)
	OUTPUT(8, x8)
	OUTPUT(9, x9)
	OUTPUT(10, x10)
	OUTPUT(11, x11)
	OUTPUT(12, x12)
	OUTPUT(13, x13)
	OUTPUT(14, x14)
	OUTPUT(15, x15)

	MOVW (stream_initial+48)(R(state)), R(t)
	ADDU $1, R(t)
	MOVW R(t), (stream_initial+48)(R(state))
	ADDU $64, R(dst)
	ADDU $64, R(src)
	ADDU $-64, R(left)
	BNE R(left), block
	RET

// Poly1305's. An accumulator word is in h0 to h3 before, and in g0 to g3 after the multiplication.
#define h0 5
#define h1 6
#define h2 7
#define h3 8
#define h4 9
#define g0 10
#define g1 11
#define g2 12
#define g3 13
#define carry 14
#define r0 15
#define r1 16
#define r2 17
#define r3 18
#define s1 19
#define s2 20
#define s3 21
#define one 22
#define c 24

// MULTIPLY sets HI and LO to the product of two words, and ADD_PRODUCT (maddu) adds the product to them.
#define MULTIPLY(a, b) MULU R(a), R(b)
#define ADD_PRODUCT(a, b) WORD $(0x70000001 | a<<21 | b<<16)

// ADD_WORD sets h to g plus a word of src and c, and c to the carry, at most 2.
#define ADD_WORD(n, g, h) \
	LOAD(n, src, t); \
	SWAP(t); \
	ADDU R(g), R(t), R(h); \
	SGTU R(t), R(h), R(t); \
	ADDU R(c), R(h); \
	SGTU R(c), R(h), R(c); \
	ADDU R(t), R(c)

// func addBlocks(m *mac, b []byte)
TEXT ·addBlocks(SB), NOSPLIT, $0-16
	MOVW m+0(FP), R(state)
	MOVW b_base+4(FP), R(src)
	MOVW b_len+8(FP), R(left)
	MOVW (mac_h+0)(R(state)), R(g0)
	MOVW (mac_h+4)(R(state)), R(g1)
	MOVW (mac_h+8)(R(state)), R(g2)
	MOVW (mac_h+12)(R(state)), R(g3)
	MOVW (mac_h+16)(R(state)), R(h4)
	MOVW mac_carry(R(state)), R(c)
	MOVW (mac_r+0)(R(state)), R(r0)
	MOVW (mac_r+4)(R(state)), R(r1)
	MOVW (mac_r+8)(R(state)), R(r2)
	MOVW (mac_r+12)(R(state)), R(r3)
	MOVW (mac_s+4)(R(state)), R(s1)
	MOVW (mac_s+8)(R(state)), R(s2)
	MOVW (mac_s+12)(R(state)), R(s3)
	MOVW $1, R(one)

block:
	// h += block + 2^128.
	ADD_WORD(0, g0, h0)
	ADD_WORD(4, g1, h1)
	ADD_WORD(8, g2, h2)
	ADD_WORD(12, g3, h3)
	ADDU R(c), R(h4)
	ADDU $1, R(h4)

	// h *= r, as in generic.go.
	MULTIPLY(h0, r0)
	ADD_PRODUCT(h1, s3)
	ADD_PRODUCT(h2, s2)
	ADD_PRODUCT(h3, s1)
	MOVW HI, R(c)
	MOVW LO, R(g0)
	MULTIPLY(h0, r1)
	ADD_PRODUCT(h1, r0)
	ADD_PRODUCT(h2, s3)
	ADD_PRODUCT(h3, s2)
	ADD_PRODUCT(h4, s1)
	ADD_PRODUCT(c, one)
	MOVW HI, R(c)
	MOVW LO, R(g1)
	MULTIPLY(h0, r2)
	ADD_PRODUCT(h1, r1)
	ADD_PRODUCT(h2, r0)
	ADD_PRODUCT(h3, s3)
	ADD_PRODUCT(h4, s2)
	ADD_PRODUCT(c, one)
	MOVW HI, R(c)
	MOVW LO, R(g2)
	MULTIPLY(h0, r3)
	ADD_PRODUCT(h1, r2)
	ADD_PRODUCT(h2, r1)
	ADD_PRODUCT(h3, r0)
	ADD_PRODUCT(h4, s3)
	ADD_PRODUCT(c, one)
	MOVW HI, R(c)
	MOVW LO, R(g3)
	MUL R(r0), R(h4), R(h4)
	ADDU R(c), R(h4)

	// The part beyond 2^130 is added five times at the bottom, with the next block.
	AND $3, R(h4), R(t)
	SRL $2, R(h4), R(c)
	ADDU R(h4), R(c)
	SUBU R(t), R(c)
	MOVW R(t), R(h4)

	ADDU $16, R(src)
	ADDU $-16, R(left)
	BNE R(left), block

	MOVW R(g0), (mac_h+0)(R(state))
	MOVW R(g1), (mac_h+4)(R(state))
	MOVW R(g2), (mac_h+8)(R(state))
	MOVW R(g3), (mac_h+12)(R(state))
	MOVW R(h4), (mac_h+16)(R(state))
	MOVW R(c), mac_carry(R(state))
	RET
