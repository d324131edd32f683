// SPDX-License-Identifier: Apache-2.0

package quic

import (
	"github.com/quic-go/quic-go/internal/ackhandler"
	"github.com/quic-go/quic-go/internal/order"
	"github.com/quic-go/quic-go/internal/protocol"
	"github.com/quic-go/quic-go/internal/utils/ringbuffer"
	"github.com/quic-go/quic-go/internal/wire"
	"github.com/quic-go/quic-go/quicvarint"
)

// streamOrder orders the streams of a connection that carries those of many
// clients. Nil is stock behaviour, and so is what it does with all streams that
// nobody has called SetClient for, which go first. The framer's mutex guards it.
type streamOrder struct {
	root    *order.Node
	clients [256]*order.Node // by number, from 1 on
}

// A streamPlace is what a stream's sender has in the order. The framer's mutex guards it.
type streamPlace struct {
	flow      *order.Node // nil: none
	datagrams datagramFlow
}

// SetClient makes what s sends, and the datagrams of s, a client's, of those among
// whom the connection shares what it can send: who has sent little goes first, and
// all others share equally, however many streams each of them has. The number is the
// client's as long as the connection lasts; 0 is for a stream that is a client of its
// own. The stream's priority has no effect from then on. Further calls have none.
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
		f.order = &streamOrder{root: order.New(nil, nil)}
		f.connFlowController.share()
	}
	client := f.order.client(number)
	s.flow = order.New(client, s)
	s.datagrams.flow = order.New(client, &s.datagrams)
	if _, ok := f.activeStreams[s.streamID]; ok {
		delete(f.activeStreams, s.streamID) // its entry in the queue is stale now
		s.flow.Ready()
	}
}

func (o *streamOrder) client(number uint8) *order.Node {
	if number == 0 {
		return order.New(o.root, nil)
	}
	if o.clients[number] == nil {
		o.clients[number] = order.New(o.root, nil)
	}
	return o.clients[number]
}

func (o *streamOrder) hasData() bool { return o != nil && !o.root.Empty() }

// add says whether the order has taken a stream that has something to send.
func (o *streamOrder) add(str streamFrameGetter) bool {
	if o == nil {
		return false
	}
	s, ok := str.(*SendStream)
	if !ok || s.flow == nil {
		return false
	}
	s.flow.Ready()
	return true
}

// appendOrdered appends frames of the order's streams of up to maxLen bytes, as
// AppendStreamFrames does, and returns the length of what goes into either list.
func (f *framer) appendOrdered(
	frames []ackhandler.Frame,
	streamFrames []ackhandler.StreamFrame,
	maxLen protocol.ByteCount,
	v protocol.Version,
) (_ []ackhandler.Frame, _ []ackhandler.StreamFrame, controlLen, streamLen protocol.ByteCount) {
	for maxLen-controlLen-streamLen >= protocol.MinStreamFrameSize {
		flow := f.order.root.Next()
		if flow == nil {
			break
		}
		room := maxLen - controlLen - streamLen
		if d, ok := flow.Owner.(*datagramFlow); ok {
			frame := d.pop(room, streamLen+controlLen == 0, v)
			if frame == nil && d.late {
				break // the next packet may have more room
			}
			if frame == nil {
				continue
			}
			frames = append(frames, ackhandler.Frame{Frame: frame})
			controlLen += frame.Length(v)
			continue
		}
		s := flow.Owner.(*SendStream)
		// The last frame goes without its length (see popStreamFrame).
		sf, blocked, more := s.popStreamFrame(room+protocol.ByteCount(quicvarint.Len(uint64(room))), v)
		if sf.Frame == nil && more {
			if !s.isBlocked() { // by the connection's flow control, as are all others
				break
			}
			more = false // MAX_STREAM_DATA will make it ready
		}
		var length protocol.ByteCount
		if sf.Frame != nil {
			length = sf.Frame.Length(v)
			streamFrames = append(streamFrames, sf)
			streamLen += length
		}
		flow.Sent(int(length), more)
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

// isBlocked says that the stream's own flow control lets it send nothing.
func (s *SendStream) isBlocked() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.flowController.bytesSent >= s.flowController.sendWindow
}

// maxFlowDatagrams is how many datagrams of a flow wait: about what a sender's kernel
// hands over at once (64 kB). When one more comes, the oldest goes: who sends more than
// there is room for has to learn of it, and what is late is worth the least.
const maxFlowDatagrams = 64

// A datagramFlow is the datagrams of one stream that wait to be sent.
type datagramFlow struct {
	flow  *order.Node
	queue ringbuffer.RingBuffer[*wire.DatagramFrame]
	late  bool // the first one did not fit into a packet
}

// SendDatagram is Conn.SendDatagram of a datagram that belongs to s, in the order
// that SetClient has put s into. It does not block.
func (s *Stream) SendDatagram(p []byte) error {
	c := s.sender.(*Conn)
	f := c.framer
	f.mutex.Lock()
	ordered := f.order != nil && s.sendStr.flow != nil
	f.mutex.Unlock()
	if !ordered {
		return c.SendDatagram(p)
	}
	frame, err := c.newDatagram(p)
	if err != nil {
		return err
	}
	f.mutex.Lock()
	s.sendStr.datagrams.push(frame)
	f.mutex.Unlock()
	c.scheduleSending()
	return nil
}

func (d *datagramFlow) push(frame *wire.DatagramFrame) {
	if d.queue.Len() == maxFlowDatagrams {
		d.queue.PopFront()
		d.late = false
	}
	d.queue.PushBack(frame)
	d.flow.Ready()
}

// pop returns the first datagram if it fits into room. What has not fitted before,
// and does not where it is the first in a packet, fits into none, and is dropped: the
// path has become narrower.
func (d *datagramFlow) pop(room protocol.ByteCount, first bool, v protocol.Version) *wire.DatagramFrame {
	frame := d.queue.PeekFront()
	length := frame.Length(v)
	if length > room && !(d.late && first) {
		d.late = true
		return nil
	}
	d.queue.PopFront()
	d.late = false
	if length > room {
		d.flow.Sent(0, !d.queue.Empty())
		return nil
	}
	d.flow.Sent(int(length), !d.queue.Empty())
	return frame
}
