// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"bquic/internal/divert"
)

// TestPortReused has a client use one port for connections to several targets, as Linux and devices behind another router's NAT do: at the
// same time, and while the relay's socket of one before is in TIME-WAIT. All are carried.
func TestPortReused(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		m := newMesh(t)
		m.routerLike()
		m.greet(":80")
		const first, count = 81, 8
		for i := range count {
			m.listen(fmt.Sprint(":", first+i), func(conn *net.TCPConn) { // the origin closes first
				b := make([]byte, 5)
				if _, err := io.ReadFull(conn, b); err == nil {
					conn.Write(b)
				}
			})
		}
		m.startGateway()
		node := m.startRelay(m.config(mode))
		m.becomes("carried", origin4+":80")
		before := node.figures().Relay
		exchange := func(conn net.Conn) error {
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := conn.Write([]byte("hello")); err != nil {
				return err
			}
			answer, err := io.ReadAll(conn)
			if err == nil && string(answer) != "hello" {
				err = fmt.Errorf("the answer is %q", answer)
			}
			return err
		}
		for _, origin := range []string{origin4, origin6} {
			err := m.in("phone", func() error {
				d := net.Dialer{LocalAddr: &net.TCPAddr{Port: 40000}, Timeout: patience, Control: reused}
				var open []net.Conn
				for i := range count {
					conn, err := d.Dial("tcp", net.JoinHostPort(origin, fmt.Sprint(first+i)))
					if err != nil {
						return fmt.Errorf("connection %d to %s: %w", i, origin, err)
					}
					defer conn.Close()
					if i < count/2 {
						open = append(open, conn)
						continue
					}
					if err := exchange(conn); err != nil {
						return fmt.Errorf("connection %d to %s beside open ones: %w", i, origin, err)
					}
					conn.Close()
				}
				for i, conn := range open {
					if err := exchange(conn); err != nil {
						return fmt.Errorf("connection %d to %s: %w", i, origin, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		now := node.figures().Relay
		carried, direct := now.Carried.Total-before.Carried.Total, now.Direct.Total-before.Direct.Total
		// On a busy machine, the gateway's answer may be late for one. Those beside it go the same way, to come from one address.
		if carried+direct != 2*count || direct > 0 && now.Late == before.Late {
			t.Errorf("%d of %d were carried, %d went direct, and %d had waited in vain", carried, 2*count, direct, now.Late-before.Late)
		}
	})
}

// TestEarlyDemux checks that the log tells of the kernel setting without which these connections hang.
func TestEarlyDemux(t *testing.T) {
	m := newMesh(t)
	m.startGateway()
	m.run("node", "sysctl", "-qw", "net.ipv4.tcp_early_demux=1")
	m.startRelay(m.config(divert.Redirect)).logs("net.ipv4.tcp_early_demux")
}
