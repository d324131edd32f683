// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"testing"
	"time"
)

// TestStrayedAtRest has a client that waits for the rest of a download, while the gateway gets another address. Nothing is sent that the server
// could acknowledge, but keep-alive finds out. If the gateway gets the address back, connections go on.
func TestStrayedAtRest(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ip(t, "addr add 192.0.2.1/32 dev lo")
	ip(t, "addr add 192.0.2.2/32 dev lo")
	l, err := net.Listen("tcp", "192.0.2.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{
		LocalAddr:       &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)},
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 100},
	}
	conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := &splice{conn: conn.(*net.TCPConn), str: endless{}}
	s.reading.Store(true)
	await := func(probes bool) {
		t.Helper()
		raw, err := s.conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); (tcpInfo(raw).Probes > 0) != probes; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("keep-alive without an answer: %v", !probes)
			}
		}
	}
	rest := func(d time.Duration) (err error) {
		for waited := time.Duration(0); err == nil && waited < d; waited += watchInterval {
			err = s.unhealthy()
		}
		return err
	}
	if err := rest(time.Hour); err != nil {
		t.Fatalf("with its address: %v", err)
	}
	ip(t, "addr del 192.0.2.1/32 dev lo")
	await(true)
	ip(t, "addr add 192.0.2.1/32 dev lo")
	await(false)
	if err := rest(time.Hour); err != nil {
		t.Fatalf("with its address again: %v", err)
	}
	ip(t, "addr del 192.0.2.1/32 dev lo")
	await(true)
	if err := rest(restInterval + (gatewayAstray+1)*watchInterval); err != errStrayed {
		t.Errorf("without its address: %v", err)
	}
}
