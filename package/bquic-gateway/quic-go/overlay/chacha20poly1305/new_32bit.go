// SPDX-License-Identifier: Apache-2.0

//go:build 386 || arm || mips || mipsle || chacha32

package chacha20poly1305

import "crypto/cipher"

// New returns the AEAD for a key of KeySize bytes. It may be used by several
// goroutines at a time.
func New(key []byte) (cipher.AEAD, error) { return newAEAD(key) }

// HeaderMask computes the mask of a packet's header from a sample of what the
// AEAD made of its payload (RFC 9001, 5.4.4).
func HeaderMask(mask *[5]byte, key *[KeySize]byte, sample *[16]byte) {
	headerMask(mask, key, sample)
}
