// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"slices"
	"unsafe"
)

// Sizes in bytes (RFC 8439, 2.8).
const (
	KeySize   = 32
	NonceSize = 12
	TagSize   = 16
)

// maxSize is how much one nonce can encrypt: block numbers have 32 bits, and the
// first block is the MAC's key. A 32-bit int cannot reach it.
const maxSize = (1<<32 - 1) * blockSize

var (
	errKeySize = errors.New("chacha20poly1305: bad key length")
	errOpen    = errors.New("chacha20poly1305: message authentication failed")
)

type aead struct {
	key [8]uint32
}

var _ cipher.AEAD = &aead{}

// newAEAD is New for 32-bit processors.
func newAEAD(key []byte) (cipher.AEAD, error) {
	if len(key) != KeySize {
		return nil, errKeySize
	}
	a := &aead{}
	loadKey(&a.key, key)
	return a, nil
}

func loadKey(words *[8]uint32, key []byte) {
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
}

func (a *aead) NonceSize() int { return NonceSize }
func (a *aead) Overhead() int  { return TagSize }

func (a *aead) Seal(dst, nonce, plaintext, additionalData []byte) []byte {
	if uint64(len(plaintext)) > maxSize {
		panic("chacha20poly1305: plaintext too large")
	}
	ret, out := extend(dst, len(plaintext)+TagSize)
	checkOverlap(out, plaintext, additionalData)
	var s stream
	var m mac
	a.begin(&s, &m, nonce)
	ciphertext := out[:len(plaintext)]
	s.xor(ciphertext, plaintext)
	tag := m.message(ciphertext, additionalData)
	copy(out[len(plaintext):], tag[:])
	return ret
}

// Open writes nothing before the message has proved authentic, so a forgery costs
// only the MAC.
func (a *aead) Open(dst, nonce, ciphertext, additionalData []byte) ([]byte, error) {
	n := len(ciphertext) - TagSize
	if n < 0 {
		return nil, errOpen
	}
	if uint64(n) > maxSize {
		panic("chacha20poly1305: ciphertext too large")
	}
	ret, out := extend(dst, n)
	checkOverlap(out, ciphertext, additionalData)
	var s stream
	var m mac
	a.begin(&s, &m, nonce)
	tag := m.message(ciphertext[:n], additionalData)
	if subtle.ConstantTimeCompare(tag[:], ciphertext[n:]) == 0 {
		return nil, errOpen
	}
	s.xor(out, ciphertext[:n])
	return ret, nil
}

// begin sets s to the keystream for a message, and m to its MAC. The MAC's key is the
// first block of the keystream (RFC 8439, 2.6).
func (a *aead) begin(s *stream, m *mac, nonce []byte) {
	if len(nonce) != NonceSize {
		panic("chacha20poly1305: bad nonce length")
	}
	s.init(&a.key, 0, (*[NonceSize]byte)(nonce))
	var block [blockSize]byte
	xorBlocks(s, block[:], block[:])
	m.init((*[32]byte)(block[:]))
}

// message returns the tag of a message (RFC 8439, 2.8).
func (m *mac) message(ciphertext, additionalData []byte) [TagSize]byte {
	m.write(additionalData)
	m.write(ciphertext)
	var sizes [16]byte
	binary.LittleEndian.PutUint64(sizes[0:], uint64(len(additionalData)))
	binary.LittleEndian.PutUint64(sizes[8:], uint64(len(ciphertext)))
	m.write(sizes[:])
	return m.sum()
}

// extend appends n bytes to b. It returns the result and the part added.
func extend(b []byte, n int) (all, added []byte) {
	all = slices.Grow(b, n)[:len(b)+n]
	return all, all[len(b):]
}

// checkOverlap panics if out overlaps another buffer in a way that [cipher.AEAD]
// forbids: additionalData, or in unless both begin at the same byte.
func checkOverlap(out, in, additionalData []byte) {
	if overlap(out, additionalData) || overlap(out, in) && &out[0] != &in[0] {
		panic("chacha20poly1305: invalid buffer overlap")
	}
}

func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// headerMask is HeaderMask for 32-bit processors.
func headerMask(mask *[5]byte, key *[KeySize]byte, sample *[16]byte) {
	var words [8]uint32
	loadKey(&words, key[:])
	var s stream
	s.init(&words, binary.LittleEndian.Uint32(sample[:]), (*[NonceSize]byte)(sample[4:]))
	var block [blockSize]byte
	xorBlocks(&s, block[:], block[:])
	copy(mask[:], block[:])
}
