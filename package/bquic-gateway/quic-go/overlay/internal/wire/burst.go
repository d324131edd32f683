// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"time"
)

// min_ack_delay in the first draft of the ACK frequency extension, which Firefox still uses.
const minAckDelayDraft00ParameterID transportParameterID = 0xff02de1a

func (p *TransportParameters) readMinAckDelayDraft00(us uint64) {
	d := time.Duration(min(us, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond
	p.MinAckDelayDraft00 = &d
}

func (p *TransportParameters) marshalMinAckDelayDraft00(b []byte) []byte {
	return p.marshalVarintParam(b, minAckDelayDraft00ParameterID, uint64(*p.MinAckDelayDraft00/time.Microsecond))
}
