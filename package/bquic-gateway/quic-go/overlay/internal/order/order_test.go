// SPDX-License-Identifier: Apache-2.0

package order

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A flow has some data to send, in frames of one size.
type flow struct {
	*Node
	frame int // bytes
	left  int // bytes
	sent  int
}

const endless = 1 << 30

func newFlow(client *Node, frame, left int) *flow {
	f := &flow{frame: frame}
	f.Node = New(client, f)
	f.add(left)
	return f
}

func (f *flow) add(bytes int) {
	f.left += bytes
	f.Ready()
}

// serve sends one frame, and returns its flow.
func serve(root *Node) *flow {
	n := root.Next()
	if n == nil {
		return nil
	}
	f := n.Owner.(*flow)
	size := min(f.frame, f.left)
	f.left -= size
	f.sent += size
	n.Sent(size, f.left > 0)
	return f
}

func sum(flows []*flow) (n int) {
	for _, f := range flows {
		n += f.sent
	}
	return n
}

func TestShares(t *testing.T) {
	for _, tc := range []struct {
		name   string
		frames [][]int // sizes of each client's flows' frames
	}{
		{"one flow each", [][]int{{1400}, {1400}, {1400}}},
		{"1, 2, 6 and 30 flows", [][]int{{1400}, many(2, 1400), many(6, 1400), many(30, 1400)}},
		{"small frames and large ones", [][]int{{100}, many(3, 1400), {700}}},
		{"200 flows and one", [][]int{many(200, 1400), {1400}}},
		{"small and large in one client", [][]int{{100, 1400}, {1400}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := New(nil, nil)
			clients := make([][]*flow, len(tc.frames))
			for i, frames := range tc.frames {
				client := New(root, nil)
				for _, frame := range frames {
					clients[i] = append(clients[i], newFlow(client, frame, endless))
				}
			}
			total := 0
			for total < 20e6 {
				total += serve(root).frame
			}
			for i, flows := range clients {
				require.InEpsilon(t, total/len(clients), sum(flows), 0.02, "client %d", i)
				for _, f := range flows {
					// The first flows began with credit to send ahead.
					require.InDelta(t, sum(flows)/len(flows), f.sent, 2*maxCredit, "a flow of client %d", i)
				}
			}
		})
	}
}

func many(n, size int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// busy returns a root with clients that have sent for a long time.
func busy(clients, flows int) (root *Node, nodes []*Node) {
	root = New(nil, nil)
	for range clients {
		client := New(root, nil)
		nodes = append(nodes, client)
		for range flows {
			newFlow(client, 1400, endless)
		}
	}
	for range 50 * clients * flows {
		serve(root)
	}
	return root, nodes
}

func TestNewFirst(t *testing.T) {
	root, nodes := busy(4, 50)
	f := newFlow(New(root, nil), 1000, 10000)
	for range 10 {
		require.Same(t, f, serve(root), "a new client waits")
	}

	// The new flow of a client that sends much waits for one turn of each other client,
	// not for all of their flows or its client's flows.
	f = newFlow(nodes[0], 1000, 1000)
	for waits := 0; serve(root) != f; waits++ {
		require.Less(t, waits, 2*4)
	}

	// A flow that is no longer small shares like the others.
	f = newFlow(New(root, nil), 1400, endless)
	ahead := 0
	for ; serve(root) == f; ahead += 1400 {
	}
	require.InDelta(t, maxCredit, ahead, 1400)
	f.sent = 0
	for range 5000 {
		serve(root)
	}
	require.InEpsilon(t, 1000*1400, f.sent, 0.02)
}

// A flow that sends little, again and again, goes first each time.
func TestSparse(t *testing.T) {
	root, _ := busy(4, 50)
	f := newFlow(New(root, nil), 200, 0)
	f.Sent(0, false) // it had no data after all
	for range 1000 {
		f.add(200)
		require.Same(t, f, serve(root))
		for range 8 { // a fifth of a share is 1,400
			serve(root)
		}
	}
}

// A client gains nothing by opening flow after flow, and starves no other client.
func TestFlowAfterFlow(t *testing.T) {
	root, nodes := busy(3, 1)
	greedy, others := 0, 0
	newFlow(nodes[0], 1400, 1400)
	for range 3000 {
		f := serve(root)
		if f.up == nodes[0] {
			greedy++
			newFlow(nodes[0], 1400, 1400)
		} else {
			others++
		}
	}
	require.InDelta(t, 1000, greedy, 30)
	require.InDelta(t, 2000, others, 30)
}

// A client whose only flow is refilled late, as by a splice while packets are made 60 at
// a time, still gets its share.
func TestRefilledLate(t *testing.T) {
	root, _ := busy(1, 30)
	f := newFlow(New(root, nil), 1400, 16<<10)
	total := 0
	for range 500 {
		for range 60 {
			total += serve(root).frame
		}
		if f.left == 0 {
			f.add(16 << 10)
		}
	}
	// It sends at most 16 KiB of each 84 kB.
	require.InEpsilon(t, 500*16<<10, f.sent, 0.05)

	// With enough data in its buffer, it sends half.
	f.add(endless)
	f.sent, total = 0, 0
	for range 5000 {
		total += serve(root).frame
	}
	require.InEpsilon(t, total/2, f.sent, 0.02)
}

// A flow that returns is credited with no more than the limit, whatever it has missed,
// even after the count of rounds has wrapped.
func TestMissed(t *testing.T) {
	for _, begin := range []uint32{0, 1<<32 - 100} {
		root := New(nil, nil)
		root.now = begin
		other := newFlow(New(root, nil), 1400, endless)
		f := newFlow(New(root, nil), 1400, maxCredit*2)
		for f.left > 0 {
			serve(root)
		}
		for range 100000 {
			require.Same(t, other, serve(root))
		}
		f.add(endless)
		ahead := 0
		for ; serve(root) == f; ahead += 1400 {
		}
		require.InDelta(t, maxCredit, ahead, 1400)
	}
}

// Whatever flows come and go, exactly those with data to send are in the order.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		root := New(nil, nil)
		var clients []*Node
		var flows []*flow
		waiting := 0 // bytes
		for range 3000 {
			switch rng.IntN(6) {
			case 0:
				clients = append(clients, New(root, nil))
			case 1:
				if len(clients) > 0 {
					f := newFlow(clients[rng.IntN(len(clients))], 1+rng.IntN(Quantum), rng.IntN(5000))
					waiting += f.left
					flows = append(flows, f)
				}
			case 2:
				if len(flows) > 0 {
					n := rng.IntN(5000)
					flows[rng.IntN(len(flows))].add(n)
					waiting += n
				}
			default:
				before := root.Empty()
				f := serve(root)
				require.Equal(t, before, f == nil)
			}
		}
		sent := sum(flows)
		for serve(root) != nil {
		}
		require.Equal(t, waiting, sum(flows), "of which %d before", sent)
		for _, f := range flows {
			require.Zero(t, f.left)
			require.Nil(t, f.list)
		}
		for _, c := range clients {
			require.True(t, c.Empty())
			require.Nil(t, c.list)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	root, _ := busy(4, 4)
	f := newFlow(New(root, nil), 1400, 0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f.add(1400)
		serve(root)
		serve(root)
	}))
}
