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
	// The largest delivery rate is remembered for this many rounds at least, and twice as
	// many at most (BBR: 10).
	rateRounds = 6
	// The path has changed when packets have taken longer by more than noise for at least changedRounds rounds than in at
	// least as many before, and what is missing in them is worth missingTime of noise. Noise is noiseDeviations times the mean difference
	// between two rounds.
	changedRounds   = 3
	missingTime     = 800 * time.Millisecond
	noiseDeviations = 2
	// The part of the noise that a round may miss, beyond which it counts. Over 802.11, noise is a third of the rate, and a
	// longer route under a queue costs less than that, but in every round.
	missingNoise = 4
	// The mean difference, as a part of the rate: until it is measured, and its least value, because timers are no
	// more precise.
	firstDeviation = 1. / 4
	leastDeviation = 1. / 128
	// A mean rate covers this time at least, and twice as much at most.
	meanTime = 2 * time.Second
	// Higher rates, in bytes/s, are cut to this one, so that products with a window do not overflow.
	maxRate = 1 << 36
)

// A Round is the fate of a window: from the departure of a packet to its acknowledgement.
type Round struct {
	Delivered protocol.ByteCount // during the round
	Lost      protocol.ByteCount
	Received  protocol.ByteCount // in the other direction, during the round
	Rate      uint64             // bytes/s, 0 if it was too short to say
	MinRTT    time.Duration      // the least sample
	Early     time.Duration      // the least of the first few samples, as in HyStart
	// Limited says that the window, not the application, limited the sender.
	Limited bool
}

