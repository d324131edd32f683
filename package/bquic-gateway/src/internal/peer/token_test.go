// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseToken(t *testing.T) {
	const digits = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
	for text, want := range map[string]string{
		"password":                          "sha256:" + digits, // its SHA-256
		"sha256:" + digits:                  "sha256:" + digits,
		"SHA256:" + strings.ToUpper(digits): "sha256:" + digits,
		"sha256/" + digits:                  HashOf("sha256/" + digits).String(), // a pin is a token like any other
	} {
		if h, err := ParseToken(text); err != nil || h.String() != want {
			t.Errorf("%q: %s, %v", text, h, err)
		}
	}
	for text, because := range map[string]string{
		"":                          "0 characters",
		"1234567":                   "7 characters",
		strings.Repeat("x", 257):    "257 characters",
		"with a space":              "space",
		"pässword":                  "ASCII",
		"sha256:":                   "0 characters after",
		"sha256:" + digits[1:]:      "63 characters after",
		"sha256:" + digits + "0":    "65 characters after",
		"sha256:g" + digits[1:]:     "hexadecimal",
		"sha256: " + digits[1:]:     "hexadecimal",
		"sha256:some-secret-word-x": "18 characters after",
	} {
		_, err := ParseToken(text)
		if err == nil || !strings.Contains(err.Error(), because) {
			t.Errorf("%q: %v", text, err)
		} else if len(text) > 12 && strings.Contains(err.Error(), text[8:]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	if err := CheckToken("sha256:" + digits); err == nil {
		t.Error("a relay may show the hash")
	}
}

func TestNewToken(t *testing.T) {
	one, other := NewToken(), NewToken()
	if len(one) != 43 || one == other || CheckToken(one) != nil {
		t.Errorf("%q, %q", one, other)
	}
	kept, err := ParseToken(HashOf(one).String())
	if err != nil || !kept.Equal(HashOf(one)) || kept.Equal(HashOf(other)) {
		t.Errorf("%s: %v", kept, err)
	}
}

func TestSources(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8:0:1234::1": "2001:db8:0:1200::/56", "fe80::1%eth0": "fe80::/56",
	} {
		if got := SourceOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if SourceOf(netip.Addr{}).IsValid() {
		t.Error("the zero Addr has a source")
	}
	c := Config{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10")}}
	for addr, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "fe80::1%eth0": true, "192.0.2.1": false, "2001:db8::1": false} {
		if c.MayComeFrom(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: %t", addr, !want)
		}
	}
	if c.MayComeFrom(netip.Addr{}) || !(&Config{}).MayComeFrom(netip.MustParseAddr("192.0.2.1")) {
		t.Error("prefixes, or none")
	}
}

// FuzzParseToken checks that each token has one printed form, which parses to
// the same token, and that no error contains a secret.
func FuzzParseToken(f *testing.F) {
	f.Add("correct-horse")
	f.Add("sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8")
	f.Add("SHA256:5E884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8")
	f.Add("sha256:")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseToken(text)
		if err != nil {
			return
		}
		if again, err := ParseToken(h.String()); err != nil || again != h {
			t.Fatalf("%q becomes %s, and that %s (%v)", text, h, again, err)
		}
		hashed := strings.HasPrefix(strings.ToLower(text), hashPrefix)
		if hashed == (CheckToken(text) == nil) {
			t.Fatalf("%q is both a hash and a token, or neither", text)
		}
		if !hashed && h != HashOf(text) || hashed && !strings.EqualFold(h.String(), text) {
			t.Fatalf("%q is read as %s", text, h)
		}
	})
}
