// SPDX-License-Identifier: Apache-2.0

package system

import "testing"

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"Dachstraße 5, 12 µs":               "Dachstraße 5, 12 µs",
		"\x1b[2Jtwo\nlines\ta\x7f":          "?[2Jtwo?lines?a?",
		"C1 \u009b, bidi \u202e, \xff byte": "C1 ?, bidi ?, \ufffd byte",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
