// SPDX-License-Identifier: Apache-2.0

package burst

import (
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// A Bucket is a token bucket that lets packets leave in bursts (RFC 9002,
// section 7.7, allows pacing or a limit on bursts; this is both). Once empty, it
// waits until a quarter of a burst can leave together, so that packets reach the
// driver's queue in groups that fit one A-MPDU.
type Bucket struct {
	tokens  protocol.ByteCount
	last    monotime.Time
	waiting bool
}

// refillWait bounds how long an empty bucket waits for more than one packet.
const refillWait = 4 * time.Millisecond

// fill returns the tokens after a refill at rate (bytes/s) until now, at most size.
func (b *Bucket) fill(now monotime.Time, rate uint64, size protocol.ByteCount) protocol.ByteCount {
	if b.last.IsZero() {
		return size
	}
	if now == b.last { // most packets of a burst: saves the division
		return min(size, b.tokens)
	}
	// The bound keeps the product from overflowing. It is longer than a packet takes
	// at the slowest rate, two packets in an RTT of seconds.
	d := min(max(now.Sub(b.last), 0), time.Minute)
	return min(size, b.tokens+protocol.ByteCount(rate*uint64(d/time.Microsecond)/1e6))
}

// refill is the number of bytes that an empty bucket waits for.
func refill(rate uint64, size, packet protocol.ByteCount) protocol.ByteCount {
	return max(packet, min(size/4, protocol.ByteCount(rate*uint64(refillWait/time.Microsecond)/1e6)))
}

// Ready says if a packet may leave now.
func (b *Bucket) Ready(now monotime.Time, rate uint64, size, packet protocol.ByteCount) bool {
	tokens := b.fill(now, rate, size)
	if b.waiting {
		return tokens >= refill(rate, size, packet)
	}
	return tokens >= packet
}

// Sent takes the tokens for a packet of n bytes.
func (b *Bucket) Sent(now monotime.Time, rate uint64, size, packet, n protocol.ByteCount) {
	b.tokens = max(b.fill(now, rate, size)-n, 0)
	b.last = now
	b.waiting = b.tokens < packet
}

// Until returns when Ready will be true, or zero if it already is.
func (b *Bucket) Until(rate uint64, size, packet protocol.ByteCount) monotime.Time {
	need := packet
	if b.waiting {
		need = refill(rate, size, packet)
	}
	if b.last.IsZero() || b.tokens >= need {
		return 0
	}
	us := (uint64(need-b.tokens)*1e6 + rate - 1) / max(rate, 1)
	return b.last.Add(time.Duration(us+1) * time.Microsecond)
}
