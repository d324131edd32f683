// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"strings"
	"testing"
)

// FuzzEscape checks that any text from a client stays one field of one line.
func FuzzEscape(f *testing.F) {
	f.Add("/index.html")
	f.Add("x\" 200 0 \"-\" \"-\"\n127.0.0.1 - - [")
	f.Add("\x1b[2J\\\xff")
	f.Fuzz(func(t *testing.T, s string) {
		e := escape(s)
		if e == "" || len(e) > maxField+3 {
			t.Fatalf("%q has %d bytes", e, len(e))
		}
		for _, c := range []byte(e) {
			if c < ' ' || c > '~' || c == '"' {
				t.Fatalf("%q becomes %q", s, e)
			}
		}
		if plain := strings.Trim(s, "abcdefghijklmnopqrstuvwxyz/") == ""; plain && s != "" && len(s) < maxField && e != s {
			t.Fatalf("%q becomes %q", s, e)
		}
	})
}
