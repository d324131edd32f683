// SPDX-License-Identifier: Apache-2.0

package order

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/stretchr/testify/require"
)

// frameTime is how long a frame takes: at 1,400 bytes, 11.2 Mbit/s.
const frameTime = time.Millisecond

// A link sends the frames of clients' flows.
type link struct {
	root *Node
	now  monotime.Time
}

func newLink() *link {
	l := &link{root: New(nil, nil), now: monotime.Time(time.Hour)}
	l.root.now = 1<<32 - 100 // soon begins again at 0
	return l
}

func (l *link) client() *Node { return New(l.root, nil) }

// A flow has some data to send, in frames of one size.
type flow struct {
	*Node
	link  *link
	frame int // bytes
	left  int // bytes
	sent  int
}

const endless = 1 << 30

func (l *link) flow(client *Node, frame, left int) *flow {
	f := &flow{link: l, frame: frame}
	f.Node = New(client, f)
	if left > 0 {
		f.add(left)
	}
	return f
}

func (f *flow) add(bytes int) {
	f.left += bytes
	f.Ready(f.link.now)
}

// serve sends one frame, and returns its flow.
func (l *link) serve() *flow {
	l.now = l.now.Add(frameTime)
	n := l.root.Next()
	if n == nil {
		return nil
	}
	f := n.Owner.(*flow)
	size := min(f.frame, f.left)
	f.left -= size
	f.sent += size
	n.Sent(l.now, size, f.left > 0)
	return f
}

func (l *link) serveFor(d time.Duration) {
	for range d / frameTime {
		l.serve()
	}
}

