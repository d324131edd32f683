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

// A question is a node of a tree: is the feature at most limit? In a leaf, limit has the votes for the classes, ten bits each, the first
// class's highest.
type question struct {
	feature feature
	limit   uint32
	yes, no uint16 // the next question
}

type feature uint8

const (
	clientBytes feature = iota
	serverBytes
	clientPackets
	serverPackets
	// The following are in sixteenths. Routers compute floating-point numbers in software.
	clientMean // bytes per packet
	serverMean
	bytesRatio   // bytes to the client per byte from it
	packetsRatio // the same of packets
	answerMean   // bytes to the client per packet from it
	requestMean  // bytes per packet after a browser's TLS handshake
	leaf
)

const (
	helloBytes, helloPackets = 2000, 3
	most                     = 1<<28 - 1 // larger numbers count as this one
)

// Class classifies the flow by the votes of trees that were trained with browsers and other applications in the lab (Manzoor 2019,
// chapter 3, has random forests as well as single trees).
func (f Flow) Class() Class {
	up, down := uint32(min(f.ClientBytes, most)), uint32(min(f.ServerBytes, most))
	upPackets, downPackets := min(f.ClientPackets, most), min(f.ServerPackets, most)
	features := [leaf]uint32{
		clientBytes: up, serverBytes: down, clientPackets: upPackets, serverPackets: downPackets,
		clientMean: ratio(up, upPackets), serverMean: ratio(down, downPackets),
		bytesRatio: ratio(down, up), packetsRatio: ratio(downPackets, upPackets),
		answerMean:  ratio(down, upPackets),
		requestMean: ratio(max(up, helloBytes)-helloBytes, max(upPackets, helloPackets)-helloPackets),
	}
	var votes uint32
	for _, root := range roots {
		n := &trees[root]
		for n.feature != leaf {
			if features[n.feature] <= n.limit {
				n = &trees[n.yes]
			} else {
				n = &trees[n.no]
			}
		}
		votes += n.limit
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
