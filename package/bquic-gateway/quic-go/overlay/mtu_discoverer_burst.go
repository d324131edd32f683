// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"time"

	"github.com/quic-go/quic-go/internal/burst"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
)

// mtuRaiseInterval is how long a size below the largest is kept before a new search
// for a larger one (RFC 8899, section 5.1.1: PMTU_RAISE_TIMER).
const mtuRaiseInterval = 10 * time.Minute

// A burstMTU is how a Burst changes the search.
type burstMTU struct {
	maxFirst bool               // probe the largest size first, and one RTT apart
	raises   bool               // search again after mtuRaiseInterval
	limit    protocol.ByteCount // the largest size
	retry    protocol.ByteCount // size to probe next, if not 0
}

func (f *mtuFinder) setBurst(cfg Burst) {
	f.maxFirst, f.raises = cfg.FastPMTU, cfg.BlackHoles
}

// probeDelay is the time between two probes. The stock search takes about 35 RTTs,
// longer than short transfers.
func (f *mtuFinder) probeDelay() time.Duration {
	if f.maxFirst {
		return f.rttStats.SmoothedRTT()
	}
	return mtuProbeDelay * f.rttStats.SmoothedRTT()
}

// probeSize returns the size of the next probe, given the stock one.
func (f *mtuFinder) probeSize(stock protocol.ByteCount) protocol.ByteCount {
	if size := f.retry; size != 0 {
		f.retry = 0
		return size
	}
	if f.maxFirst && !f.lastProbeWasLost {
		return f.lost[0] // the largest size, which nearly every path carries
	}
	return stock
}

// fall makes packets small, because the path has stopped carrying larger ones. It
// probes the previous size first and at once: if the losses were chance, that size
// is back one RTT later.
func (f *mtuFinder) fall(now monotime.Time) {
	last, started := f.min, !f.lastProbeTime.IsZero()
	f.Reset(burst.BasePacketSize, f.limit)
	if !started {
		return
	}
	if last > f.min {
		f.retry = last
	}
	f.Start(now.Add(-f.probeDelay()))
}

// raise starts a new search when one is due.
func (f *mtuFinder) raise(now monotime.Time) bool {
	if !f.raises || now.Sub(f.lastProbeTime) < mtuRaiseInterval {
		return false
	}
	f.lastProbeWasLost = false
	f.init(f.min, f.limit)
	return !f.done()
}
