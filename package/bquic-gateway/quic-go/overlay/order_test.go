// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/wire"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"
)

// An orderBench is a framer with its own streams.
type orderBench struct {
	*framer
	t      *testing.T
	sender *MockStreamSender
	next   protocol.StreamID
	queued func() // called once, when a stream has data to send
}

func newOrderBench(t *testing.T, window protocol.ByteCount) *orderBench {
	cfc := newConnectionFlowController(0, 0, nil, nil, nil)
	cfc.UpdateSendWindow(window)
	b := &orderBench{framer: newFramer(cfc), t: t, sender: NewMockStreamSender(gomock.NewController(t))}
	b.sender.EXPECT().onHasStreamData(gomock.Any(), gomock.Any()).Do(func(id protocol.StreamID, s *SendStream) {
		b.AddActiveStream(id, s)
		if queued := b.queued; queued != nil {
			b.queued = nil
			queued()
		}
	}).AnyTimes()
	b.sender.EXPECT().onStreamCompleted(gomock.Any()).AnyTimes()
	b.sender.EXPECT().onHasStreamControlFrame(gomock.Any(), gomock.Any()).AnyTimes()
	b.sender.EXPECT().updateStreamPriority(gomock.Any()).Do(b.UpdateStreamPriority).AnyTimes()
	b.sender.EXPECT().recordStreamPriorityUpdated(gomock.Any(), gomock.Any(), gomock.Any()).AnyTimes()
	return b
}

// stream returns a stream that may send window bytes.
func (b *orderBench) stream(window protocol.ByteCount) *SendStream {
	b.next += 4
	fc := newStreamFlowController(b.next, b.connFlowController, 0, 0, window, nil, nil)
	s := newSendStream(context.Background(), b.next, b.sender, fc, false)
	b.t.Cleanup(func() { s.closeForShutdown(nil) })
	return s
}

// write makes the stream send size bytes. It returns when they are queued in the framer.
func (b *orderBench) write(s *SendStream, size int) {
	queued := make(chan struct{})
	b.queued = func() { close(queued) }
	go s.Write(make([]byte, size))
	<-queued
}

// packet returns the number of bytes of each stream in the next packet, and its
// datagrams.
func (b *orderBench) packet(size protocol.ByteCount) (streams map[protocol.StreamID]protocol.ByteCount, datagrams []*wire.DatagramFrame) {
	b.alone = true
	frames, streamFrames, length := b.AppendStreamFrames(nil, nil, size, protocol.Version1)
	streams = make(map[protocol.StreamID]protocol.ByteCount)
	sum := protocol.ByteCount(0)
	for _, f := range streamFrames {
		streams[f.Frame.StreamID] += f.Frame.DataLen()
		sum += f.Frame.Length(protocol.Version1)
	}
	for _, f := range frames {
		if d, ok := f.Frame.(*wire.DatagramFrame); ok {
			require.True(b.t, d.DataLenPresent)
			datagrams = append(datagrams, d)
		}
		sum += f.Frame.Length(protocol.Version1)
	}
	require.Equal(b.t, sum, length)
	require.LessOrEqual(b.t, length, size)
	return streams, datagrams
}

const packetSize = 1200

// Streams without a client follow the stock order and go first. A priority does not take
// a stream with a client out of the order.
func TestOrderAndStock(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	ours, stock := b.stream(1<<20), b.stream(1<<20)
	b.write(ours, 5000)
	require.Nil(t, b.order)
	b.setClient(ours, 7) // while it is active
	b.write(stock, 5000)
	ours.SetPriority(0, false)
	require.True(t, b.HasData())
	for i := 0; i < 5; i++ {
		streams, _ := b.packet(packetSize)
		require.NotZero(t, streams[stock.streamID], i)
	}
	got := protocol.ByteCount(0)
	for b.HasData() {
		streams, _ := b.packet(packetSize)
		got += streams[ours.streamID]
		require.Zero(t, streams[stock.streamID])
	}
	require.LessOrEqual(t, got, protocol.ByteCount(5000))
	require.Greater(t, got, protocol.ByteCount(3000))
}

// A stream blocked by its own flow control blocks no other stream.
func TestOrderBlockedStream(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	blocked, other := b.stream(100), b.stream(1<<20)
	b.setClient(blocked, 1)
	b.setClient(other, 2)
	b.write(blocked, 100)
	streams, _ := b.packet(packetSize)
	require.Equal(t, protocol.ByteCount(100), streams[blocked.streamID])
	b.write(blocked, 100) // the window is used up
	b.write(other, 100000)
	for range 20 {
		streams, _ = b.packet(packetSize)
		require.Zero(t, streams[blocked.streamID])
		require.NotZero(t, streams[other.streamID])
	}
	blocked.updateSendWindow(1000)
	streams, _ = b.packet(packetSize)
	require.Equal(t, protocol.ByteCount(100), streams[blocked.streamID])
}

