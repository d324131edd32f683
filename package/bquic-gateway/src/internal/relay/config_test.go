// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"

	"bquic/internal/cert"
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
