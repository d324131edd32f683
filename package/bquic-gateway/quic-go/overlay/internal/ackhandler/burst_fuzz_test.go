// SPDX-License-Identifier: Apache-2.0

package ackhandler

import (
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils"
)

// ackModel is the simplest possible model of when an ACK is due.
type ackModel struct {
	received map[protocol.PacketNumber]bool
	largest  protocol.PacketNumber
	acked    map[protocol.PacketNumber]bool // in the last ACK
	lastAck  protocol.PacketNumber          // its largest, -1 before the first
	count    int                            // ack-eliciting packets since then
	queued   bool
	first    monotime.Time // arrival of the first of them
	delay    time.Duration // the longest delay allowed since then
}

func (m *ackModel) receive(pn protocol.PacketNumber, now monotime.Time) {
	m.received[pn] = true
	m.largest = max(m.largest, pn)
}

// gap says if a packet that no ACK has reported missing is at least threshold
// below the largest (draft-ietf-quic-ack-frequency, section 6.2).
func (m *ackModel) gap(threshold protocol.PacketNumber) bool {
	if threshold == 0 || m.lastAck < 0 {
		return false
	}
	for pn := m.largest - threshold; pn >= 0 && pn > m.lastAck-threshold; pn-- {
		if !m.received[pn] {
			return true
		}
	}
	return false
}

// due says if f requires an immediate ACK for pn.
func (m *ackModel) due(f burst.AckFrequency, pn protocol.PacketNumber, ce bool) bool {
	wasMissing := m.lastAck >= 0 && pn < m.lastAck && !m.acked[pn]
	return m.count >= f.Packets || ce || f.Reordering == 1 && wasMissing || m.gap(protocol.PacketNumber(f.Reordering))
}

func (m *ackModel) ack() {
	m.count, m.queued, m.first, m.delay = 0, false, 0, 0
	m.lastAck = m.largest
	m.acked = make(map[protocol.PacketNumber]bool, len(m.received))
	for pn := range m.received {
		m.acked[pn] = true
	}
}

// FuzzAckPolicy receives packets in any order, with any configuration and any requests
// of the peer. An ACK is sent exactly when the policy requires one, and every packet is
// acknowledged within the delay allowed.
func FuzzAckPolicy(f *testing.F) {
	f.Add(byte(10), byte(25), byte(4), byte(1), byte(4), byte(0), []byte("\x00\x00\x00\x00\x01\x02\x00\x00\x04\x00\x00\x00\x06\x20\x00\x00"))
	f.Add(byte(0), byte(50), byte(2), byte(2), byte(3), byte(8), []byte("\x00\x00\x08\x40\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x06\xff\x04\x00"))
	f.Add(byte(2), byte(0), byte(0), byte(0), byte(0), byte(1), []byte("\x00\x00\x07\x33\x00\x00\x00\x00\x02\x00\x09\x00\x00\x00\x03\x00\x06\x0a"))
	f.Fuzz(func(t *testing.T, packets, delay, divisor, reference, after, reordering byte, ops []byte) {
		if len(ops) > 2000 {
			t.Skip() // the model takes quadratic time
		}
		cfg := burst.Config{
			AckPackets: int(packets), AckDelay: time.Duration(delay) * time.Millisecond, AckRTTDivisor: int(divisor),
			AckRTT: burst.RTTReference(reference % 3), AckAfter: int(after), AckReordering: int(reordering % 16), AskPeer: true,
		}
		if packets == 0 {
			cfg.AckPackets = burst.Unlimited
		}
		rtt := utils.NewRTTStats()
		tracker := newAppDataReceivedPacketTracker(utils.DefaultLogger)
		tracker.burst = burst.NewConn(cfg, rtt)
		model := &ackModel{received: make(map[protocol.PacketNumber]bool), lastAck: -1, largest: -1}
		now := monotime.Now()
		next := protocol.PacketNumber(0)
		var missing []protocol.PacketNumber
		gaps := 0
		sequence := uint64(0)

		send := func(onlyIfQueued bool) {
			frame := tracker.GetAckFrame(now, onlyIfQueued)
			if frame == nil {
				return
			}
			if alarm := tracker.GetAlarmTimeout(); !alarm.IsZero() {
				t.Fatalf("the alarm is left at %s", alarm.Sub(now))
			}
			for pn := range model.received {
				if !frame.AcksPacket(pn) {
					t.Fatalf("packet %d is not acknowledged", pn)
				}
			}
			for pn := range model.largest {
				if frame.AcksPacket(pn) && !model.received[pn] {
					t.Fatalf("packet %d never came and is acknowledged", pn)
				}
			}
			model.ack()
		}
		receive := func(pn protocol.PacketNumber, ecn protocol.ECN, eliciting bool) {
			if err := tracker.ReceivedPacket(pn, ecn, now, eliciting); err != nil {
				t.Fatal(err)
			}
			model.receive(pn, now)
			if !eliciting {
				return
			}
			if model.count == 0 {
				model.first = now
			}
			model.count++
			frequency, ours := tracker.burst.AckFrequency()
			if ours {
				model.delay = max(model.delay, frequency.Delay)
				want := model.queued || model.due(frequency, pn, ecn == protocol.ECNCE)
				if tracker.ackQueued != want {
					t.Fatalf("packet %d, policy %+v, %d packets since the last ACK: queued %t, not %t", pn, frequency, model.count, tracker.ackQueued, want)
				}
			} else {
				model.delay = max(model.delay, MaxAckDelay)
			}
			model.queued = tracker.ackQueued
			alarm := tracker.GetAlarmTimeout()
			if !model.queued && (alarm.IsZero() || alarm.After(model.first.Add(model.delay))) {
				// The stock policy moves its alarm with every packet, at most with the second.
				if ours || alarm.IsZero() || alarm.After(now.Add(MaxAckDelay)) {
					t.Fatalf("packet %d: alarm %s after the first packet, %s are allowed", pn, alarm.Sub(model.first), model.delay)
				}
			}
		}

		for len(ops) >= 2 {
			op, arg := ops[0]%10, ops[1]
			ops = ops[2:]
			switch op {
			case 0, 1, 2:
				if arg%4 == 3 && gaps < 50 { // as many ranges as an ACK reports
					gaps++
					missing = append(missing, next)
					next++
				}
				ecn := protocol.ECNNon
				if op == 2 && arg%8 == 0 {
					ecn = protocol.ECNCE
				}
				receive(next, ecn, true)
				next++
			case 3:
				receive(next, protocol.ECT0, false)
				next++
			case 4:
				if len(missing) > 0 {
					i := int(arg) % len(missing)
					receive(missing[i], protocol.ECNNon, true)
					missing = append(missing[:i], missing[i+1:]...)
				}
			case 5:
				send(true)
			case 6:
				end := now.Add(time.Duration(arg) * 500 * time.Microsecond)
				if alarm := tracker.GetAlarmTimeout(); !alarm.IsZero() && !alarm.After(end) {
					now = max(now, alarm)
					before := model.count
					send(true)
					if before > 0 && model.count > 0 {
						t.Fatal("the alarm went off and no ACK was sent")
					}
				}
				now = end
			case 7:
				tracker.burst.Request(sequence+uint64(arg%2), burst.AckFrequency{
					Packets: 1 + int(arg>>4), Delay: time.Duration(1+arg) * time.Millisecond, Reordering: int(arg % 5),
				})
				sequence++
			case 8:
				rtt.UpdateRTT(time.Duration(1+int(arg))*time.Millisecond, 0)
			case 9:
				send(false)
			}
		}
	})
}
