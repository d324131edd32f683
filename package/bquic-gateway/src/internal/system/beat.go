// SPDX-License-Identifier: Apache-2.0

package system

import "time"

// began is when all beats began.
var began = time.Now()

// UntilBeat returns the time until the next beat of a period. What ticks by beats wakes a processor that sleeps once for all, and not each on
// its own.
func UntilBeat(period time.Duration) time.Duration { return period - time.Since(began)%period }
