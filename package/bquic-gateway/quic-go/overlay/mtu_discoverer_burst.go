// SPDX-License-Identifier: Apache-2.0

package quic

import "time"

// probeDelay is the time between two probes. The stock search takes about 35
// RTTs: short transfers are over before.
func (f *mtuFinder) probeDelay() time.Duration {
	if f.maxFirst {
		return f.rttStats.SmoothedRTT()
	}
	return mtuProbeDelay * f.rttStats.SmoothedRTT()
}

// probesMax says if the next probe has the largest size, which nearly every path carries.
func (f *mtuFinder) probesMax() bool { return f.maxFirst && !f.lastProbeWasLost }
