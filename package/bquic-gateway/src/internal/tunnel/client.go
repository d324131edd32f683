// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/http"
	"strconv"
	"strings"
)

// A relay numbers its clients, for the gateway to share the relay's connection
// equally between them. The number travels in the request as an obfuscated
// identifier (RFC 7239, section 6.3): it says which tunnels are of one client, and
// nothing of who that is.
const (
	forwarded  = "Forwarded"
	obfuscated = "for=_"
)

// SetClient has a request for a tunnel say which of the relay's clients it is for:
// 1 to 255, 0 for one that has no number.
func SetClient(h http.Header, number uint8) {
	if number > 0 {
		h[forwarded] = []string{obfuscated + strconv.Itoa(int(number))}
	}
}

// clientOf returns that number, 0 if there is none. It is the relay's word, good for
// the order among its own tunnels and nothing else.
func clientOf(h http.Header) uint8 {
	digits, ok := strings.CutPrefix(h.Get(forwarded), obfuscated)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 8)
	if err != nil {
		return 0
	}
	return uint8(n)
}
