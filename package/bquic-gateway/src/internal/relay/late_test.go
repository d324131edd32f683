// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"net/netip"
	"testing"

	"bquic/internal/divert"
	"bquic/internal/tunnel"
)

// A sentStream keeps the datagrams that were sent.
type sentStream struct {
	tunnel.DatagramStream
	sent []string
}

func (s *sentStream) SendDatagram(b []byte) error {
	s.sent = append(s.sent, string(b))
	return nil
}

// TestLateDatagram has a datagram that the kernel has queued just before its flow's socket could receive it.
func TestLateDatagram(t *testing.T) {
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	key := pair{netip.MustParseAddrPort("10.0.0.2:5000"), netip.MustParseAddrPort("192.0.2.1:53")}
	str := &sentStream{}
	f := flows{by: map[pair]*flow{key: {pair: key, tunnel: tunnel.NewFlow(t.Context(), conn, str, new(tunnel.Bytes))}}}
	p := &divert.Packet{Client: key.client, Target: key.target, UDP: true, Payload: []byte("late")}
	if v := f.decide(t.Context(), p, nil); v != divert.Take || len(str.sent) != 1 || str.sent[0] != "\x00late" || f.lost.Load() != 0 {
		t.Errorf("verdict %v, sent %q, lost %d", v, str.sent, f.lost.Load())
	}
}
