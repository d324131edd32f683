// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"time"

	"github.com/quic-go/quic-go/internal/ackhandler"
	"github.com/quic-go/quic-go/internal/monotime"
	"github.com/quic-go/quic-go/internal/order"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils/ringbuffer"
	"github.com/quic-go/quic-go/internal/wire"
	"github.com/quic-go/quic-go/quicvarint"
)

// streamOrder orders the streams of a connection that carries streams of many
// clients. Nil is stock behaviour. Streams without a call of SetClient are sent
// first, in stock order. The framer's mutex guards it.
type streamOrder struct {
	root      *order.Node
	clients   [256]*order.Node // by number, from 1 on
	streams   map[protocol.StreamID]*SendStream
	datagrams int // queued
}

// A streamPlace is the place of a stream's sender in the order. The framer's mutex guards it.
type streamPlace struct {
	flow      *order.Node // nil: none
	datagrams datagramFlow
}

// SetClient assigns the data and datagrams that s sends to a client. The connection
// divides its capacity among clients: one that has sent less than the others in the last second
// goes first, and all others share equally, however many streams each of them has. A number
// identifies a client as long as the connection lasts; 0 makes the stream a client
// by itself. From then on, the stream's priority has no effect, nor do further calls.
func (s *Stream) SetClient(number uint8) {
	if c, ok := s.sender.(*Conn); ok {
		c.framer.setClient(s.sendStr, number)
	}
}

func (f *framer) setClient(s *SendStream, number uint8) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if s.flow != nil {
		return
	}
	if f.order == nil {
		f.order = &streamOrder{root: order.New(nil, nil), streams: make(map[protocol.StreamID]*SendStream)}
		f.connFlowController.share()
	}
	client := f.order.clients[number]
	if client == nil {
		client = order.New(f.order.root, nil)
		if number > 0 {
			f.order.clients[number] = client
		}
	}
	f.order.streams[s.streamID] = s
	s.flow = order.New(client, s)
	s.datagrams.flow, s.datagrams.order = order.New(client, &s.datagrams), f.order
	if _, ok := f.activeStreams[s.streamID]; ok {
		delete(f.activeStreams, s.streamID) // makes its entry in the queue stale
		s.flow.Ready(monotime.Now())
	}
}

func (o *streamOrder) hasData() bool { return o != nil && !o.root.Empty() }

// add queues a stream that has data to send. It returns false if the stream is not in the order.
func (o *streamOrder) add(str streamFrameGetter) bool {
	if o == nil {
		return false
	}
	s, ok := str.(*SendStream)
	if !ok || s.flow == nil {
		return false
	}
	s.flow.Ready(monotime.Now())
	return true
}

// remove takes a completed stream out of the order, with its datagrams. If it left only with its turn, a peer that lets
// nothing out could fill the memory with streams that it opens and resets.
func (o *streamOrder) remove(id protocol.StreamID) {
	if o == nil || o.streams[id] == nil {
		return
	}
	place, now := &o.streams[id].streamPlace, monotime.Now()
	delete(o.streams, id)
	o.datagrams -= place.datagrams.queue.Len()
	place.datagrams.queue = ringbuffer.RingBuffer[queuedDatagram]{}
	place.datagrams.flow.Sent(now, 0, false)
	place.flow.Sent(now, 0, false)
}

