// SPDX-License-Identifier: Apache-2.0

package client

import "testing"

func TestParseURL(t *testing.T) {
	for _, test := range []struct{ url, want string }{
		{"https://gateway.example/10M", "https://gateway.example/10M"},
		{"https://192.0.2.1:8443/", "https://192.0.2.1:8443/"},
		{"https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/"},
		// As in browsers: RFC 5891, RFC 3492.
		{"https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"},
		{"https://BÜCHER.Example:8443/", "https://xn--bcher-kva.example:8443/"},
		{"https://b%C3%BCcher.example/", "https://xn--bcher-kva.example/"},
		{"https://例え.テスト:443/", "https://xn--r8jz45g.xn--zckzah:443/"},
		{"https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"},
		{"http://gateway.example/", ""},
		{"gateway.example", ""},
		{"https:///10M", ""},
		{"https://a\xff.example/", ""},
	} {
		u, err := ParseURL(test.url)
		switch {
		case test.want == "" && err == nil:
			t.Errorf("%s: got %s", test.url, u)
		case test.want != "" && err != nil:
			t.Errorf("%s: %v", test.url, err)
		case test.want != "" && u.String() != test.want:
			t.Errorf("%s: got %s, want %s", test.url, u, test.want)
		}
	}
}
