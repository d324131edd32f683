// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"cmp"
	"math"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

const (
	// Rounds that the largest delivery rate is remembered for, at least; at most
	// twice as many (BBR: 10).
	rateRounds = 6
	// The path is another one once rounds have differed from those before by more than noise, in so many of them,
	// and by as much as noise makes of this time. Noise is so many times the mean difference of two rounds.
	changedRounds   = 3
	missingTime     = 400 * time.Millisecond
	noiseDeviations = 2
	// That difference, as a part of the rate: while it is not known, and at least, as timers are no better.
	firstDeviation = 1. / 4
	leastDeviation = 1. / 128
	// What a mean rate is of at least, at most twice as much.
	meanTime = 2 * time.Second
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
	full    time.Duration // RTT of those before the last loss, or the largest since; 0: nothing was lost

	// Largest delivery rate of the last rounds, bytes/s.
	rate, rateBefore uint64
	rateAge          int

	// Of rounds that used up the window, see changed.
	mean      amount
	deviation float64 // mean difference of two rounds' rates, as a part of them, 0 before it is known
	lastRate  uint64
	missing   float64 // s, at the mean rate
	oddRounds int

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
	if p.full > 0 {
		p.full = max(p.full, rtt)
	}
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
func (p *Path) OnPacketLost(size protocol.ByteCount) {
	p.round.Lost += size
	p.full = max(p.slowest, p.longest)
}

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
	if p.changed(r) {
		p.min.Reset(now, r.MinRTT)
		p.rateBefore, p.rate, p.rateAge = 0, r.Rate, 0
		p.full = 0
	}
}

// changed says if the path is another one. Where packets take longer and less is delivered, or the reverse, the route is
// another one, or the bottleneck sends faster or slower: as long as the window is the same, both look alike. So the least
// RTT is learnt anew in either case. If it was of the same path, the queue that is taken for a part of it goes when the
// window is cut the next time. The other mistake, a queue where there is none, would last for minutes.
//
// Rounds are never quite the same, least of all over 802.11. What is beyond that is added up (Page's cumulative sum).
func (p *Path) changed(r Round) bool {
	if !r.Limited || r.Rate == 0 {
		return false
	}
	noise := p.noise()
	longer := r.MinRTT.Seconds()/p.mean.rtt() - 1
	missing := 1 - float64(r.Rate)/p.mean.rate()
	if longer < 0 {
		missing = -missing
	}
	if p.mean.bytes == 0 || r.MinRTT <= p.min.Get()+p.min.Get()/4+minQueueDelay || math.Abs(longer) <= noise {
		p.missing = 0
	} else {
		p.missing = max(p.missing+(missing-noise)*r.time().Seconds(), 0)
	}
	if p.missing == 0 {
		p.oddRounds = 0
		p.mean.add(r)
		p.learnNoise(r)
		return false
	}
	if p.oddRounds++; p.oddRounds < changedRounds || p.missing <= noise*missingTime.Seconds() {
		return false
	}
	p.missing, p.oddRounds = 0, 0
	p.mean, p.deviation, p.lastRate = amount{}, 0, 0
	p.mean.add(r)
	return true
}

// noise is what rounds may differ by, as a part of their rate or RTT, while the path is the same.
func (p *Path) noise() float64 { return noiseDeviations * cmp.Or(p.deviation, firstDeviation) }

// learnNoise takes over what the rate differs by from that of the round before, as a window that grows is not noise, and
// not much of a single round.
func (p *Path) learnNoise(r Round) {
	now, last := float64(r.Rate), float64(p.lastRate)
	p.lastRate = r.Rate
	if last > 0 {
		d := cmp.Or(p.deviation, firstDeviation)
		p.deviation = max(d+(min(math.Abs(now-last)/last, 4*d)-d)/8, leastDeviation)
	}
}

// time is how long the round was.
func (r Round) time() time.Duration {
	return time.Duration(uint64(r.Delivered)*1e6/r.Rate) * time.Microsecond
}

// An amount is what was delivered in some time.
type amount struct {
	bytes float64
	time  float64 // s
	waits float64 // the least RTT of each round times its time, in s times s
}

func (a *amount) add(r Round) {
	t := r.time().Seconds()
	a.bytes += float64(r.Delivered)
	a.time += t
	a.waits += t * r.MinRTT.Seconds()
	if a.time > 2*meanTime.Seconds() {
		*a = amount{a.bytes / 2, a.time / 2, a.waits / 2}
	}
}

// rate is in bytes/s.
func (a amount) rate() float64 { return a.bytes / a.time }

// rtt is the mean of the rounds' least RTTs, in s.
func (a amount) rtt() float64 { return a.waits / a.time }

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

// Slack is for how long packets may be kept to leave together, or their ACKs, without harm to
// anybody: no longer than packets wait in queues anyway, so that no link is idle, and no longer than
// more would fit into them, or those who share a short buffer lose packets to what comes at once. A
// smoothed RTT is slow to tell that a queue has gone, so no packet of the last round has waited
// longer. It is 0 before the first sample.
func (p *Path) Slack(rtt time.Duration) time.Duration {
	if p.min.Get() == 0 {
		return 0
	}
	if p.longest > 0 {
		rtt = min(rtt, p.longest)
	}
	slack := rtt - p.min.Get()
	if p.full > 0 {
		slack = min(slack, p.full-rtt)
	}
	return max(slack, 0)
}

// Rate is the largest delivery rate of the last rounds in bytes/s, 0 before the first.
func (p *Path) Rate() uint64 { return max(p.rate, p.rateBefore) }

// BDP is the product of the delivery rate and the least RTT in bytes.
func (p *Path) BDP() protocol.ByteCount { return p.sends(p.min.Get()) }

// sends is how many bytes the path delivers in that time, or in a minute.
func (p *Path) sends(d time.Duration) protocol.ByteCount {
	return protocol.ByteCount(p.Rate() / 1e3 * uint64(min(d, time.Minute)/time.Microsecond) / 1e3)
}
