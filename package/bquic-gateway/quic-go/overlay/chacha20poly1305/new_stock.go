// SPDX-License-Identifier: Apache-2.0

//go:build !(386 || arm || mips || mipsle || chacha32)

package chacha20poly1305

import (
	"crypto/cipher"
	"encoding/binary"

	"golang.org/x/crypto/chacha20"
	stock "golang.org/x/crypto/chacha20poly1305"
)

// New returns the AEAD for a key of KeySize bytes. It is safe for concurrent use.
func New(key []byte) (cipher.AEAD, error) { return stock.New(key) }

// HeaderMask computes the mask of a packet's header from a sample of the encrypted
// payload (RFC 9001, 5.4.4).
func HeaderMask(mask *[5]byte, key *[KeySize]byte, sample *[16]byte) {
	c, err := chacha20.NewUnauthenticatedCipher(key[:], sample[4:])
	if err != nil {
		panic(err) // the sizes are right
	}
	c.SetCounter(binary.LittleEndian.Uint32(sample[:]))
	*mask = [5]byte{}
	c.XORKeyStream(mask[:], mask[:])
}
