// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/netfilter/nfnetlink_queue.h.
const (
	msgPacket   = unix.NFNL_SUBSYS_QUEUE << 8
	msgVerdict  = unix.NFNL_SUBSYS_QUEUE<<8 | 1
	msgConfig   = unix.NFNL_SUBSYS_QUEUE<<8 | 2
	msgVerdicts = unix.NFNL_SUBSYS_QUEUE<<8 | 3 // NFQNL_MSG_VERDICT_BATCH

	attrHeader   = 1 // attributes of packets
	attrVerdict  = 2
	attrMark     = 3
	attrIn       = 5
	attrOut      = 6
	attrPhysOut  = 8 // the port, if attrOut is its bridge
	attrHardware = 9 // struct nfqnl_msg_packet_hw
	attrVLAN     = 19
	attrTCI      = 2 // in attrVLAN
	attrPayload  = 10
	cfgCommand   = 1
	cfgParams    = 2
	cfgLength    = 3
	cfgMask      = 4
	cfgFlags     = 5
	commandBind  = 1
	copyPacket   = 2
	flagFailOpen = 1

	verdictDrop   = 0
	verdictAccept = 1
)

const (
	// queueNumber is the number of the NFQUEUE.
	queueNumber = 25201
	// queueLength is how many packets can wait. The kernel lets further packets pass.
	queueLength = 4096
	// queueBuffer is the size of the socket's receive buffer, in bytes.
	queueBuffer = 1 << 20
)

// A queue is the reader of queueNumber.
type queue struct{ conn *netlink.Conn }

func openQueue() (*queue, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	// The kernel lets packets pass that do not fit into the socket's buffer, so
	// ENOBUFS is not an error.
	_ = conn.SetOption(netlink.NoENOBUFS, true)
	_ = conn.SetReadBuffer(queueBuffer)
	q := &queue{conn}
	be := binary.BigEndian
	for _, attrs := range [][]netlink.Attribute{
		{{Type: cfgCommand, Data: []byte{commandBind, 0, 0, 0}}},
		{
			{Type: cfgParams, Data: append(be.AppendUint32(nil, 0xffff), copyPacket)},
			{Type: cfgLength, Data: be.AppendUint32(nil, queueLength)},
			{Type: cfgMask, Data: be.AppendUint32(nil, flagFailOpen)},
			{Type: cfgFlags, Data: be.AppendUint32(nil, flagFailOpen)},
		},
	} {
		m, err := message(msgConfig, netlink.Request|netlink.Acknowledge, attrs...)
		if err == nil {
			_, err = conn.Execute(m)
		}
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("another process uses NFQUEUE %d, or this one is not allowed to: %w", queueNumber, err)
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
	}
	return q, nil
}

// message returns a message of the queue's subsystem.
func message(kind netlink.HeaderType, flags netlink.HeaderFlags, attrs ...netlink.Attribute) (m netlink.Message, err error) {
	b, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return m, err
	}
	// struct nfgenmsg
	head := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, 0}, queueNumber)
	m.Header.Type, m.Header.Flags = kind, flags
	m.Data = append(head, b...)
	return m, nil
}

// read returns the queued packets. It accepts packets that cannot be taken.
func (q *queue) read() ([]*Packet, error) {
	msgs, err := q.conn.Receive()
	if errors.Is(err, unix.ENOENT) { // a verdict for a packet that is gone together with its device
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var packets []*Packet
	for _, m := range msgs {
		if m.Header.Type != msgPacket || len(m.Data) < 4 {
			continue
		}
		p, ok := readPacket(m.Data[4:])
		if p != nil {
			p.bridged = m.Data[0] == unix.AF_BRIDGE
		}
		switch {
		case p == nil: // no ID, so no verdict is possible
		case !ok:
			q.verdict(p, verdictAccept)
		default:
			packets = append(packets, p)
		}
	}
	return packets, nil
}

// readPacket parses the attributes of a message. ok says whether the packet can be taken.
func readPacket(b []byte) (p *Packet, ok bool) {
	attrs, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, false
	}
	attrs.ByteOrder = binary.BigEndian
	var payload []byte
	packet, known := new(Packet), false
	for attrs.Next() {
		switch attrs.Type() {
		case attrHeader:
			if b := attrs.Bytes(); len(b) >= 4 {
				packet.id, known = binary.BigEndian.Uint32(b), true
			}
		case attrMark:
			packet.Mark = attrs.Uint32()
		case attrIn:
			packet.In = int(attrs.Uint32())
		case attrOut:
			packet.Out = int(attrs.Uint32())
		case attrPhysOut:
			packet.port = int(attrs.Uint32())
		case attrHardware:
			if b := attrs.Bytes(); len(b) >= 10 && b[1] == 6 { // the address's length, before two bytes of padding
				packet.MAC = [6]byte(b[4:])
			}
		case attrVLAN:
			attrs.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == attrTCI && len(ad.Bytes()) >= 2 {
						packet.vlan = binary.BigEndian.Uint16(ad.Bytes()) & 0x0fff
					}
				}
				return ad.Err()
			})
		case attrPayload:
			payload = attrs.Bytes()
		}
	}
	if !known {
		return nil, false
	}
	return packet, attrs.Err() == nil && packet.parse(payload) == nil
}

// verdict sends the verdict on a packet.
func (q *queue) verdict(p *Packet, verdict uint32) { q.tell(msgVerdict, p.id, verdict) }

// tell sends a verdict on a packet, or on all packets up to that ID, which the kernel counts from 1. Nothing could be done about an error: the
// packet is gone with its device, or the kernel has no memory.
func (q *queue) tell(kind netlink.HeaderType, id, verdict uint32) {
	b := binary.BigEndian.AppendUint32(nil, verdict)
	m, err := message(kind, netlink.Request, netlink.Attribute{Type: attrVerdict, Data: binary.BigEndian.AppendUint32(b, id)})
	if err == nil {
		_, _ = q.conn.Send(m)
	}
}
