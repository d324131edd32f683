// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"
)

// BasePacketSize is the size in bytes of UDP payload that every path carries
// (RFC 9000, section 14): what is left when a path has stopped carrying more.
const BasePacketSize = protocol.MinInitialPacketSize

const (
	// A path that has stopped carrying large packets has lost this many of them
	// in a row (RFC 8899, section 5.1.2: MAX_PROBES),
	holePackets = 3
	// in this many rounds. In a round, large packets are lost and a small one that
	// was sent after them arrives. Where everything was lost for a while, that is
	// so once, too: with what is sent when the path is back.
	holeRounds = 2
)

// A blackHole finds out that a path has stopped carrying packets of more than
// BasePacketSize while it carries others (RFC 8899, section 4.3). No router says
// so where ICMP is filtered or a tunnel drops silently.
//
// It counts in the order of packet numbers, that is of sending. A single large
// packet that arrives proves that there is no black hole, so loss at random,
// bursts of loss and full buffers do not look like one.
type blackHole struct {
	sent         protocol.PacketNumber // the newest one
	large, small protocol.PacketNumber // the newest ones that arrived
	repeated     []repeatedPacket
	waiting      monotime.Time // when the first packet since the last ACK was sent

	lost     int
	first    protocol.PacketNumber // of the lost ones
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
	if h.lost > 0 && pn > h.first {
		h.lost, h.rounds, h.roundEnd = 0, 0, protocol.InvalidPacketNumber
	}
}

// missing takes a packet that was declared lost. What arrived with the same ACK
// comes before.
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

// repeat takes a packet whose content goes out again in a probe, because no ACK
// came (RFC 9002, section 6.2.4). quic-go tracks it no more, and it may have arrived.
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

// maxRepeated bounds the packets that wait for an ACK to say what became of them.
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

// ProbeSize limits the size of a PTO probe: it must arrive where larger packets
// do not, or nothing would ever tell a black hole from a path that is gone.
func (c *Conn) ProbeSize(size protocol.ByteCount) protocol.ByteCount {
	if c == nil || !c.cfg.BlackHoles {
		return size
	}
	return min(size, BasePacketSize)
}

// PTO is when a probe timeout of pto fires, given the stock time: that much after
// the last packet. Packets that leave one by one, as datagrams do, would put it
// off until the window is full, so it comes after twice the time without an ACK.
// Where that had passed when the last packet left, that was a probe, and pto has
// stopped doubling: without an end, probes would follow each other at once.
func (c *Conn) PTO(stock monotime.Time, pto time.Duration) monotime.Time {
	if c == nil || !c.cfg.BlackHoles || c.hole.waiting.IsZero() {
		return stock
	}
	if t := c.hole.waiting.Add(2 * pto); t.After(stock.Add(-pto)) {
		return min(stock, t)
	}
	return stock
}

// FoundBlackHole says if the path has stopped carrying packets of more than
// BasePacketSize. It is true once, and forgets what it was found by.
func (c *Conn) FoundBlackHole() bool {
	if c == nil || !c.cfg.BlackHoles || !c.hole.found() {
		return false
	}
	c.hole = newBlackHole(c.hole.sent)
	return true
}

// OnPathChanged forgets what is known of the path.
func (c *Conn) OnPathChanged() {
	if c != nil {
		c.hole = newBlackHole(c.hole.sent)
		c.path = Path{sent: c.path.sent}
	}
}
