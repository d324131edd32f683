// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bquic/internal/cert"
	"bquic/internal/divert"
)

// validConfig returns a configuration that has what is required.
func validConfig() Config {
	return Config{Gateways: InOrder("gateway.example:443"), Pins: make([]cert.Pin, 1), Token: "correct-horse", Interfaces: []string{"lo"}}
}

func TestConfig(t *testing.T) {
	c := validConfig()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/nonexistent", "/dev/null"} {
		c.Pins, c.CAFile = nil, file
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), "ca: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v", file, err)
		}
	}
}

// TestLinkLocalAuthority has a gateway whose address has a zone, which is the relay's own name for its device.
func TestLinkLocalAuthority(t *testing.T) {
	dir := t.TempDir()
	pair, _, err := cert.LoadOrCreate(dir, []string{"fe80::9"})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	c := validConfig()
	c.Pins, c.CAFile = nil, filepath.Join(dir, "cert.pem")
	s, err := newSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	for gateway, good := range map[string]bool{"[fe80::9%mesh]:8443": true, "[fe80::8%mesh]:8443": false} {
		if err := s.trusts(gateway, tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown}}); (err == nil) != good {
			t.Errorf("%s: %v", gateway, err)
		}
	}
}

func TestClientHello(t *testing.T) {
	for _, tc := range []struct {
		data []byte
		want int
	}{
		{nil, 0},
		{[]byte{22, 3, 1, 0}, 0},
		{[]byte{22, 3, 1, 0, 3}, 5},
		{[]byte{22, 3, 1, 0, 3, 'a'}, 6},
		{[]byte{22, 3, 1, 0, 3, 'a', 'b', 'c'}, 8},
		{[]byte{22, 3, 1, 0, 3, 'a', 'b', 'c', 23, 3, 3}, 8}, // early data waits
		{[]byte("POST / HTTP/1.1\r\n"), 0},
		{[]byte("SSH-2.0-OpenSSH_9.2\r\n"), 0},
	} {
		if got := clientHello(tc.data); got != tc.want {
			t.Errorf("%q: %d, not %d", tc.data, got, tc.want)
		}
	}
}

// TestApplyFixed checks that nothing of an option that needs a restart takes effect before.
func TestApplyFixed(t *testing.T) {
	var log bytes.Buffer
	r, err := New(validConfig(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	before := r.now.Load()
	c := validConfig()
	c.Mode, c.Port, c.Connections, c.Bridge = divert.TProxy, 1, 8, BridgeOff
	c.StateDir, c.StatusSocket, c.Metrics = "/s", "/t", "[::1]:2"
	if err := r.Apply(c); err != nil {
		t.Fatal(err)
	}
	after := r.now.Load()
	if !slices.Equal(after.Options(), before.Options()) {
		t.Errorf("%v has become %v", before.Options(), after.Options())
	}
	if is, was := after.quic.MaxConnectionReceiveWindow, before.quic.MaxConnectionReceiveWindow; is != was {
		t.Errorf("a connection's window was %d and is %d", was, is)
	}
	for _, o := range before.Options() {
		if !strings.Contains(log.String(), "option=relay."+o[0]+" ") {
			t.Errorf("nothing says that %s needs a restart: %s", o[0], log.String())
		}
	}
}
