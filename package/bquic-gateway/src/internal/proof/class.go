// SPDX-License-Identifier: Apache-2.0

package proof

// A Class is the kind of content that a flow carries, judged by its record.
type Class uint8

const (
	// Other is anything but a page: DNS, mail, a shell.
	Other Class = iota
	// HTTP1 and HTTP2 are browsers' protocols.
	HTTP1
	HTTP2
	// Classes is the number of classes.
	Classes
)

func (c Class) String() string { return [...]string{"other", "http1", "http2"}[c] }

// A question is a node of a tree: is the feature at most limit? In a leaf, yes is 0: no answer leads to the first node.
type question struct {
	bits    uint32 // the feature, and in the lower limitBits the limit; in a leaf, votes for the classes, ten bits each, the first class's highest
	yes, no uint16 // the next question
}

// The features.
const (
	clientBytes = iota
	serverBytes
	clientPackets
	serverPackets
	// The following are in sixteenths. Routers compute floating-point numbers in software.
	clientMean // bytes per packet
	serverMean
	packetsRatio // packets to the client per packet from it
	answerMean   // bytes to the client per packet from it
	requestMean  // bytes per packet after a browser's TLS handshake
	featureCount
)

const (
	helloBytes, helloPackets = 2000, 3
	limitBits                = 28
	most                     = 1<<limitBits - 1 // larger numbers count as this one
)

// Class classifies the flow by the votes of trees that were trained with browsers and other applications in the lab (Manzoor 2019,
// chapter 3, has random forests as well as single trees).
func (f Flow) Class() Class {
	up, down := uint32(min(f.ClientBytes, most)), uint32(min(f.ServerBytes, most))
	upPackets, downPackets := min(f.ClientPackets, most), min(f.ServerPackets, most)
	features := [featureCount]uint32{
		clientBytes: up, serverBytes: down, clientPackets: upPackets, serverPackets: downPackets,
		clientMean: ratio(up, upPackets), serverMean: ratio(down, downPackets),
		packetsRatio: ratio(downPackets, upPackets), answerMean: ratio(down, upPackets),
		requestMean: ratio(max(up, helloBytes)-helloBytes, max(upPackets, helloPackets)-helloPackets),
	}
	var votes uint32
	for _, root := range roots {
		n := &trees[root]
		for n.yes != 0 {
			if features[n.bits>>limitBits] <= n.bits&most {
				n = &trees[n.yes]
			} else {
				n = &trees[n.no]
			}
		}
		votes += n.bits
	}
	other, http1, http2 := votes>>20, votes>>10&1023, votes&1023
	switch {
	case other >= http1 && other >= http2:
		return Other
	case http1 >= http2:
		return HTTP1
	}
	return HTTP2
}

// ratio returns n / of in sixteenths.
func ratio(n, of uint32) uint32 { return 16 * n / max(of, 1) }
