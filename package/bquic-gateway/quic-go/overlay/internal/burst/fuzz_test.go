// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"
)

// FuzzBucket sends whenever the bucket allows it. It never sends more than the rate and
// one burst, and never gets stuck.
func FuzzBucket(f *testing.F) {
	f.Add(uint32(1_000_000), uint16(64), []byte{0, 1, 200, 3, 255, 255, 7})
	f.Add(uint32(1), uint16(1), []byte{255, 0, 0, 1})
	f.Fuzz(func(t *testing.T, bytesPerSecond uint32, packets uint16, gaps []byte) {
		const packet = protocol.ByteCount(1452)
		rate := 64 + uint64(bytesPerSecond) // as CUBIC's: at least 2 packets per RTT
		size := packet * protocol.ByteCount(1+packets%512)
		if len(gaps) > 500 {
			t.Skip()
		}
		var b Bucket
		start := monotime.Now()
		now, sent := start, protocol.ByteCount(0)
		for _, gap := range gaps {
			now = now.Add(time.Duration(gap) * time.Duration(gap) * 20 * time.Microsecond)
			for range 4 {
				if !b.Ready(now, rate, size, packet) {
					until := b.Until(rate, size, packet)
					if until.IsZero() {
						t.Fatal("not ready, and no time to wait for")
					}
					if wait := until.Sub(now); wait > refillWait+time.Duration(uint64(packet)*1e9/rate)+time.Millisecond {
						t.Fatalf("has to wait for %s", wait)
					}
					now = max(now, until)
					if !b.Ready(now, rate, size, packet) {
						t.Fatalf("not ready at the time that it named: %+v", b)
					}
				}
				b.Sent(now, rate, size, packet, packet)
				sent += packet
				allowed := float64(size) + float64(packet) + float64(rate)*now.Sub(start).Seconds()
				if float64(sent) > allowed {
					t.Fatalf("sent %d bytes in %s, %.0f are allowed", sent, now.Sub(start), allowed)
				}
			}
		}
	})
}

// FuzzSlowStart takes any RTTs. Slow start ends when a whole round is slow, and never
// while every round has an RTT within the threshold.
func FuzzSlowStart(f *testing.F) {
	f.Add(byte(4), byte(32), byte(64), byte(20), []byte{20, 20, 90, 90, 90, 90, 90, 90, 90, 90, 90})
	f.Add(byte(0), byte(0), byte(0), byte(100), []byte{100, 101, 102, 120, 130, 140})
	f.Fuzz(func(t *testing.T, divisor, lower, upper, least byte, rtts []byte) {
		s := NewSlowStart(Config{
			SlowStartDivisor: int(divisor), SlowStartMin: time.Duration(lower) * time.Millisecond, SlowStartMax: time.Duration(upper) * time.Millisecond,
		})
		minRTT := time.Duration(1+int(least)) * time.Millisecond
		threshold := s.Threshold(minRTT)
		if threshold <= 0 {
			t.Fatalf("threshold %s", threshold)
		}
		sent := protocol.PacketNumber(0)
		for len(rtts) > 0 {
			// A round: n packets, acknowledged one by one, or a few at a time.
			n := min(len(rtts), 1+int(rtts[0]%32))
			sent += protocol.PacketNumber(n)
			s.OnPacketSent(sent)
			fast, samples := false, 0
			ended := s.Ended(slowStartLowWindow, 1)
			for i, r := range rtts[:n] {
				rtt := minRTT + time.Duration(r)*time.Millisecond
				if samples < slowStartSamples {
					samples++
					fast = fast || rtt <= minRTT+threshold
				}
				s.OnRTT(rtt, minRTT)
				s.OnPacketAcked(sent-protocol.PacketNumber(n-1-i), minRTT)
			}
			rtts = rtts[n:]
			switch now := s.Ended(slowStartLowWindow, 1); {
			case ended && !now:
				t.Fatal("slow start began again by itself")
			case !ended && now && fast:
				t.Fatalf("slow start ended in a round with an RTT within %s of %s", threshold, minRTT)
			case !now && !fast:
				t.Fatalf("slow start goes on after a round that was slower by more than %s", threshold)
			}
			if s.Ended(slowStartLowWindow-1, 1) {
				t.Fatal("slow start ended with a small window")
			}
		}
	})
}

// FuzzAsk takes any RTTs and ACKs. Requests are in order, rare, and within the peer's
// limits, and the peer decodes what was encoded.
func FuzzAsk(f *testing.F) {
	f.Add(byte(0), byte(10), byte(25), byte(4), byte(1), []byte{1, 50, 0, 20, 2, 200, 1, 50})
	f.Add(byte(1), byte(0), byte(50), byte(2), byte(2), []byte{1, 5, 0, 200, 1, 200, 0, 200, 1, 9})
	f.Fuzz(func(t *testing.T, dialect, packets, delay, divisor, reference byte, ops []byte) {
		rtt := utils.NewRTTStats()
		c := NewConn(Config{
			AckPackets: int(packets) - 1, AckDelay: time.Duration(delay) * time.Millisecond, AckRTTDivisor: int(divisor),
			AckRTT: RTTReference(reference % 3), AckAfter: 10, AckReordering: 8, AskPeer: true,
		}, rtt)
		least := time.Duration(1+dialect>>2) * time.Millisecond
		spoken := CurrentDialect
		if dialect%2 == 0 {
			c.SetPeer(&least, nil)
		} else {
			spoken = Draft00Dialect
			c.SetPeer(nil, &least)
		}
		now := monotime.Now()
		var last monotime.Time
		next := uint64(0)
		for len(ops) >= 2 {
			op, arg := ops[0], time.Duration(ops[1])
			ops = ops[2:]
			switch op % 3 {
			case 0:
				now = now.Add(arg * time.Millisecond)
			case 1:
				rtt.UpdateRTT((1+arg)*time.Millisecond, 0)
			case 2:
				c.OnAckReceived(nil, int(arg))
			}
			frame := c.NextRequest(now)
			if frame == nil {
				continue
			}
			if frame.SequenceNumber != next {
				t.Fatalf("request %d has number %d", next, frame.SequenceNumber)
			}
			next++
			if !last.IsZero() && now.Sub(last) < rtt.SmoothedRTT() {
				t.Fatalf("two requests within %s, the RTT is %s", now.Sub(last), rtt.SmoothedRTT())
			}
			last = now
			asked := spoken.Decode(frame)
			if asked.Packets < 1 || asked.Delay < least || asked.Delay > max(25*time.Millisecond, time.Duration(delay)*time.Millisecond, least) {
				t.Fatalf("asked for %+v, at least %s", asked, least)
			}
			if rtt.MaxAckDelay() < asked.Delay {
				t.Fatalf("asked for %s and expects ACKs within %s", asked.Delay, rtt.MaxAckDelay())
			}
			if again := spoken.Decode(spoken.Encode(0, asked)); again != asked {
				t.Fatalf("%+v becomes %+v", asked, again)
			}
		}
	})
}