// A Path is a model of a path, learnt from acknowledgements: its delivery rate, and its
// RTT without a queue.
type Path struct {
	min minFilter

	sent    protocol.PacketNumber // largest
	acked   protocol.PacketNumber // largest
	active  bool                  // a round is under way
	end     protocol.PacketNumber // last packet of this round
	begin   monotime.Time
	round   Round
	seen    int           // RTT samples of this round
	slowest time.Duration // largest RTT of this round
	longest time.Duration // largest RTT of the last round, 0 before the first
	full    time.Duration // largest RTT just before the last loss, or since then; 0: no loss

	// Largest delivery rate of the last rounds, bytes/s.
	rate, rateBefore uint64
	rateAge          int

	// From rounds that used up the window, see changed.
	mean      amount
	last      Round
	deviation float64 // mean difference of two rounds, as a part of their rate or time, 0 before it is known
	missing   float64 // s, at the mean rate
	oddRounds int

	ackSize protocol.ByteCount // bytes acknowledged by the current ACK
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

// OnPacketLost notes a lost packet.
func (p *Path) OnPacketLost(size protocol.ByteCount) {
	p.round.Lost += size
	p.full = max(p.slowest, p.longest)
}

// OnReceived notes data of the other direction.
func (p *Path) OnReceived(size protocol.ByteCount) { p.round.Received += size }

// OnAck is called at the end of an ACK. If the ACK has ended a round, it returns the round
// and true.
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

// learn updates the model from a round.
func (p *Path) learn(now monotime.Time, r Round) {
	if r.Rate > 0 && (r.Limited || r.Rate > p.Rate()) {
		p.rateAge++
		if p.rateAge > rateRounds {
			p.rateBefore, p.rate, p.rateAge = p.rate, 0, 0
		}
		p.rate = max(p.rate, r.Rate)
	}
	if p.changed(r) {
		p.min.Reset(now, r.MinRTT)
		p.rateBefore, p.rate, p.rateAge = 0, r.Rate, 0
		p.full = 0
	}
}

// changed says if the path has changed. If packets take longer and less is delivered, or the reverse, either the route
// is a new one or the bottleneck's rate has changed. With a constant window, both look alike, so the least RTT
// is learnt anew in either case. If the route was the same, the new least RTT includes a queue, which drains
// when the window is cut next. The opposite mistake, to assume a queue where there is none, would last for minutes.
//
// Rounds always vary, most of all over 802.11. What is missing beyond a part of this noise is added up (Page's cumulative sum).
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
	if p.mean.rounds < changedRounds || r.MinRTT <= p.min.Get()+p.min.Get()/4+minQueueDelay || math.Abs(longer) <= noise {
		p.missing = 0
	} else {
		p.missing = max(p.missing+(missing-noise/missingNoise)*r.time().Seconds(), 0)
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
	p.mean, p.deviation, p.last = amount{}, 0, Round{}
	p.mean.add(r)
	return true
}

// noise is how much rounds may vary on an unchanged path, as a part of their rate or RTT.
func (p *Path) noise() float64 { return noiseDeviations * cmp.Or(p.deviation, firstDeviation) }

// learnNoise updates the noise with the difference to the previous round. The growth of the window is not noise: it
// raises the rate, or the time if there is a queue, but not both. A single round has limited weight.
func (p *Path) learnNoise(r Round) {
	last := p.last
	p.last = r
	if last.Rate > 0 {
		rate := float64(r.Rate)/float64(last.Rate) - 1
		time := r.time().Seconds()/last.time().Seconds() - 1
		d := cmp.Or(p.deviation, firstDeviation)
		p.deviation = max(d+(min(math.Abs(rate), math.Abs(time), 4*d)-d)/8, leastDeviation)
	}
}

// time is the duration of the round.
func (r Round) time() time.Duration {
	return time.Duration(uint64(r.Delivered)*1e6/r.Rate) * time.Microsecond
}

// An amount is the data delivered in some time.
type amount struct {
	rounds int
	bytes  float64
	time   float64 // s
	waits  float64 // the least RTT of each round times its time, in s times s
}

func (a *amount) add(r Round) {
	t := r.time().Seconds()
	a.rounds++
	a.bytes += float64(r.Delivered)
	a.time += t
	a.waits += t * r.MinRTT.Seconds()
	if a.time > 2*meanTime.Seconds() {
		*a = amount{a.rounds, a.bytes / 2, a.time / 2, a.waits / 2}
	}
}

// rate is in bytes/s.
func (a amount) rate() float64 { return a.bytes / a.time }

// rtt is the mean of the rounds' least RTTs, in s.
func (a amount) rtt() float64 { return a.waits / a.time }

// Early is the least of the first RTT samples of the current round, 0 while there are
// too few.
func (p *Path) Early() time.Duration {
	if p.seen < slowStartSamples {
		return 0
	}
	return p.round.Early
}

// MinRTT is the least RTT of the last minutes, 0 without a sample.
func (p *Path) MinRTT() time.Duration { return p.min.Get() }

// Slack returns how long packets may be held back to leave together, or their ACKs, without harm
// to any flow. It is no longer than packets wait in queues anyway, so that no link is idle. It is
// also no longer than the room left in these queues, or a burst would cost flows that share a short
// buffer packets. Slack is 0 before the first sample.
func (p *Path) Slack(rtt time.Duration) time.Duration {
	if p.min.Get() == 0 {
		return 0
	}
	rtt = p.Recent(rtt)
	slack := rtt - p.min.Get()
	if p.full > 0 {
		slack = min(slack, p.full-rtt)
	}
	return max(slack, 0)
}

// Recent returns the smoothed RTT, but no more than the longest of the last round. When a queue has drained, the smoothed RTT
// falls slowly, and all the more slowly if packets are paced by it.
func (p *Path) Recent(rtt time.Duration) time.Duration {
	if p.longest > 0 {
		return min(rtt, p.longest)
	}
	return rtt
}

// Rate is the largest delivery rate of the last rounds in bytes/s, 0 before the first.
func (p *Path) Rate() uint64 { return max(p.rate, p.rateBefore) }

// BDP is the product of the delivery rate and the least RTT in bytes.
func (p *Path) BDP() protocol.ByteCount { return p.sends(p.min.Get()) }

// sends returns how many bytes the path delivers in d, at most a minute.
func (p *Path) sends(d time.Duration) protocol.ByteCount {
	return protocol.ByteCount(p.Rate() / 1e3 * uint64(min(d, time.Minute)/time.Microsecond) / 1e3)
}
