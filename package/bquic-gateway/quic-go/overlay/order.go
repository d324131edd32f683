// SPDX-License-Identifier: Apache-2.0

package quic

import (
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
	root    *order.Node
	clients [256]*order.Node // by number, from 1 on
	streams map[protocol.StreamID]*SendStream
	need    protocol.ByteCount // the least need of a stream that waits; MaxByteCount: none does
}

// A streamPlace is the place of a stream's sender in the order. The framer's mutex guards it.
type streamPlace struct {
	flow      *order.Node // nil: none
	datagrams datagramFlow
	need      protocol.ByteCount // it waits until this much of the connection's window is free; 0: it does not wait
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
		f.order = &streamOrder{
			root:    order.New(nil, nil),
			streams: make(map[protocol.StreamID]*SendStream),
			need:    protocol.MaxByteCount,
		}
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
	s.datagrams.flow = order.New(client, &s.datagrams)
	if _, ok := f.activeStreams[s.streamID]; ok {
		delete(f.activeStreams, s.streamID) // makes its entry in the queue stale
		s.flow.Ready(monotime.Now())
	}
}

// hasOrdered says if the order has data to send, after it has ended the wait of streams that the window now has room for.
func (f *framer) hasOrdered() bool {
	o := f.order
	if o == nil {
		return false
	}
	if o.need == protocol.MaxByteCount {
		return !o.root.Empty()
	}
	if free := f.connFlowController.SendWindowSize(); free >= o.need {
		o.need = protocol.MaxByteCount
		for _, s := range o.streams {
			if s.need > free {
				o.need = min(o.need, s.need)
			} else if s.need > 0 {
				s.need = 0
				s.flow.Ready(monotime.Now())
			}
		}
	}
	return !o.root.Empty()
}

// needs returns how much of the connection's window must be free so that s may send: more than a quarter of what the peer
// has not read yet. So a single stream may take four fifths of the window, and however many streams nobody reads, they
// leave something to the others.
func (s *SendStream) needs() protocol.ByteCount {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.dataForWriting == nil && s.nextFrame == nil {
		return 0 // its end
	}
	c := s.flowController
	return (c.bytesSent+c.sendWindowSize-c.sendWindow)/4 + 1
}

// add queues a stream that has data to send. It returns false if the stream is not in the order.
func (o *streamOrder) add(id protocol.StreamID) bool {
	if o == nil || o.streams[id] == nil {
		return false
	}
	o.streams[id].flow.Ready(monotime.Now())
	return true
}

// remove takes a completed stream out of the order, with its datagrams. If it left only with its turn, a peer that lets
// nothing out could fill the memory with streams that it opens and resets.
func (o *streamOrder) remove(id protocol.StreamID) {
	if o == nil || o.streams[id] == nil {
		return
	}
	s, now := o.streams[id], monotime.Now()
	delete(o.streams, id)
	s.datagrams.queue = ringbuffer.RingBuffer[*wire.DatagramFrame]{}
	s.datagrams.flow.Sent(now, 0, false)
	s.flow.Sent(now, 0, false)
}

// appendOrdered appends up to maxLen bytes of frames of the order's streams, as
// AppendStreamFrames does, and returns the length of the frames added to both lists.
func (f *framer) appendOrdered(frames []ackhandler.Frame, streamFrames []ackhandler.StreamFrame, maxLen protocol.ByteCount, v protocol.Version,
) (_ []ackhandler.Frame, _ []ackhandler.StreamFrame, controlLen, streamLen protocol.ByteCount) {
	now := monotime.Now()
	free := f.connFlowController.SendWindowSize()
	for maxLen-controlLen-streamLen >= protocol.MinStreamFrameSize {
		flow := f.order.root.Next()
		if flow == nil {
			break
		}
		room := maxLen - controlLen - streamLen
		if d, ok := flow.Owner.(*datagramFlow); ok {
			frame := d.queue.PeekFront()
			length := frame.Length(v)
			fits := length <= room
			if !fits && !(f.alone && len(frames) == 0 && len(streamFrames) == 0) {
				break // the next packet may have more room
			}
			d.queue.PopFront()
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
		if need := s.needs(); need > free {
			s.need, f.order.need = need, min(f.order.need, need)
			flow.Sent(now, 0, false)
			continue
		}
		sf, blocked, more := s.popStreamFrame(room+protocol.ByteCount(quicvarint.Len(uint64(room))), v) // the last frame goes without its length
		var length protocol.ByteCount
		if sf.Frame != nil {
			length = sf.Frame.Length(v)
			streamFrames = append(streamFrames, sf)
			streamLen += length
			free -= sf.Frame.DataLen()
		} else {
			more = false // its own flow control blocks it: MAX_STREAM_DATA will make it ready
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
	return frames, streamFrames, controlLen, streamLen
}

// noteAlone tells the framer whether a packet contains nothing before AppendStreamFrames.
func (p *packetPacker) noteAlone(pl *payload) {
	if f, ok := p.framer.(*framer); ok {
		f.alone = pl.length == 0
	}
}

// maxFlowDatagrams is how many datagrams of a flow are queued: about what a sender's
// kernel passes on at once (64 kB). One more drops the oldest: a sender that exceeds the
// capacity must see loss, and late datagrams are worth the least.
const maxFlowDatagrams = 64

// A datagramFlow is the queued datagrams of one stream.
type datagramFlow struct {
	flow  *order.Node
	queue ringbuffer.RingBuffer[*wire.DatagramFrame]
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

func (d *datagramFlow) push(frame *wire.DatagramFrame) {
	if d.queue.Len() == maxFlowDatagrams {
		d.queue.PopFront()
	}
	d.queue.PushBack(frame)
	d.flow.Ready(monotime.Now())
}
