// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/http"
	"testing"
)

func TestClient(t *testing.T) {
	for n := range 256 {
		h := http.Header{}
		SetClient(h, uint8(n))
		if got := clientOf(h); got != uint8(n) {
			t.Errorf("%d became %d", n, got)
		}
		if n == 0 && len(h) != 0 {
			t.Errorf("who has no number sends %v", h)
		}
	}
	for _, text := range []string{
		"", "for=_", "for=_256", "for=_-1", "for=_+1", "for=_1 ", "for=_0x1", "for=_1_0", "for=_1;by=_2", "for=192.0.2.1", "by=_1",
		"for=_99999999999999999999", "For=_1",
	} {
		if n := clientOf(http.Header{"Forwarded": {text}}); n != 0 {
			t.Errorf("%q is client %d", text, n)
		}
	}
}

func FuzzClient(f *testing.F) {
	f.Add("for=_17")
	f.Add("for=192.0.2.60;proto=http;by=203.0.113.43")
	f.Fuzz(func(t *testing.T, text string) {
		n := clientOf(http.Header{"Forwarded": {text}})
		again := http.Header{}
		SetClient(again, n)
		if got := clientOf(again); got != n {
			t.Errorf("%q is client %d, and then %d", text, n, got)
		}
	})
}