// ahead returns how many bytes f sends before another flow does.
func (l *link) ahead(f *flow) int {
	before := f.sent
	for l.serve() == f {
	}
	return f.sent - before
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
			l := newLink()
			clients := make([][]*flow, len(tc.frames))
			for i, frames := range tc.frames {
				client := l.client()
				for _, frame := range frames {
					clients[i] = append(clients[i], l.flow(client, frame, endless))
				}
			}
			total := 0
			for total < 20e6 {
				total += l.serve().frame
			}
			for i, flows := range clients {
				require.InEpsilon(t, total/len(clients), sum(flows), 0.001, "client %d", i)
				for _, f := range flows {
					require.InDelta(t, sum(flows)/len(flows), f.sent, 2*1400, "a flow of client %d", i)
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

// busy returns a link with clients that have been sending for a long time, and one that has been absent.
func busy(clients, flows int) (l *link, all []*flow, absent *Node) {
	l = newLink()
	absent = l.client()
	for range clients {
		client := l.client()
		for range flows {
			all = append(all, l.flow(client, 1400, endless))
		}
	}
	l.serveFor(10 * memory)
	for _, f := range all {
		f.sent = 0
	}
	return l, all, absent
}

// Who returns has as much as the others after a second, and goes first until then.
func TestReturns(t *testing.T) {
	for _, clients := range []int{1, 4} {
		l, others, absent := busy(clients, 1)
		absent.round -= 2e6                    // rounds of days
		second := int(memory/frameTime) * 1400 // bytes that the link carries
		f := l.flow(absent, 1400, endless)
		ahead := l.ahead(f)
		require.GreaterOrEqual(t, ahead, second/clients/2-1400)
		require.LessOrEqual(t, ahead, second/clients+1400)

		// From then on, all share equally.
		f.sent, others[0].sent = 0, 0
		l.serveFor(10 * time.Second)
		require.InDelta(t, f.sent, others[0].sent, 2*1400)
	}
}

// A page beside a download ends in half of the time that it would take with equal shares, and
// when it would have ended with those, the download has sent as much as with those.
func TestPage(t *testing.T) {
	const page = 200 * 1400
	l, others, absent := busy(1, 1)
	l.flow(absent, 1400, page)
	l.serveFor(page / 1400 * frameTime)
	require.Zero(t, others[0].sent)
	l.serveFor(page / 1400 * frameTime)
	require.Equal(t, page, others[0].sent)

	// The same for two flows of one client.
	l, others, _ = busy(1, 1)
	f := l.flow(others[0].up, 1400, 1400)
	l.serveFor(2 * memory)
	others[0].sent = 0
	f.add(page)
	l.serveFor(page / 1400 * frameTime)
	require.Zero(t, others[0].sent)
}

// Nobody is behind who has taken nothing from anybody: while the link has time to spare, a
// new client goes first by a small answer only.
func TestTimeToSpare(t *testing.T) {
	l := newLink()
	absent := l.client()
	stream := l.flow(l.client(), 1400, 0)
	for range 20 { // half of what the link carries
		stream.add(100 * 1400)
		for stream.left > 0 {
			l.serve()
		}
		l.now = l.now.Add(100 * frameTime)
	}
	stream.add(endless)
	require.InDelta(t, leastMissed*Quantum, l.ahead(l.flow(absent, 1400, endless)), 1400)

	// A moment without data, in which a buffer is refilled, is none to spare.
	l, others, absent := busy(1, 1)
	for range 300 {
		others[0].left = 1400
		l.serve()
		l.now = l.now.Add(spare / 2)
		others[0].add(endless)
		l.serve()
	}
	require.Greater(t, l.ahead(l.flow(absent, 1400, endless)), 2*leastMissed*Quantum)

	// Nor is a pause in which the path takes nothing.
	l, _, absent = busy(1, 1)
	for range 300 {
		l.serve()
		l.now = l.now.Add(2 * spare)
	}
	require.Greater(t, l.ahead(l.flow(absent, 1400, endless)), 2*leastMissed*Quantum)
}

// A flow that sends little, again and again, goes first each time, also beside one that
// has been absent for long.
func TestSparse(t *testing.T) {
	l, _, absent := busy(4, 50)
	f := l.flow(l.client(), 200, 0)
	for i := range 1000 {
		if i%200 == 0 {
			l.flow(absent, 1400, 50*1400)
		}
		f.add(200)
		waits := 0
		for l.serve() != f {
			waits++
		}
		require.LessOrEqual(t, waits, 1)
		l.serveFor(8 * frameTime) // a fifth of a share is 1,400
	}
	// What it did not need does not add up: it is behind by a second's share at most.
	f.add(endless)
	require.Less(t, l.ahead(f), int(memory/frameTime)*1400/4)
}

// A new flow of a client that sends much does not wait for its client's other flows.
func TestNewFlow(t *testing.T) {
	l, others, _ := busy(4, 50)
	f := l.flow(others[0].up, 1000, 1000)
	for waits := 0; l.serve() != f; waits++ {
		require.Less(t, waits, 2*4)
	}
}

// A client gains nothing by opening flow after flow, and starves no other client.
func TestFlowAfterFlow(t *testing.T) {
	l, others, _ := busy(3, 1)
	greedy := others[0].up
	n := 0
	l.flow(greedy, 1400, 1400)
	for range 3000 {
		if l.serve().up == greedy {
			n++
			l.flow(greedy, 1400, 1400)
		}
	}
	require.InDelta(t, 1000, n, 2)
	require.InDelta(t, 1000*1400, others[1].sent, 2*1400)
}

// Nor does one that has been absent: page after page, it makes up for a second only.
func TestPageAfterPage(t *testing.T) {
	l, others, absent := busy(1, 1)
	for range 400 {
		for f := l.flow(absent, 1400, 10*1400); f.left > 0; {
			l.serve()
		}
	}
	require.GreaterOrEqual(t, others[0].sent, (400*10-int(memory/frameTime))*1400)
}

// Nor does one that appears as a new client again and again, or with new flows, get more than a small answer
// ahead each time.
func TestNewAfterNew(t *testing.T) {
	for _, ofOneClient := range []bool{false, true} {
		l, others, client := busy(2, 1)
		if ofOneClient {
			client = others[0].up
		}
		for range 50 {
			if !ofOneClient {
				client = l.client()
			}
			f := l.flow(client, 1400, 100*1400)
			const frames = 4 * leastMissed
			most := frames * 1400 // if it always went first
			if ofOneClient {
				most /= 2
			}
			l.serveFor(frames * frameTime)
			require.LessOrEqual(t, f.sent, (leastMissed*Quantum+most)/2+2*1400)
			before := others[0].sent
			l.serveFor(300 * frameTime)
			require.Greater(t, others[0].sent, before)
		}
	}
}

// A client whose only flow is refilled late, as by a splice while packets are made 60 at
// a time, still gets its share.
func TestRefilledLate(t *testing.T) {
	l, _, _ := busy(1, 30)
	f := l.flow(l.client(), 1400, 16<<10)
	for range 500 {
		l.serveFor(60 * frameTime)
		if f.left == 0 {
			f.add(16 << 10)
		}
	}
	// It sends at most 16 KiB of each 84 kB.
	require.InEpsilon(t, 500*16<<10, f.sent, 0.05)
}

// Whatever flows come and go, exactly those with data to send are in the order.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := newLink()
		var clients []*Node
		var flows []*flow
		waiting := 0 // bytes
		for range 3000 {
			switch rng.IntN(7) {
			case 0:
				clients = append(clients, l.client())
			case 1:
				if len(clients) > 0 {
					f := l.flow(clients[rng.IntN(len(clients))], 1+rng.IntN(1500), rng.IntN(5000))
					waiting += f.left
					flows = append(flows, f)
				}
			case 2:
				if len(flows) > 0 {
					n := rng.IntN(5000)
					flows[rng.IntN(len(flows))].add(n)
					waiting += n
				}
			case 3: // cancelled
				if len(flows) > 0 {
					f := flows[rng.IntN(len(flows))]
					waiting -= f.left
					f.left = 0
					f.Sent(l.now, 0, false)
				}
			default:
				before := l.root.Empty()
				f := l.serve()
				require.Equal(t, before, f == nil)
			}
		}
		sent := sum(flows)
		for l.serve() != nil {
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
	l, _, _ := busy(4, 4)
	f := l.flow(l.client(), 1400, 0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f.add(1400)
		l.serve()
		l.serve()
	}))
}
