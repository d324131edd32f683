// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// This file makes the messages of include/uapi/linux/netfilter/nf_tables.h that this package
// needs. (google/nftables has all of them, but adds 210 KB to a binary for MIPS.)

// An expression is one step of a rule.
type expression struct {
	name  string
	attrs []netlink.Attribute
}

func attr(kind uint16, data []byte) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: data}
}

// num returns a numeric attribute, in network byte order like all numbers of nf_tables.
func num(kind uint16, n uint32) netlink.Attribute {
	return attr(kind, binary.BigEndian.AppendUint32(nil, n))
}

func short(kind, n uint16) netlink.Attribute {
	return attr(kind, binary.BigEndian.AppendUint16(nil, n))
}

func text(kind uint16, s string) netlink.Attribute { return attr(kind, append([]byte(s), 0)) }

func nested(kind uint16, attrs ...netlink.Attribute) netlink.Attribute {
	b, err := netlink.MarshalAttributes(attrs)
	if err != nil { // an attribute of 64 KiB or more
		panic(err)
	}
	return attr(kind|unix.NLA_F_NESTED, b)
}

// value returns data to compare with, or to load into a register.
func value(kind uint16, data []byte) netlink.Attribute {
	return nested(kind, attr(unix.NFTA_DATA_VALUE, data))
}

// The first 16-byte registers. All loads go to the first one.
const reg1, reg2 = unix.NFT_REG_1, unix.NFT_REG_2

func loadMeta(key uint32) expression {
	return expression{"meta", []netlink.Attribute{num(unix.NFTA_META_DREG, reg1), num(unix.NFTA_META_KEY, key)}}
}

func storeMeta(key uint32) expression {
	return expression{"meta", []netlink.Attribute{num(unix.NFTA_META_KEY, key), num(unix.NFTA_META_SREG, reg1)}}
}

// loadConn loads what conntrack knows of a packet's connection (NFT_CT_STATE and the like).
func loadConn(key uint32) expression {
	return expression{"ct", []netlink.Attribute{num(unix.NFTA_CT_DREG, reg1), num(unix.NFTA_CT_KEY, key)}}
}

func storeConnMark() expression {
	return expression{"ct", []netlink.Attribute{num(unix.NFTA_CT_KEY, unix.NFT_CT_MARK), num(unix.NFTA_CT_SREG, reg1)}}
}

func loadPayload(base, offset, size uint32) expression { return loadInto(reg1, base, offset, size) }

// loadSocket loads what is known of the packet's socket (NFTA_SOCKET_DREG, NFTA_SOCKET_KEY): whether it
// has IP_TRANSPARENT (0), or its mark (1).
func loadSocket(key uint32) expression {
	return expression{"socket", []netlink.Attribute{num(1, key), num(2, reg1)}}
}

func compare(op uint32, data []byte) expression {
	return expression{"cmp", []netlink.Attribute{num(unix.NFTA_CMP_SREG, reg1), num(unix.NFTA_CMP_OP, op), value(unix.NFTA_CMP_DATA, data)}}
}

// masked sets reg1 to (reg1 & mask) ^ xor.
func masked(mask, xor []byte) expression {
	return expression{"bitwise", []netlink.Attribute{
		num(unix.NFTA_BITWISE_SREG, reg1), num(unix.NFTA_BITWISE_DREG, reg1), num(unix.NFTA_BITWISE_LEN, uint32(len(mask))),
		value(unix.NFTA_BITWISE_MASK, mask), value(unix.NFTA_BITWISE_XOR, xor),
	}}
}

func immediate(register uint32, data []byte) expression {
	return expression{"immediate", []netlink.Attribute{num(unix.NFTA_IMMEDIATE_DREG, register), value(unix.NFTA_IMMEDIATE_DATA, data)}}
}

// keyReg is the first 32-bit register of a key of several parts. valueReg is the register for a
// map's value.
const keyReg, valueReg = unix.NFT_REG32_00, unix.NFT_REG32_12

