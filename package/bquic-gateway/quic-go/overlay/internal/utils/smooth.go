// SPDX-License-Identifier: Apache-2.0

package utils

import "time"

// smooth returns the mean deviation and the smoothed RTT after another sample (RFC
// 9002, section 5.3). It uses integers, because most routers have no FPU.
func smooth(meanDev, smoothed, sample time.Duration) (time.Duration, time.Duration) {
	meanDev += ((smoothed - sample).Abs() - meanDev) / 4
	smoothed += (sample - smoothed) / 8
	return meanDev, smoothed
}