// appendOrdered appends up to maxLen bytes of frames of the order's streams, as
// AppendStreamFrames does, and returns the length of the frames added to both lists.
func (f *framer) appendOrdered(frames []ackhandler.Frame, streamFrames []ackhandler.StreamFrame, maxLen protocol.ByteCount, v protocol.Version,
) (_ []ackhandler.Frame, _ []ackhandler.StreamFrame, controlLen, streamLen protocol.ByteCount) {
	now := monotime.Now()
	var blockedFlows []*order.Node // by the connection's flow control
	for maxLen-controlLen-streamLen >= protocol.MinStreamFrameSize {
		flow := f.order.root.Next()
		if flow == nil {
			break
		}
		room := maxLen - controlLen - streamLen
		if d, ok := flow.Owner.(*datagramFlow); ok {
			frame := d.queue.PeekFront().frame
			length := frame.Length(v)
			fits := length <= room
			if !fits && !(f.alone && len(frames) == 0 && len(streamFrames) == 0) {
				break // the next packet may have more room
			}
			d.queue.PopFront()
			f.order.datagrams--
			if fits {
				frames = append(frames, ackhandler.Frame{Frame: frame})
				controlLen += length
			} else {
				length = 0 // the path no longer carries such a packet: dropped
			}
			flow.Sent(now, int(length), !d.queue.Empty())
			continue
		}
		s := flow.Owner.(*SendStream)
		sf, blocked, more := s.popStreamFrame(room+protocol.ByteCount(quicvarint.Len(uint64(room))), v) // the last frame goes without its length
		if sf.Frame == nil && more {
			if !s.isBlocked() { // the connection's flow control blocks all streams, but no datagrams
				if f.order.datagrams == 0 {
					break
				}
				blockedFlows = append(blockedFlows, flow)
			}
			more = false // MAX_STREAM_DATA will make the stream ready
		}
		var length protocol.ByteCount
		if sf.Frame != nil {
			length = sf.Frame.Length(v)
			streamFrames = append(streamFrames, sf)
			streamLen += length
		}
		flow.Sent(now, int(length), more)
		if blocked != nil {
			if length = blocked.Length(v); length > maxLen-controlLen-streamLen {
				f.controlFrames = append(f.controlFrames, blocked)
				break
			}
			frames = append(frames, ackhandler.Frame{Frame: blocked})
			controlLen += length
		}
	}
	for _, flow := range blockedFlows {
		flow.Ready(now)
	}
	return frames, streamFrames, controlLen, streamLen
}

// noteAlone tells the framer whether a packet contains nothing before AppendStreamFrames.
func (p *packetPacker) noteAlone(pl *payload) {
	if f, ok := p.framer.(*framer); ok {
		f.alone = pl.length == 0
	}
}

// isBlocked says if the stream is blocked by its own flow control.
func (s *SendStream) isBlocked() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.flowController.bytesSent >= s.flowController.sendWindow
}

const (
	// maxDatagrams is how many datagrams of all flows are queued: 1.5 MB at most. A flow may have a third as many as there is room for: as many as
	// 256, so that a burst such as a picture of a video is sent whole, and fewer when several flows send more than the path takes.
	maxDatagrams = 1024
	// maxDatagramAge is by how much a datagram may be older than the latest one of its flow: as long as shares are equal (package order). A
	// burst may wait for longer.
	maxDatagramAge = time.Second
)

// A datagramFlow is the queued datagrams of one stream.
type datagramFlow struct {
	order *streamOrder
	flow  *order.Node
	queue ringbuffer.RingBuffer[queuedDatagram]
}

type queuedDatagram struct {
	frame *wire.DatagramFrame
	at    monotime.Time
}

// SendDatagram is like Conn.SendDatagram for a datagram that belongs to s. It follows
// the order set by SetClient, and does not block.
func (s *Stream) SendDatagram(p []byte) error {
	c := s.sender.(*Conn)
	frame, err := c.newDatagram(p)
	if err != nil {
		return err
	}
	f := c.framer
	f.mutex.Lock()
	ordered := f.order != nil && s.sendStr.flow != nil
	if ordered {
		s.sendStr.datagrams.push(frame)
	}
	f.mutex.Unlock()
	if !ordered {
		return c.datagramQueue.Add(frame)
	}
	c.scheduleSending()
	return nil
}

// push queues a datagram, and drops the oldest ones if there are too many: a sender that exceeds the capacity must see loss, and late
// datagrams are worth the least. It always queues the latest one.
func (d *datagramFlow) push(frame *wire.DatagramFrame) {
	now := monotime.Now()
	for !d.queue.Empty() && (d.queue.Len() >= (maxDatagrams-d.order.datagrams)/3 || now.Sub(d.queue.PeekFront().at) > maxDatagramAge) {
		d.queue.PopFront()
		d.order.datagrams--
	}
	d.queue.PushBack(queuedDatagram{frame, now})
	d.order.datagrams++
	d.flow.Ready(now)
}
