// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"bquic/internal/divert"
)

// TestFullPackets checks that what a relay carries fills packets, in both directions. Each piece that a tunnel wrote
// ended in a short packet, so a transfer took more packets than from a site.
func TestFullPackets(t *testing.T) {
	const (
		begin, end = 1 << 20, 5 << 20 // bytes; before, packets are short until the path's MTU is known
		least      = 1390             // bytes in a packet; 1,420 have room
	)
	for _, direction := range []string{"down", "up"} {
		t.Run(direction, func(t *testing.T) {
			m := newMesh(t)
			m.slow("20mbit")
			m.startGateway()
			node := m.startRelay(m.config(divert.Redirect))
			pour := func(conn *net.TCPConn) {
				for b := make([]byte, 64<<10); ; {
					if _, err := conn.Write(b); err != nil {
						return
					}
				}
			}
			var received atomic.Int64
			drain := func(conn *net.TCPConn) {
				for b := make([]byte, 64<<10); ; {
					n, err := conn.Read(b)
					received.Add(int64(n))
					if err != nil {
						return
					}
				}
			}
			from, to := pour, drain
			if direction == "up" {
				from, to = drain, pour
			}
			m.listen(":80", func(conn *net.TCPConn) {
				io.ReadFull(conn, make([]byte, 1))
				from(conn)
			})
			conn := m.carry(node, origin4+":80")
			conn.Write([]byte{1})
			go to(conn)
			after := func(bytes int64) (carried, packets uint64) {
				m.eventually("a transfer", func() bool { return received.Load() > bytes })
				relay := node.figures().Relay
				burst := relay.Connections[0].Burst
				if direction == "up" {
					return relay.Carried.Up, burst.PacketsSent - burst.PacketsLost
				}
				return relay.Carried.Down, burst.PacketsReceived
			}
			carried, packets := after(begin)
			moreCarried, morePackets := after(end)
			if mean := float64(moreCarried-carried) / float64(morePackets-packets); mean < least {
				t.Errorf("%.0f bytes in a packet", mean)
			} else {
				t.Logf("%.0f bytes in a packet", mean)
			}
		})
	}
}
