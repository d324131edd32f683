// SPDX-License-Identifier: Apache-2.0

//go:build 386 || arm || mips || mipsle || chacha32

package chacha20poly1305

import "crypto/cipher"

// New returns the AEAD for a key of KeySize bytes. It is safe for concurrent use.
func New(key []byte) (cipher.AEAD, error) { return newAEAD(key) }

// HeaderMask computes the mask of a packet's header from a sample of the encrypted
// payload (RFC 9001, 5.4.4).
func HeaderMask(mask *[5]byte, key *[KeySize]byte, sample *[16]byte) {
	headerMask(mask, key, sample)
}
