// SPDX-License-Identifier: Apache-2.0

//go:build mips32r2 && (mips || mipsle)

package chacha20poly1305

// xorBlocks is [stream.xor] for whole blocks, of which there must be one.
//
//go:noescape
func xorBlocks(s *stream, dst, src []byte)

// addBlocks adds b, whose length must be a multiple of 16 bytes, and not 0.
//
//go:noescape
func addBlocks(m *mac, b []byte)
