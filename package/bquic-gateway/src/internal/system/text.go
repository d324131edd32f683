// SPDX-License-Identifier: Apache-2.0

package system

import (
	"strings"
	"unicode"
)

// Printable keeps untrusted text on one line, and removes control characters, which could command the terminal.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}
