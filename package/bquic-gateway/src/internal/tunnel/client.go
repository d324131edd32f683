// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/http"
	"strconv"
	"strings"
)

// A relay numbers its clients, so that the gateway can share the relay's connection equally
// between them. The request carries the number as an obfuscated identifier (RFC 7239,
// section 6.3): it tells which tunnels belong to the same client, but not who the client is.
const (
	forwarded  = "Forwarded"
	obfuscated = "for=_"
)

// SetClient adds the number of the relay's client to a request for a tunnel: 1 to
// 255, or 0 for a client without a number.
func SetClient(h http.Header, number uint8) {
	if number > 0 {
		h[forwarded] = []string{obfuscated + strconv.Itoa(int(number))}
	}
}

// clientOf returns the client's number, 0 if there is none. The relay chooses it, so
// it may only decide the order among the relay's own tunnels.
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
