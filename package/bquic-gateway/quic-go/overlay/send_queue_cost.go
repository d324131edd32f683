// SPDX-License-Identifier: Apache-2.0

package quic

// A select of several channels takes many times as long as a channel alone, and
// the queue had three of them per packet.

// sendAtOnce queues e if there is room. As before, available says that a full
// queue has had room since.
func (h *sendQueue) sendAtOnce(e queueEntry) bool {
	select {
	case h.queue <- e:
	default:
		return false
	}
	if len(h.queue) == sendQueueCapacity {
		select {
		case <-h.available:
		default:
		}
	}
	return true
}

// writeAll writes e and what is queued behind it.
func (h *sendQueue) writeAll(e queueEntry) error {
	for {
		// "Message too long" is for path MTU discovery: the packet is lost.
		if err := h.conn.Write(e.buf.Data, e.gsoSize, e.ecn); err != nil && !isSendMsgSizeErr(err) {
			return err
		}
		e.buf.Release()
		select {
		case h.available <- struct{}{}:
		default:
		}
		select {
		case e = <-h.queue:
		default:
			return nil
		}
	}
}
