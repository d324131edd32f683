// SPDX-License-Identifier: Apache-2.0

package proof

// A Class is what a flow's record says that it carries.
type Class uint8

const (
	// Other is anything but a page: names, mail, a shell.
	Other Class = iota
	// HTTP1 and HTTP2 are of the browsers' protocols.
	HTTP1
	HTTP2
	// Classes is how many there are.
	Classes
)

func (c Class) String() string { return [...]string{"other", "http1", "http2"}[c] }

// A question of the tree is whether a feature is at most a limit. A leaf has the answer.
type question struct {
	feature feature
	limit   float32
	yes, no uint8 // the next question; of a leaf, yes is the class
}

type feature uint8

const (
	clientBytes feature = iota
	serverBytes
	clientPackets
	serverPackets
	clientMean // bytes a packet
	serverMean
	leaf
)

// Class is told by a tree that has learnt from browsers and other applications in the lab (Manzoor 2019, chapter 3).
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
