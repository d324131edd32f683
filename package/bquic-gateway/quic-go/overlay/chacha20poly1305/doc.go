// SPDX-License-Identifier: Apache-2.0

// Package chacha20poly1305 protects QUIC packets with the AEAD of RFC 8439. It has its
// own code for 32-bit processors, for which golang.org/x/crypto has neither assembly
// nor 32-bit arithmetic, and uses x/crypto elsewhere. The build tag chacha32 selects
// the own code everywhere, for tests. The build tag mips32r2 selects assembly, for MIPS
// processors with at least release 2 of MIPS32.
//
// No branch and no index depends on a key, a plaintext or a tag. Whether a
// multiplication takes constant time depends on the processor.
package chacha20poly1305