// A stream blocked by the connection's flow control continues when that allows it.
func TestOrderBlockedConnection(t *testing.T) {
	b := newOrderBench(t, 1000)
	s := b.stream(1 << 20)
	b.setClient(s, 0)
	b.write(s, 10000)
	streams, _ := b.packet(packetSize)
	require.Equal(t, protocol.ByteCount(1000), streams[s.streamID])
	streams, _ = b.packet(packetSize)
	require.Empty(t, streams)
	require.True(t, b.HasData())
	b.connFlowController.UpdateSendWindow(1500)
	streams, _ = b.packet(packetSize)
	require.Equal(t, protocol.ByteCount(500), streams[s.streamID])
}

// Datagrams need no flow control: those of other streams do not wait for streams that it blocks.
func TestOrderDatagramsWhileBlocked(t *testing.T) {
	b := newOrderBench(t, 1000)
	one, two, udp := b.stream(1<<20), b.stream(1<<20), b.stream(0)
	for i, s := range []*SendStream{one, two, udp} {
		b.setClient(s, uint8(i+1))
	}
	b.write(one, 10000)
	b.write(two, 10000)
	streams, _ := b.packet(packetSize)
	require.Equal(t, protocol.ByteCount(1000), streams[one.streamID]+streams[two.streamID])
	for i := range 3 {
		b.datagram(udp, 100, byte(i))
		streams, datagrams := b.packet(packetSize)
		require.Empty(t, streams)
		require.Len(t, datagrams, 1)
		require.Equal(t, byte(i), datagrams[0].Data[0])
	}
	require.True(t, b.HasData())
	b.connFlowController.UpdateSendWindow(1000 + 18000)
	got := make(map[protocol.StreamID]protocol.ByteCount)
	for range 20 {
		streams, _ := b.packet(packetSize)
		for id, n := range streams {
			got[id] += n
		}
	}
	require.Equal(t, protocol.ByteCount(18000), got[one.streamID]+got[two.streamID])
	require.InDelta(t, int64(got[one.streamID]), int64(got[two.streamID]), 2*packetSize)
}

// A stream that ends while it waits for its turn is skipped.
func TestOrderCancelled(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	s, other := b.stream(1<<20), b.stream(1<<20)
	b.setClient(s, 1)
	b.setClient(other, 1)
	b.write(s, 10000)
	b.write(other, 100)
	s.CancelWrite(1)
	streams, _ := b.packet(packetSize)
	require.Equal(t, map[protocol.StreamID]protocol.ByteCount{other.streamID: 100}, streams)
	require.False(t, b.HasData())
}

// A stream that has completed leaves nothing behind, even while flow control lets nothing out: a peer that opens and resets
// streams could otherwise fill the memory with them.
func TestOrderCompleted(t *testing.T) {
	b := newOrderBench(t, 1000)
	blocked, s := b.stream(1<<20), b.stream(1<<20)
	b.setClient(blocked, 1)
	b.write(blocked, 10000)
	streams, _ := b.packet(packetSize)
	require.Equal(t, protocol.ByteCount(1000), streams[blocked.streamID])
	b.setClient(s, 1)
	b.write(s, 10000)
	b.datagram(s, 100, 0)
	for _, s := range []*SendStream{s, blocked} {
		require.True(t, b.HasData())
		s.CancelWrite(1)
		b.RemoveActiveStream(s.streamID)
	}
	require.False(t, b.HasData())
	require.Zero(t, b.order.datagrams)
	require.Zero(t, s.datagrams.queue.Len())
	b.RemoveActiveStream(b.stream(0).streamID) // has no client
}

func (b *orderBench) datagram(s *SendStream, size int, mark byte) {
	f := &wire.DatagramFrame{DataLenPresent: true, Data: make([]byte, size)}
	f.Data[0] = mark
	b.mutex.Lock()
	s.datagrams.push(f)
	b.mutex.Unlock()
}

// Datagrams of one flow share with the data of another; a few datagrams go first.
func TestOrderDatagrams(t *testing.T) {
	b := newOrderBench(t, 1<<30)
	bulk, udp, dns := b.stream(1<<30), b.stream(0), b.stream(0)
	b.setClient(bulk, 1)
	b.setClient(udp, 2)
	b.setClient(dns, 3)
	b.write(bulk, 10<<20)
	var sent [2]protocol.ByteCount
	for range 2000 {
		for udp.datagrams.queue.Len() < 64 {
			b.datagram(udp, 1100, 0)
		}
		streams, datagrams := b.packet(packetSize)
		sent[0] += streams[bulk.streamID]
		for _, d := range datagrams {
			sent[1] += protocol.ByteCount(len(d.Data))
		}
	}
	require.InEpsilon(t, int64(sent[0]), int64(sent[1]), 0.1)

	b.datagram(dns, 60, 42)
	_, datagrams := b.packet(packetSize)
	require.NotEmpty(t, datagrams)
	require.Equal(t, byte(42), datagrams[0].Data[0])
}