// loadInto is like loadPayload, but loads into any register.
func loadInto(register, base, offset, size uint32) expression {
	return expression{"payload", []netlink.Attribute{
		num(unix.NFTA_PAYLOAD_DREG, register), num(unix.NFTA_PAYLOAD_BASE, base),
		num(unix.NFTA_PAYLOAD_OFFSET, offset), num(unix.NFTA_PAYLOAD_LEN, size),
	}}
}

// storePayload writes valueReg to the packet.
func storePayload(base, offset, size uint32) expression {
	return expression{"payload", []netlink.Attribute{
		num(unix.NFTA_PAYLOAD_SREG, valueReg), num(unix.NFTA_PAYLOAD_BASE, base),
		num(unix.NFTA_PAYLOAD_OFFSET, offset), num(unix.NFTA_PAYLOAD_LEN, size),
	}}
}

// lookup loads the key's value from a map, or ends the rule if the map does not have the key.
func lookup(set string) expression {
	return expression{"lookup", []netlink.Attribute{
		text(unix.NFTA_LOOKUP_SET, set), num(unix.NFTA_LOOKUP_SREG, keyReg), num(unix.NFTA_LOOKUP_DREG, valueReg),
	}}
}

// Operations of a rule on a map (enum nft_dynset_ops).
const setUpdate, setDelete = unix.NFT_DYNSET_OP_UPDATE, 2

// change adds an element or restarts its timeout, or removes it. The rule ends if the map is full. timeout 0 is the map's.
func change(set string, op uint32, timeout time.Duration) expression {
	attrs := []netlink.Attribute{
		text(unix.NFTA_DYNSET_SET_NAME, set), num(unix.NFTA_DYNSET_OP, op),
		num(unix.NFTA_DYNSET_SREG_KEY, keyReg), num(unix.NFTA_DYNSET_SREG_DATA, valueReg),
	}
	if timeout > 0 {
		attrs = append(attrs, milliseconds(unix.NFTA_DYNSET_TIMEOUT, timeout))
	}
	return expression{"dynset", attrs}
}

func milliseconds(kind uint16, d time.Duration) netlink.Attribute {
	return attr(kind, binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds())))
}

// decide ends a rule with a verdict. chain is the target of NFT_GOTO, otherwise "".
func decide(code int32, chain string) expression {
	attrs := []netlink.Attribute{num(unix.NFTA_VERDICT_CODE, uint32(code))}
	if chain != "" {
		attrs = append(attrs, text(unix.NFTA_VERDICT_CHAIN, chain))
	}
	return expression{"immediate", []netlink.Attribute{
		num(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT), nested(unix.NFTA_IMMEDIATE_DATA, nested(unix.NFTA_DATA_VERDICT, attrs...)),
	}}
}

// A transaction is a batch of messages that the kernel executes all or none.
type transaction struct{ messages []netlink.Message }

// add adds a message. family is the table's.
func (t *transaction) add(family byte, kind int, flags netlink.HeaderFlags, attrs ...netlink.Attribute) {
	b, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		panic(err)
	}
	t.messages = append(t.messages, netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, b...),
	})
}

// commit sends the batch. It returns the kernel's first error.
func (t *transaction) commit(conn *netlink.Conn) error {
	frame := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: kind, Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	batch := append([]netlink.Message{frame(unix.NFNL_MSG_BATCH_BEGIN)}, t.messages...)
	batch[len(batch)-1].Header.Flags |= netlink.Acknowledge
	if _, err := conn.SendMessages(append(batch, frame(unix.NFNL_MSG_BATCH_END))); err != nil {
		return err
	}
	// The kernel answers messages with an error, and the last one. It would have no room for answers to a few hundred.
	if _, err := conn.Receive(); err != nil {
		drain(conn)
		return err
	}
	return nil
}

// drain reads the kernel's remaining answers. The kernel wrote them before it returned from the
// send, so drain does not wait, and needs no deadline.
func drain(conn *netlink.Conn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		var b [1]byte // reading one byte consumes the whole datagram
		for {
			_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT)
			// ENOBUFS means only that the kernel had no room for an answer; there may be others.
			if err != nil && err != unix.EINTR && err != unix.ENOBUFS {
				return
			}
		}
	})
}
