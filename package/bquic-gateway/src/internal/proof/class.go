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

// A question is a node of the tree: is the feature at most limit? A leaf has the answer.
type question struct {
	feature feature
	limit   float32
	yes, no uint8 // the next question; in a leaf, yes is the class
}

type feature uint8

const (
	clientBytes feature = iota
	serverBytes
	clientPackets
	serverPackets
	clientMean // bytes per packet
	serverMean
	leaf
)

// Class classifies the flow by a tree that was trained with browsers and other applications in the lab (Manzoor 2019,
// chapter 3).
func (f Flow) Class() Class {
	features := [leaf]float32{
		clientBytes: float32(f.ClientBytes), serverBytes: float32(f.ServerBytes),
		clientPackets: float32(f.ClientPackets), serverPackets: float32(f.ServerPackets),
		clientMean: float32(f.ClientBytes) / float32(max(f.ClientPackets, 1)), serverMean: float32(f.ServerBytes) / float32(max(f.ServerPackets, 1)),
	}
	n := &tree[0]
	for n.feature != leaf {
		if features[n.feature] <= n.limit {
			n = &tree[n.yes]
		} else {
			n = &tree[n.no]
		}
	}
	return Class(n.yes)
}
