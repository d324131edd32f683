// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/chacha20"
	reference "golang.org/x/crypto/chacha20poly1305"
)

// referenceMAC is Poly1305 of whole blocks, after RFC 8439, 2.5.1.
func referenceMAC(key, data []byte) (tag [TagSize]byte) {
	number := func(littleEndian []byte) *big.Int {
		b := slices.Clone(littleEndian)
		slices.Reverse(b)
		return new(big.Int).SetBytes(b)
	}
	r := slices.Clone(key[:16])
	for _, i := range []int{3, 7, 11, 15} {
		r[i] &= 15
	}
	for _, i := range []int{4, 8, 12} {
		r[i] &= 252
	}
	p := new(big.Int).Lsh(big.NewInt(1), 130)
	p.Sub(p, big.NewInt(5))
	h := new(big.Int)
	for block := range slices.Chunk(data, 16) {
		h.Add(h, number(append(slices.Clone(block), 1)))
		h.Mod(h.Mul(h, number(r)), p)
	}
	h.Add(h, number(key[16:]))
	out := h.FillBytes(make([]byte, 32))
	slices.Reverse(out)
	return [TagSize]byte(out[:TagSize])
}

func pair(t *testing.T, key []byte) (ours, want cipher.AEAD) {
	t.Helper()
	ours, err := newAEAD(key)
	require.NoError(t, err)
	want, err = reference.New(key)
	require.NoError(t, err)
	return ours, want
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// compare seals and opens with both implementations, in every way that is allowed.
func compare(t *testing.T, key, nonce, plain, additional []byte, flip int) {
	ours, want := pair(t, key)
	prefix := []byte("before")
	sealed := want.Seal(nil, nonce, plain, additional)
	require.Equal(t, append(slices.Clone(prefix), sealed...), ours.Seal(slices.Clone(prefix), nonce, plain, additional))

	inPlace := append(slices.Clone(prefix), plain...)
	inPlace = slices.Grow(inPlace, TagSize)
	got := ours.Seal(inPlace[:len(prefix)], nonce, inPlace[len(prefix):], additional)
	require.Equal(t, append(slices.Clone(prefix), sealed...), got)
	require.Same(t, &inPlace[0], &got[0])

	opened, err := ours.Open(slices.Clone(prefix), nonce, sealed, additional)
	require.NoError(t, err)
	require.Equal(t, append(slices.Clone(prefix), plain...), opened)
	opened, err = ours.Open(got[:len(prefix)], nonce, got[len(prefix):], additional)
	require.NoError(t, err)
	require.Equal(t, append(slices.Clone(prefix), plain...), opened)

	// One wrong bit, in the ciphertext, the additional data or the nonce.
	changed := slices.Concat(sealed, additional, nonce)
	bit := flip % (8 * len(changed))
	changed[bit/8] ^= 1 << (bit % 8)
	forged := changed[:len(sealed)]
	rest := changed[len(sealed):]
	dst := bytes.Repeat([]byte{0xa5}, len(plain))
	opened, err = ours.Open(dst[:0], rest[len(additional):], forged, rest[:len(additional)])
	require.Error(t, err)
	require.Nil(t, opened)
	require.Equal(t, bytes.Repeat([]byte{0xa5}, len(plain)), dst, "nothing is written of what is not authentic")
	_, err = ours.Open(nil, nonce, sealed[:min(flip%TagSize, len(sealed))], additional)
	require.Error(t, err, "too short")
}

func TestLikeReference(t *testing.T) {
	most := 2000
	if testing.Short() {
		most = 300 // under emulation
	}
	for n := range most + 1 {
		compare(t, random(KeySize), random(NonceSize), random(n), random(n*7%67), 31*n)
	}
}

func TestTampered(t *testing.T) {
	a, err := newAEAD(random(KeySize))
	require.NoError(t, err)
	nonce, additional := random(NonceSize), random(5)
	for _, plain := range [][]byte{nil, random(40), random(100)} {
		sealed := a.Seal(nil, nonce, plain, additional)
		for _, b := range [][]byte{sealed, nonce, additional} {
			for bit := range 8 * len(b) {
				b[bit/8] ^= 1 << (bit % 8)
				_, err := a.Open(nil, nonce, sealed, additional)
				require.Error(t, err, "bit %d", bit)
				b[bit/8] ^= 1 << (bit % 8)
			}
		}
		_, err = a.Open(nil, nonce, sealed, additional)
		require.NoError(t, err)
	}
}

func TestAlignments(t *testing.T) {
	key, nonce, plain := random(KeySize), random(NonceSize), random(1300)
	ours, want := pair(t, key)
	for src := range 8 {
		for dst := range 8 {
			for _, n := range []int{0, 1, 63, 64, 65, 1284} {
				in := append(make([]byte, src, src+n), plain[:n]...)[src:]
				additional := plain[dst : dst+13]
				out := make([]byte, dst, dst+n+TagSize)
				sealed := want.Seal(nil, nonce, in, additional)
				require.Equal(t, sealed, ours.Seal(out, nonce, in, additional)[dst:])
				moved := append(make([]byte, src, src+len(sealed)), sealed...)[src:]
				opened, err := ours.Open(out, nonce, moved, additional)
				require.NoError(t, err)
				require.Equal(t, in, opened[dst:])
			}
		}
	}
}

func TestHeaderMask(t *testing.T) {
	for range 1000 {
		key, sample := [KeySize]byte(random(KeySize)), [16]byte(random(16))
		var want [5]byte
		c, err := chacha20.NewUnauthenticatedCipher(key[:], sample[4:])
		require.NoError(t, err)
		c.SetCounter(uint32(sample[0]) | uint32(sample[1])<<8 | uint32(sample[2])<<16 | uint32(sample[3])<<24)
		c.XORKeyStream(want[:], want[:])
		got, chosen := [5]byte{1, 2, 3, 4, 5}, [5]byte{1, 2, 3, 4, 5}
		headerMask(&got, &key, &sample)
		require.Equal(t, want, got)
		HeaderMask(&chosen, &key, &sample)
		require.Equal(t, want, chosen)
	}
}

func TestMisuse(t *testing.T) {
	for _, n := range []int{0, 16, 31, 33} {
		_, err := newAEAD(make([]byte, n))
		require.Error(t, err)
	}
	a, err := newAEAD(make([]byte, KeySize))
	require.NoError(t, err)
	require.Equal(t, NonceSize, a.NonceSize())
	require.Equal(t, TagSize, a.Overhead())
	nonce := make([]byte, NonceSize)
	b := make([]byte, 200)
	for name, f := range map[string]func(){
		"short nonce":                      func() { a.Seal(nil, nonce[1:], b, nil) },
		"long nonce":                       func() { a.Seal(nil, b[:13], b, nil) },
		"short nonce, opening":             func() { _, _ = a.Open(nil, nonce[1:], b, nil) },
		"output one byte after the input":  func() { a.Seal(b[1:1], nonce, b[:100], nil) },
		"output one byte before the input": func() { a.Seal(b[:0], nonce, b[1:100], nil) },
		"input in the tag":                 func() { a.Seal(b[:0], nonce, b[20:30], nil) },
		"output over the additional data":  func() { a.Seal(b[:0], nonce, b[:100], b[115:120]) },
		"opening to one byte before":       func() { _, _ = a.Open(b[:0], nonce, b[1:100], nil) },
		"opening over the additional data": func() { _, _ = a.Open(b[:0], nonce, b[:100], b[80:90]) },
	} {
		require.Panics(t, f, name)
	}
	// Adjacent buffers do not overlap.
	require.NotPanics(t, func() { a.Seal(b[:0:116], nonce, b[:100], b[116:120]) })
	require.NotPanics(t, func() { a.Seal(b[100:100], nonce, b[:80], b[80:100]) })
}

func TestNoAllocations(t *testing.T) {
	a, err := newAEAD(make([]byte, KeySize))
	require.NoError(t, err)
	nonce, b, sealed := make([]byte, NonceSize), make([]byte, 1300), make([]byte, 0, 1300)
	var mask [5]byte
	var key [KeySize]byte
	var sample [16]byte
	require.Zero(t, testing.AllocsPerRun(10, func() {
		sealed = a.Seal(sealed[:0], nonce, b[:1284], b[1284:])
		if _, err := a.Open(b[:0], nonce, sealed, b[1284:]); err != nil {
			panic(err)
		}
		headerMask(&mask, &key, &sample)
	}))
}

func FuzzLikeReference(f *testing.F) {
	f.Add([]byte{}, []byte{}, []byte{}, []byte{}, uint16(0))
	f.Add(bytes.Repeat([]byte{0xff}, KeySize), bytes.Repeat([]byte{0xff}, NonceSize), bytes.Repeat([]byte{0xff}, 130), []byte("13 of header."), uint16(7))
	f.Fuzz(func(t *testing.T, key, nonce, plain, additional []byte, flip uint16) {
		var k [KeySize]byte
		var n [NonceSize]byte
		copy(k[:], key)
		copy(n[:], nonce)
		compare(t, k[:], n[:], plain[:min(len(plain), 2000)], additional[:min(len(additional), 2000)], int(flip))

		// The MAC alone: sealed data hardly ever gives extreme words.
		var macKey [32]byte
		copy(macKey[:], additional)
		whole := plain[:len(plain)&^15]
		var m mac
		m.init(&macKey)
		m.write(whole)
		require.Equal(t, referenceMAC(macKey[:], whole), m.sum())
	})
}

// BenchmarkPacket measures all work on a packet. make bench-router counts instructions
// per byte.
func BenchmarkPacket(b *testing.B) {
	for _, of := range []struct {
		name string
		make func([]byte) (cipher.AEAD, error)
	}{{"32 bits", newAEAD}, {"reference", reference.New}} {
		for _, size := range []int{1200, 1300, 1400} {
			a, err := of.make(make([]byte, KeySize))
			require.NoError(b, err)
			nonce, header := make([]byte, NonceSize), make([]byte, 7)
			packet := make([]byte, size)
			sealed := a.Seal(nil, nonce, packet[:size-TagSize], header)
			b.Run(fmt.Sprintf("seal/%s/%d", of.name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for range b.N {
					a.Seal(packet[:0], nonce, packet[:size-TagSize], header)
				}
			})
			b.Run(fmt.Sprintf("open/%s/%d", of.name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for range b.N {
					if _, err := a.Open(packet[:0], nonce, sealed, header); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
