// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	"github.com/quic-go/quic-go/internal/protocol"
)

// FuzzBurstFrames parses any bytes as ACK_FREQUENCY and IMMEDIATE_ACK. A frame that was
// parsed, written and parsed again is the same.
func FuzzBurstFrames(f *testing.F) {
	f.Add([]byte{0x40, 0xaf, 1, 9, 0x61, 0xa8, 1})
	f.Add([]byte{0x1f})
	f.Add([]byte{0x40, 0xaf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		parser := NewFrameParser(true, true, true)
		kind, n, err := parser.ParseType(data, protocol.Encryption1RTT)
		if err != nil || kind != FrameTypeAckFrequency && kind != FrameTypeImmediateAck {
			return
		}
		frame, m, err := parser.ParseLessCommonFrame(kind, data[n:], protocol.Version1)
		if err != nil {
			return
		}
		if n+m > len(data) {
			t.Fatalf("%d of %d bytes were read", n+m, len(data))
		}
		if ask, ok := frame.(*AckFrequencyFrame); ok && ask.RequestMaxAckDelay < 0 {
			t.Fatalf("negative delay in %x", data)
		}
		b, err := frame.Append(nil, protocol.Version1)
		if err != nil {
			t.Fatal(err)
		}
		if l := frame.Length(protocol.Version1); int(l) != len(b) {
			t.Fatalf("%d bytes, the length said %d", len(b), l)
		}
		again, n, err := parser.ParseType(b, protocol.Encryption1RTT)
		if err != nil || again != kind {
			t.Fatalf("written as %x, read as type %#x (%v)", b, again, err)
		}
		frame, _, err = parser.ParseLessCommonFrame(kind, b[n:], protocol.Version1)
		if err != nil {
			t.Fatal(err)
		}
		c, err := frame.Append(nil, protocol.Version1)
		if err != nil || !bytes.Equal(b, c) {
			t.Fatalf("written as %x and then as %x (%v)", b, c, err)
		}
	})
}