func TestDatagramFlow(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	s := b.stream(0)
	b.setClient(s, 1)

	// The oldest is dropped when there are too many.
	const most = maxDatagrams / 4
	for i := range most + 3 {
		b.datagram(s, 1100, byte(i))
	}
	for i := range most {
		_, datagrams := b.packet(packetSize)
		require.Len(t, datagrams, 1)
		require.Equal(t, byte(i+3), datagrams[0].Data[0])
	}
	require.False(t, b.HasData())

	// A datagram that does not fit beside other data goes into the next packet.
	b.datagram(s, 100, 1)
	b.datagram(s, 1190, 2)
	for i := range 2 {
		_, datagrams := b.packet(packetSize)
		require.Len(t, datagrams, 1)
		require.Equal(t, byte(i+1), datagrams[0].Data[0])
	}

	// A datagram that fits into no packet is dropped, and the next one is sent.
	b.datagram(s, 2000, 3)
	b.datagram(s, 100, 4)
	_, datagrams := b.packet(packetSize)
	require.Len(t, datagrams, 1)
	require.Equal(t, byte(4), datagrams[0].Data[0])
	require.False(t, b.HasData())
}

// However many flows send more than the path takes, their datagrams fill no more than the room for all, in equal parts, and a
// datagram of another flow finds room.
func TestDatagramsOfManyFlows(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	var flows []*SendStream
	add := func(n int) {
		for range n {
			s := b.stream(0)
			b.setClient(s, uint8(len(flows)))
			flows = append(flows, s)
		}
	}
	check := func() {
		sum := 0
		for _, s := range flows {
			require.NotZero(t, s.datagrams.queue.Len())
			sum += s.datagrams.queue.Len()
		}
		require.Equal(t, sum, b.order.datagrams)
	}
	add(5)
	for range 2 * maxDatagrams {
		for _, s := range flows {
			b.datagram(s, 100, 0)
		}
	}
	check()
	for _, s := range flows {
		require.InDelta(t, maxDatagrams/(len(flows)+3), s.datagrams.queue.Len(), 2)
	}
	add(1)
	for range 40 {
		b.datagram(flows[5], 100, 0)
	}
	require.Equal(t, 40, flows[5].datagrams.queue.Len())
	add(maxDatagrams)
	for range 3 {
		for _, s := range flows {
			b.datagram(s, 100, 0)
		}
	}
	check()
	require.LessOrEqual(t, b.order.datagrams, maxDatagrams+len(flows))
	for b.HasData() {
		b.packet(packetSize)
	}
	require.Zero(t, b.order.datagrams)
}

// What a flow sends while the path is down is of no use later, but for the latest. A burst waits for the path, however long.
func TestOldDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOrderBench(t, 1<<20)
		call, burst := b.stream(0), b.stream(0)
		b.setClient(call, 1)
		b.setClient(burst, 2)
		for i := range byte(100) {
			b.datagram(burst, 100, i)
		}
		for i := range byte(250) {
			b.datagram(call, 100, i)
			time.Sleep(20 * time.Millisecond)
		}
		require.Equal(t, 100, burst.datagrams.queue.Len())
		require.Equal(t, 51, call.datagrams.queue.Len())
		require.Equal(t, byte(249-50), call.datagrams.queue.PeekFront().frame.Data[0])
	})
}

// pack returns the stream data and the datagrams of the next packet with a payload of size bytes, which begins with ack
// unless it is nil.
func (b *orderBench) pack(size protocol.ByteCount, ack *wire.AckFrame) (data protocol.ByteCount, datagrams int) {
	acks := NewMockAckFrameSource(gomock.NewController(b.t))
	acks.EXPECT().GetAckFrame(gomock.Any(), gomock.Any(), gomock.Any()).Return(ack)
	p := &packetPacker{framer: b.framer, acks: acks, retransmissionQueue: newRetransmissionQueue()}
	pl := p.composeNextPacket(size, false, true, monotime.Now(), protocol.Version1)
	require.LessOrEqual(b.t, pl.length, size)
	for _, f := range pl.streamFrames {
		data += f.Frame.DataLen()
	}
	for _, f := range pl.frames {
		if _, ok := f.Frame.(*wire.DatagramFrame); ok {
			datagrams++
		}
	}
	return data, datagrams
}

// Datagrams that have become too large for the path hold up nothing: a packet in which nothing
// else is to be sent is not sent, and nothing might ask for another one.
func TestDatagramsTooLarge(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	udp, tcp := b.stream(0), b.stream(1<<20)
	b.setClient(udp, 1)
	b.setClient(tcp, 2)
	for range 3 {
		b.datagram(udp, 1400, 0)
	}
	b.write(tcp, 5000)
	for b.HasData() {
		data, datagrams := b.pack(packetSize, nil)
		require.NotZero(t, data)
		require.Zero(t, datagrams)
	}
	require.Zero(t, udp.datagrams.queue.Len())
}

// A datagram waits for a packet in which it fits, however many packets before contain something else.
func TestDatagramWaits(t *testing.T) {
	b := newOrderBench(t, 1<<20)
	s := b.stream(0)
	b.setClient(s, 1)
	b.datagram(s, packetSize-5, 0)
	for range 3 {
		_, datagrams := b.pack(packetSize, &wire.AckFrame{AckRanges: []wire.AckRange{{Smallest: 1, Largest: 9}}})
		require.Zero(t, datagrams)
	}
	_, datagrams := b.pack(packetSize, nil)
	require.Equal(t, 1, datagrams)
}
