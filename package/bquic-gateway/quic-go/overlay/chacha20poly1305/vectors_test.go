// SPDX-License-Identifier: Apache-2.0

package chacha20poly1305

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

func TestChaCha20Vectors(t *testing.T) {
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	for _, tc := range []struct {
		name, key, nonce string
		counter          uint32
		plain, want      string
	}{
		{
			name: "RFC 8439, 2.3.2", counter: 1, nonce: "000000090000004a00000000", plain: zeros + zeros,
			key:  "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
			want: "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4ed2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
		},
		{
			name: "RFC 8439, 2.4.2", counter: 1, nonce: "000000000000004a00000000",
			key: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
			plain: hex.EncodeToString([]byte("Ladies and Gentlemen of the class of '99: If I could offer you " +
				"only one tip for the future, sunscreen would be it.")),
			want: "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8" +
				"07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab77937365af90bbf74a35be6b40b8eedf2785e42874d",
		},
		{
			name: "RFC 8439, A.1 #1", key: zeros, nonce: "000000000000000000000000", plain: zeros + zeros,
			want: "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
		},
		{
			name: "RFC 8439, A.1 #2", key: zeros, nonce: "000000000000000000000000", counter: 1, plain: zeros + zeros,
			want: "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
		},
		{
			name: "RFC 8439, A.1 #5", key: zeros, nonce: "000000000000000000000002", plain: zeros + zeros,
			want: "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c78a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var key [8]uint32
			loadKey(&key, unhex(t, tc.key))
			var s stream
			s.init(&key, tc.counter, (*[NonceSize]byte)(unhex(t, tc.nonce)))
			out := make([]byte, len(tc.plain)/2)
			s.xor(out, unhex(t, tc.plain))
			require.Equal(t, tc.want, hex.EncodeToString(out))
		})
	}
}

// The vectors of RFC 8439, A.3 that are whole blocks, which include all edge cases of
// the arithmetic. The AEAD uses only whole blocks.
func TestPoly1305Vectors(t *testing.T) {
	const (
		zero = "00000000000000000000000000000000"
		ones = "ffffffffffffffffffffffffffffffff"
	)
	for _, tc := range []struct{ name, r, s, data, want string }{
		{"#1", zero, zero, zero + zero + zero + zero, zero},
		{"#5: below 2^130 - 5 after the reduction", "02000000000000000000000000000000", zero, ones, "03000000000000000000000000000000"},
		{"#6: the sum with s passes 2^128", "02000000000000000000000000000000", ones, "02000000000000000000000000000000", "03000000000000000000000000000000"},
		{"#7", "01000000000000000000000000000000", zero, ones + "f0ffffffffffffffffffffffffffffff" + "11000000000000000000000000000000", "05000000000000000000000000000000"},
		{"#8: exactly 2^130 - 5", "01000000000000000000000000000000", zero, ones + "fbfefefefefefefefefefefefefefefe" + "01010101010101010101010101010101", zero},
		{"#9", "02000000000000000000000000000000", zero, "fdffffffffffffffffffffffffffffff", "faffffffffffffffffffffffffffffff"},
		{"#10", "01000000000000000400000000000000", zero, "e33594d7505e43b900000000000000003394d7505e4379cd01000000000000000000000000000000000000000000000001000000000000000000000000000000", "14000000000000005500000000000000"},
		{"#11", "01000000000000000400000000000000", zero, "e33594d7505e43b900000000000000003394d7505e4379cd010000000000000000000000000000000000000000000000", "13000000000000000000000000000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var m mac
			m.init((*[32]byte)(unhex(t, tc.r+tc.s)))
			m.write(unhex(t, tc.data))
			tag := m.sum()
			require.Equal(t, tc.want, hex.EncodeToString(tag[:]))
		})
	}
}

// TestPoly1305Carries drives every word to its largest value, to check the bounds in the
// comments of addBlocks.
func TestPoly1305Carries(t *testing.T) {
	key := bytes.Repeat([]byte{0xff}, 32)
	for blocks := range 100 {
		data := bytes.Repeat([]byte{0xff}, 16*blocks)
		var m mac
		m.init((*[32]byte)(key))
		m.write(data)
		require.Equal(t, referenceMAC(key, data), m.sum(), "%d blocks", blocks)
	}
}

