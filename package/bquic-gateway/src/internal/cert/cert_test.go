// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/ecdsa"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadOrCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "bquic")
	// The router's own name may be in UTF-8 or in Latin-1, and a certificate may not contain it.
	first, created, err := LoadOrCreate(dir, []string{"a.example", "*", "a.example", "192.0.2.1", "2001:db8::1", "Küche", "K\xfcche"})
	if err != nil || !created {
		t.Fatalf("created %t, %v", created, err)
	}
	leaf := first.Leaf
	if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != "a.example" || len(leaf.IPAddresses) != 2 {
		t.Errorf("names %q, addresses %v", leaf.DNSNames, leaf.IPAddresses)
	}
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve.Params().Name != "P-256" {
		t.Errorf("key is a %T", leaf.PublicKey)
	}
	for name, mode := range map[string]os.FileMode{"key.pem": 0o600, "cert.pem": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}

	again, created, err := LoadOrCreate(dir, []string{"other.example"})
	if err != nil || created || PinOf(again.Leaf) != PinOf(leaf) {
		t.Errorf("the kept one was not used: created %t, %v", created, err)
	}

	// After a power cut between the two files, or if only the key was restored: relays know its pin.
	if err := os.Remove(filepath.Join(dir, "cert.pem")); err != nil {
		t.Fatal(err)
	}
	if again, created, err := LoadOrCreate(dir, nil); err != nil || !created || PinOf(again.Leaf) != PinOf(leaf) {
		t.Errorf("another key: created %t, %v", created, err)
	}

	// A damaged certificate is not replaced, because relays may know its pin.
	if err := os.WriteFile(filepath.Join(dir, "key.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, created, err := LoadOrCreate(dir, nil); err == nil || created {
		t.Errorf("created %t, %v", created, err)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert1, key1, err := selfSigned(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, key2, err := selfSigned(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, k, other, junk := file("c", cert1), file("k", key1), file("other", key2), file("junk", []byte("junk"))
	if _, err := load(c, k); err != nil {
		t.Errorf("the right pair: %v", err)
	}
	for _, test := range []struct{ cert, key, want string }{
		{c, dir + "/none", "cannot read key: open " + dir + "/none: no such file or directory"},
		{dir + "/none", k, "cannot read certificate: open " + dir + "/none: no such file or directory"},
		{c, other, "certificate " + c + " and key " + other + ": private key does not match public key"},
		{junk, k, "certificate " + junk + " and key " + k + ": failed to find any PEM data in certificate input"},
		{c, junk, "certificate " + c + " and key " + junk + ": failed to find any PEM data in key input"},
	} {
		if _, err := load(test.cert, test.key); err == nil || err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}

func TestPin(t *testing.T) {
	// RFC 7469's example does not include the key. The expected pin is from openssl: openssl x509
	// -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64
	data, err := os.ReadFile("testdata/cert.pem")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/cert.pin")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := tls.X509KeyPair(data, data)
	if err != nil {
		t.Fatal(err)
	}
	pin := PinOf(pool.Leaf)
	if pin.String() != strings.TrimSpace(string(want)) {
		t.Errorf("got %s, want %s", pin, want)
	}
	if again, err := ParsePin(pin.String()); err != nil || again != pin {
		t.Errorf("read again: %s, %v", again, err)
	}
	for _, s := range []string{"", "sha256/", pin.String()[1:], strings.TrimPrefix(pin.String(), "sha256/"), pin.String() + "A", "sha1/" + pin.String()[7:], "sha256/AAAA"} {
		if _, err := ParsePin(s); err == nil {
			t.Errorf("%q was taken for a pin", s)
		}
	}
}

func TestVerify(t *testing.T) {
	certPEM, keyPEM, err := selfSigned(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	handshake := func(pin Pin) error {
		conf := &tls.Config{ServerName: "any.example"}
		Verify(conf, pin)
		conn, err := tls.Dial("tcp", ln.Addr().String(), conf)
		if err == nil {
			conn.Close()
		}
		return err
	}
	right := PinOf(c.Leaf)
	if err := handshake(right); err != nil {
		t.Errorf("right pin: %v", err)
	}
	wrong := right
	wrong[0]++
	if err := handshake(wrong); err == nil || !strings.Contains(err.Error(), "wrong pin: the server's key is "+right.String()) {
		t.Errorf("wrong pin: %v", err)
	}
}

func FuzzParsePin(f *testing.F) {
	f.Add("sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	f.Add("sha256/AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=")
	f.Add("sha256/")
	f.Fuzz(func(t *testing.T, s string) {
		pin, err := ParsePin(s)
		if err == nil && strings.NewReplacer("\r", "", "\n", "").Replace(s) != pin.String() {
			t.Errorf("%q was read as %s", s, pin)
		}
	})
}
