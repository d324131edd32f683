// SPDX-License-Identifier: Apache-2.0

// Package chacha20poly1305 is what protects QUIC packets with the AEAD of RFC
// 8439: code of its own for processors of 32 bits, for which golang.org/x/crypto
// has neither assembly nor arithmetic of that size, and x/crypto elsewhere. The
// build tag chacha32 chooses the former everywhere, for tests.
//
// No branch and no index depends on a key, a plaintext or a tag. What a
// multiplication takes is the processor's matter.
package chacha20poly1305