// TestPoly1305Sum covers all cases of the last reduction. No practical search would
// find messages that lead to most of them.
func TestPoly1305Sum(t *testing.T) {
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 130), big.NewInt(5))
	words := []uint32{0, 1, 1<<32 - 6, 1<<32 - 5, 1<<32 - 4, 1<<32 - 1}
	for h4 := range uint32(4) {
		for _, h3 := range words {
			for _, h2 := range words {
				for _, h0 := range words {
					for _, carry := range []uint32{0, 5, 10, 5 << 29} {
						for _, pad := range words {
							m := mac{h: [5]uint32{h0, h2, h2, h3, h4}, carry: carry, pad: [4]uint32{pad, pad, pad, pad}}
							want := new(big.Int)
							for _, w := range []uint32{h4, h3, h2, h2, h0} {
								want.Add(want.Lsh(want, 32), big.NewInt(int64(w)))
							}
							want.Mod(want.Add(want, big.NewInt(int64(carry))), p)
							s := big.NewInt(int64(pad))
							for range 3 {
								s.Add(s.Lsh(s, 32), big.NewInt(int64(pad)))
							}
							tag := want.Add(want, s).FillBytes(make([]byte, 32))
							slices.Reverse(tag)
							require.Equal(t, [TagSize]byte(tag[:TagSize]), m.sum(), "%x %x %x %x, carry %d, pad %x", h4, h3, h2, h0, carry, pad)
						}
					}
				}
			}
		}
	}
}

func TestHeaderMaskVector(t *testing.T) {
	// RFC 9001, A.5.
	key := unhex(t, "25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4")
	sample := unhex(t, "5e5cd55c41f69080575d7999c25a5bfb")
	for name, f := range map[string]func(*[5]byte, *[KeySize]byte, *[16]byte){"32 bits": headerMask, "chosen": HeaderMask} {
		mask := [5]byte{1, 2, 3, 4, 5}
		f(&mask, (*[KeySize]byte)(key), (*[16]byte)(sample))
		require.Equal(t, "aefefe7d03", hex.EncodeToString(mask[:]), name)
	}
}

func TestAEADVector(t *testing.T) {
	// RFC 8439, 2.8.2.
	key := unhex(t, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f")
	nonce := unhex(t, "070000004041424344454647")
	additional := unhex(t, "50515253c0c1c2c3c4c5c6c7")
	plain := "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it."
	want := unhex(t, "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"+
		"92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116"+
		"1ae10b594f09e26a7e902ecbd0600691")
	a, err := newAEAD(key)
	require.NoError(t, err)
	require.Equal(t, want, a.Seal(nil, nonce, []byte(plain), additional))
	got, err := a.Open(nil, nonce, want, additional)
	require.NoError(t, err)
	require.Equal(t, plain, string(got))
}

// wycheproof is the module with the Wycheproof vectors. No code is built from it, so
// it is not in go.mod; its checksum is in Go's checksum database.
const wycheproof = "github.com/c2sp/wycheproof@v0.0.0-20260902155932-3fa63dd0344a"

func TestWycheproof(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads " + wycheproof)
	}
	download := exec.Command("go", "mod", "download", "-json", wycheproof)
	download.Dir = t.TempDir() // must not read or write our go.mod
	out, err := download.Output()
	require.NoError(t, err, string(out))
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	file, err := os.ReadFile(filepath.Join(module.Dir, "testvectors_v1", "chacha20_poly1305_test.json"))
	require.NoError(t, err)
	var vectors struct {
		NumberOfTests int
		TestGroups    []struct {
			IVSize int
			Tests  []struct {
				ID                         int `json:"tcId"`
				Comment, Result            string
				Key, IV, AAD, Msg, CT, Tag string
			}
		}
	}
	require.NoError(t, json.Unmarshal(file, &vectors))
	seen := 0
	for _, g := range vectors.TestGroups {
		for _, v := range g.Tests {
			seen++
			nonce := unhex(t, v.IV)
			if len(nonce) != NonceSize { // Seal and Open would panic, as in all implementations
				require.Equal(t, "invalid", v.Result, "%d: %s", v.ID, v.Comment)
				continue
			}
			a, err := newAEAD(unhex(t, v.Key))
			require.NoError(t, err)
			sealed, plain, additional := unhex(t, v.CT+v.Tag), unhex(t, v.Msg), unhex(t, v.AAD)
			got, err := a.Open(nil, nonce, sealed, additional)
			if v.Result != "valid" {
				require.Error(t, err, "%d: %s", v.ID, v.Comment)
				continue
			}
			require.NoError(t, err, "%d: %s", v.ID, v.Comment)
			require.True(t, bytes.Equal(plain, got), "%d: %s", v.ID, v.Comment)
			require.Equal(t, sealed, a.Seal(nil, nonce, plain, additional), "%d: %s", v.ID, v.Comment)
		}
	}
	require.Equal(t, vectors.NumberOfTests, seen)
	require.NotZero(t, seen)
}
