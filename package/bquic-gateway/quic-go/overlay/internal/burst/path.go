// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

const (
	// Rounds that the largest delivery rate is remembered for, at least; at most
	// twice as many (BBR: 10).
	rateRounds = 6
	// Rounds, and their time, that go slowly behind a risen RTT before the path is
	// taken for another one. The rate of few milliseconds is that of a burst.
	changedRounds = 3
	changedTime   = 200 * time.Millisecond
	// Rates beyond, in bytes/s, are taken for this one: products with a window do not overflow.
	maxRate = 1 << 36
)

// A Round is what became of a window: from a packet's departure to its acknowledgement.
type Round struct {
	Delivered protocol.ByteCount // during the round
	Lost      protocol.ByteCount
	Rate      uint64        // bytes/s, 0 if it was too short to say
	MinRTT    time.Duration // the least sample
	Early     time.Duration // the least of the first few, as in HyStart
	// Limited says that the window was what kept packets back.
	Limited bool
}

// A Path is what acknowledgements tell about a path: how fast it delivers, and
// its RTT without a queue.
type Path struct {
	min minFilter

	sent    protocol.PacketNumber // largest
	acked   protocol.PacketNumber // largest
	active  bool                  // a round is under way
	end     protocol.PacketNumber // of this round
	begin   monotime.Time
	round   Round
	seen    int           // RTT samples of this round
	slowest time.Duration // RTT of this round
	longest time.Duration // of the last round, 0 before the first

	// Largest delivery rate of the last rounds, bytes/s.
	rate, rateBefore uint64
	rateAge          int
	slow             int // rounds, see changed
	slowSince        monotime.Time

	ackSize protocol.ByteCount // of the ACK that is being handled
}

// OnPacketSent notes a packet that will be acknowledged.
func (p *Path) OnPacketSent(pn protocol.PacketNumber) { p.sent = max(p.sent, pn) }

// OnRTT takes an ACK's sample, before OnAck.
func (p *Path) OnRTT(now monotime.Time, rtt time.Duration) {
	if rtt <= 0 {
		return
	}
	p.min.Add(now, rtt)
	p.slowest = max(p.slowest, rtt)
	if p.round.MinRTT == 0 || rtt < p.round.MinRTT {
		p.round.MinRTT = rtt
	}
	if p.seen < slowStartSamples {
		p.seen++
		p.round.Early = p.round.MinRTT
	}
}

// OnPacketAcked notes a packet that arrived.
func (p *Path) OnPacketAcked(pn protocol.PacketNumber, size protocol.ByteCount) {
	p.acked = max(p.acked, pn)
	p.ackSize += size
}

// Limited notes that the window is used up.
func (p *Path) Limited() { p.round.Limited = true }

// OnPacketLost notes a lost one.
func (p *Path) OnPacketLost(size protocol.ByteCount) { p.round.Lost += size }

// OnAck ends an ACK. It returns true with the round that the ACK has ended.
func (p *Path) OnAck(now monotime.Time) (Round, bool) {
	size := p.ackSize
	p.ackSize = 0
	p.round.Delivered += size
	if !p.active {
		p.next(now)
		return Round{}, false
	}
	if p.acked < p.end || now.Sub(p.begin) < p.min.Get()*7/8 {
		return Round{}, false
	}
	r := p.round
	if us := now.Sub(p.begin) / time.Microsecond; us > 0 {
		r.Rate = min(uint64(r.Delivered)*1e6/uint64(us), maxRate)
	}
	p.longest = p.slowest
	p.learn(now, r)
	p.next(now)
	return r, true
}

func (p *Path) next(now monotime.Time) {
	p.active, p.begin, p.end = true, now, p.sent
	p.round, p.seen, p.slowest = Round{}, 0, 0
}

// learn takes over what a round has shown.
func (p *Path) learn(now monotime.Time, r Round) {
	if r.Rate > 0 && (r.Limited || r.Rate > p.Rate()) {
		p.rateAge++
		if p.rateAge > rateRounds {
			p.rateBefore, p.rate, p.rateAge = p.rate, 0, 0
		}
		p.rate = max(p.rate, r.Rate)
		if r.Lost > r.Delivered/8 {
			// So much is lost where the path has become slower.
			p.rateBefore, p.rate = 0, r.Rate
		}
	}
	if p.changed(now, r) {
		p.min.Reset(now, r.MinRTT)
		p.rateBefore, p.rate, p.rateAge = 0, r.Rate, 0
	}
}

// changed says if the path is another one: a queue of our own has the bottleneck
// send all the time. Where packets take longer and less is delivered, too, they
// wait for nothing of ours.
func (p *Path) changed(now monotime.Time, r Round) bool {
	if r.Limited && r.MinRTT > p.min.Get()+p.min.Get()/4+minQueueDelay && r.Rate < p.Rate()*3/4 {
		if p.slow == 0 {
			p.slowSince = p.begin
		}
		p.slow++
	} else {
		p.slow = 0
	}
	if p.slow < changedRounds || now.Sub(p.slowSince) < changedTime {
		return false
	}
	p.slow = 0
	return true
}

// Early is the least of the first samples of the round that is under way, 0
// while there are few.
func (p *Path) Early() time.Duration {
	if p.seen < slowStartSamples {
		return 0
	}
	return p.round.Early
}

// MinRTT is the windowed one, 0 without a sample.
func (p *Path) MinRTT() time.Duration { return p.min.Get() }

// Queue is what an RTT has of waiting, but no more than any packet of the last
// round has waited: a smoothed RTT is slow to tell that a queue has gone. It is 0
// before the first sample.
func (p *Path) Queue(rtt time.Duration) time.Duration {
	if p.min.Get() == 0 {
		return 0
	}
	if p.longest > 0 {
		rtt = min(rtt, p.longest)
	}
	return max(rtt-p.min.Get(), 0)
}

// Rate is the largest delivery rate of the last rounds in bytes/s, 0 before the first.
func (p *Path) Rate() uint64 { return max(p.rate, p.rateBefore) }

// BDP is the product of the delivery rate and the least RTT in bytes.
func (p *Path) BDP() protocol.ByteCount { return p.sends(p.min.Get()) }

// sends is how many bytes the path delivers in that time, or in a minute.
func (p *Path) sends(d time.Duration) protocol.ByteCount {
	return protocol.ByteCount(p.Rate() / 1e3 * uint64(min(d, time.Minute)/time.Microsecond) / 1e3)
}
