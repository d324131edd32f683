// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	// hashPrefix marks a token that is stored as its hash.
	hashPrefix = "sha256:"
	// A token with tokenBytes random bytes cannot be guessed, so its hash needs
	// neither a salt nor a slow function.
	tokenBytes = 32

	minToken, maxToken = 8, 256 // characters
)

// A Hash is a token's SHA-256 hash, which is all that a gateway needs of it.
type Hash [sha256.Size]byte

// NewToken makes a token of 43 characters (base64url).
func NewToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// HashOf returns the hash of a token.
func HashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// String returns the hash in the form that ParseToken reads.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// Equal compares in constant time.
func (h Hash) Equal(other Hash) bool { return subtle.ConstantTimeCompare(h[:], other[:]) == 1 }

// CheckToken returns what is wrong with a token in the form that a relay
// presents, which is never a hash.
func CheckToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' { // the token is sent in a header field
			return errors.New("contains a space or a character that is not printable ASCII")
		}
	}
	if len(token) < minToken || len(token) > maxToken {
		return fmt.Errorf("has %d characters, expected %d to %d", len(token), minToken, maxToken)
	}
	if strings.HasPrefix(strings.ToLower(token), hashPrefix) {
		return errors.New("is the hash of a token: a relay needs the token itself")
	}
	return nil
}

// ParseToken reads a token as a gateway stores it: "sha256:" and the 64
// hexadecimal digits of its hash, or the token itself.
func ParseToken(text string) (Hash, error) {
	if len(text) < len(hashPrefix) || !strings.EqualFold(text[:len(hashPrefix)], hashPrefix) {
		return HashOf(text), CheckToken(text)
	}
	var h Hash
	digits := text[len(hashPrefix):]
	// Errors do not show the text: it may be a token after all.
	if len(digits) != hex.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("has %d characters after %s, expected %d", len(digits), hashPrefix, hex.EncodedLen(len(h)))
	}
	if _, err := hex.Decode(h[:], []byte(digits)); err != nil {
		return Hash{}, fmt.Errorf("has a character after %s that is not a hexadecimal digit", hashPrefix)
	}
	return h, nil
}
