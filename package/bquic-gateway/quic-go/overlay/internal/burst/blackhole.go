// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"
)

// BasePacketSize is the UDP payload size, in bytes, that every path carries (RFC 9000,
// section 14). It is the fallback when a path has stopped carrying larger packets.
const BasePacketSize = protocol.MinInitialPacketSize

const (
	// A path that has stopped carrying large packets has lost this many of them
	// in a row (RFC 8899, section 5.1.2: MAX_PROBES),
	holePackets = 3
	// in this many rounds. In a round, large packets are lost, and a small packet
	// sent after them arrives. An outage that lost all packets also ends with one
	// such round, by the first packets sent when the path is back.
	holeRounds = 2
)

// A blackHole detects that a path has stopped carrying packets larger than
// BasePacketSize while it still carries smaller ones (RFC 8899, section 4.3). Where
// ICMP is filtered or a tunnel drops silently, no router reports that.
//
// It counts in the order of packet numbers, the order of sending. A single large
// packet that arrives proves that there is no black hole, so random loss, bursts of
// loss and full buffers do not look like one.
type blackHole struct {
	sent         protocol.PacketNumber // the newest packet
	large, small protocol.PacketNumber // the newest ones that arrived
	repeated     []repeatedPacket
	waiting      monotime.Time // when the first packet since the last ACK was sent

	lost     int
	first    protocol.PacketNumber // the first lost one
	rounds   int
	roundEnd protocol.PacketNumber // the small packet that ended the last round
}

// newBlackHole counts from the first packet after sent.
func newBlackHole(sent protocol.PacketNumber) blackHole {
	none := protocol.InvalidPacketNumber
	return blackHole{sent: sent, large: sent, small: none, first: none, roundEnd: none}
}

// acked takes a packet that arrived.
func (h *blackHole) acked(pn protocol.PacketNumber, size protocol.ByteCount) {
	if size <= BasePacketSize {
		h.small = max(h.small, pn)
		return
	}
	h.large = max(h.large, pn)
	if pn > h.first {
		h.lost, h.rounds, h.roundEnd = 0, 0, protocol.InvalidPacketNumber
	}
}

// missing takes a packet that was declared lost, after acked for all packets of the
// same ACK.
func (h *blackHole) missing(pn protocol.PacketNumber, size protocol.ByteCount) {
	if size <= BasePacketSize || pn < h.large {
		return
	}
	if h.lost == 0 || pn < h.first {
		h.first = pn
	}
	h.lost++
	if pn > h.roundEnd && pn < h.small {
		h.rounds++
		h.roundEnd = h.small
	}
}

// repeat takes a packet whose content a probe sends again, because no ACK arrived
// (RFC 9002, section 6.2.4). quic-go no longer tracks the packet, which may have arrived.
func (h *blackHole) repeat(pn protocol.PacketNumber, size protocol.ByteCount) {
	if len(h.repeated) == maxRepeated {
		h.repeated = h.repeated[:copy(h.repeated, h.repeated[1:])]
	}
	h.repeated = append(h.repeated, repeatedPacket{pn, size})
}

type repeatedPacket struct {
	pn   protocol.PacketNumber
	size protocol.ByteCount
}

// maxRepeated bounds the repeated packets whose fate an ACK has yet to show.
const maxRepeated = 32

// received takes an ACK, after acked for each packet.
func (h *blackHole) received(ack *wire.AckFrame) {
	for _, p := range h.repeated {
		if ack.AcksPacket(p.pn) {
			h.acked(p.pn, p.size)
		}
	}
	open := h.repeated[:0]
	for _, p := range h.repeated {
		switch {
		case p.pn > ack.LargestAcked():
			open = append(open, p)
		case !ack.AcksPacket(p.pn):
			h.missing(p.pn, p.size)
		}
	}
	h.repeated = open
}

func (h *blackHole) found() bool { return h.lost >= holePackets && h.rounds >= holeRounds }

// ProbeSize limits the size of a PTO probe. Probes must pass where larger packets do
// not, or a black hole would look like a dead path.
func (c *Conn) ProbeSize(size protocol.ByteCount) protocol.ByteCount {
	if c == nil || !c.cfg.BlackHoles {
		return size
	}
	return min(size, BasePacketSize)
}

// PTO returns when a probe timeout of pto fires. The stock time is pto after the last
// packet. Packets that leave one by one, as datagrams do, would postpone it until the
// window is full, so it fires at the latest after 2*pto without an ACK. If that time
// had already passed when the last packet left, that packet was a probe, and pto has
// stopped doubling. The stock time then applies, or probes would follow each other
// at once.
func (c *Conn) PTO(stock monotime.Time, pto time.Duration) monotime.Time {
	if c == nil || !c.cfg.BlackHoles || c.hole.waiting.IsZero() {
		return stock
	}
	if t := c.hole.waiting.Add(2 * pto); t.After(stock.Add(-pto)) {
		return min(stock, t)
	}
	return stock
}

// FoundBlackHole says if the path has stopped carrying packets larger than
// BasePacketSize. It returns true once, and then discards the evidence.
func (c *Conn) FoundBlackHole() bool {
	if c == nil || !c.cfg.BlackHoles || !c.hole.found() {
		return false
	}
	c.hole = newBlackHole(c.hole.sent)
	return true
}

// OnPathChanged discards what is known of the path.
func (c *Conn) OnPathChanged() {
	if c != nil {
		c.hole = newBlackHole(c.hole.sent)
		c.path = Path{sent: c.path.sent}
	}
}
