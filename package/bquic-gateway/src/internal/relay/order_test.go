// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"

	"bquic/internal/divert"
)

// TestClientsShare checks that two clients of a relay share a slower mesh, and the relay's rate,
// equally, although one has eight connections and the other has one. The relay tells the
// gateway to which client each connection belongs; for uploads over a slower mesh, it knows that itself.
func TestClientsShare(t *testing.T) {
	for _, tc := range []struct{ name, direction, mesh string }{
		{"down", "down", "10mbit"}, {"up", "up", "10mbit"}, {"down at a rate", "down", ""}, {"up at a rate", "up", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMesh(t)
			c, direction := m.config(divert.Redirect), tc.direction
			if tc.mesh != "" {
				m.slow(tc.mesh)
				m.startGateway()
			} else {
				m.startGatewayAt(443, "config peer 'node'", "\tlist token 'token-of-node'", "\toption rate '10'")
				c.Token = "token-of-node"
			}
			node := m.startRelay(c)
			var received [2]atomic.Int64 // bytes of the IPv4 client and of the IPv6 client
			pour := func(conn *net.TCPConn) {
				for b := make([]byte, 64<<10); ; {
					if _, err := conn.Write(b); err != nil {
						return
					}
				}
			}
			drain := func(conn *net.TCPConn, count *atomic.Int64) {
				for b := make([]byte, 64<<10); ; {
					n, err := conn.Read(b)
					count.Add(int64(n))
					if err != nil {
						return
					}
				}
			}
			m.listen(":80", func(conn *net.TCPConn) {
				if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
					return
				}
				if direction == "down" {
					pour(conn)
				} else if conn.RemoteAddr().(*net.TCPAddr).IP.To4() != nil {
					drain(conn, &received[0])
				} else {
					drain(conn, &received[1])
				}
			})
			var conns [2][]*net.TCPConn
			for i, connections := range []int{1, 8} {
				for range connections {
					conn := m.carry(node, []string{origin4 + ":80", "[" + origin6 + "]:80"}[i])
					conns[i] = append(conns[i], conn)
				}
			}
			for i := range conns {
				for _, conn := range conns[i] {
					go func() {
						conn.Write([]byte{1})
						if direction == "down" {
							drain(conn, &received[i])
						} else {
							pour(conn)
						}
					}()
				}
			}
			wait := func(bytes int64) (counts [2]int64) {
				m.eventually("so many bytes", func() bool {
					counts = [2]int64{received[0].Load(), received[1].Load()}
					return counts[0]+counts[1] >= bytes
				})
				return counts
			}
			begin := wait(1 << 20) // all connections have begun
			end := wait(5 << 20)
			one, eight := end[0]-begin[0], end[1]-begin[1]
			if share := float64(one) / float64(one+eight); share < 0.35 || share > 0.65 {
				t.Errorf("the client with one connection got %.2f of what there was", share)
			}
		})
	}
}

// TestManyConnections checks that 200 downloads of one client do not delay another client's
// request. The measure of time is the downloads' bytes: if an answer waited for a turn of
// each download, 200 packets of downloads would pass for each packet of the answer.
func TestManyConnections(t *testing.T) {
	const (
		connections = 200
		requests    = 5
		answer      = 60_000 // bytes: more than what is sent first because the stream is new
		piece       = 16 << 10
	)
	m := newMesh(t)
	m.slow("20mbit")
	m.startGateway()
	node := m.startRelay(m.config(divert.Redirect))
	serve := func(port string, size int) {
		m.listen(port, func(conn *net.TCPConn) {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				return
			}
			for b, left := make([]byte, piece), size; left > 0; left -= piece {
				if _, err := conn.Write(b[:min(left, piece)]); err != nil {
					return
				}
			}
		})
	}
	serve(":80", math.MaxInt)
	for i := range requests {
		serve(fmt.Sprintf(":%d", 81+i), answer)
	}
	var asking []*net.TCPConn // connections of the other client
	for i := range requests {
		conn := m.carry(node, fmt.Sprintf("[%s]:%d", origin6, 81+i))
		asking = append(asking, conn)
	}
	var downloaded atomic.Int64
	for range connections {
		conn := m.carry(node, origin4+":80")
		go func() {
			conn.Write([]byte{1})
			for b := make([]byte, 64<<10); ; {
				n, err := conn.Read(b)
				downloaded.Add(int64(n))
				if err != nil {
					return
				}
			}
		}()
	}
	m.eventually("downloads", func() bool { return downloaded.Load() > 4<<20 })
	for i, conn := range asking {
		before := downloaded.Load()
		conn.Write([]byte{1})
		if _, err := io.ReadFull(conn, make([]byte, answer)); err != nil {
			t.Fatal(err)
		}
		passed := downloaded.Load() - before
		t.Logf("request %d: %d bytes of downloads until its answer of %d was there", i, passed, answer)
		// As many bytes as its own, plus those already in the path. If it waited, it would
		// be 40 turns of 200 packets.
		if passed > 40*answer {
			t.Errorf("request %d: %d bytes of downloads went before its answer", i, passed)
		}
	}
}
