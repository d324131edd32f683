// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestMultipath has a client that offers Multipath TCP (RFC 8684), as phones do.
func TestMultipath(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.startGateway()
		m.startRelay(m.config(mode))
		for _, target := range []string{m.greet(origin4 + ":80"), m.greet("[" + origin6 + "]:80")} {
			m.becomes("carried", target)
			var conn net.Conn
			if err := m.in("phone", func() (err error) {
				d := net.Dialer{Timeout: patience}
				d.SetMultipathTCP(true)
				conn, err = d.Dial("tcp", target)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			if way, err := io.ReadAll(conn); err != nil || route[phone4] == string(way) || len(way) == 0 {
				t.Errorf("%s: %q, %v", target, way, err)
			}
		}
	})
}
