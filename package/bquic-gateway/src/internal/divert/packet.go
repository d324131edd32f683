// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A Packet is the first packet of a connection, or a packet of a new flow.
type Packet struct {
	Client, Target netip.AddrPort
	UDP            bool   // else TCP
	Payload        []byte // UDP only

	// How the kernel was about to forward it.
	In   int    // index of the device by which it came
	Out  int    // index of the device; 0: bridged, so the node does not forward it
	Mark uint32 // including marks from the node's own rules
	MSS  uint16 // TCP only: the largest segment that the client takes, or less if the node's own rules say so; 0: unknown
	TOS  byte   // DSCP and ECN, including changes by the node's own rules
	// MAC is the hardware address that sent it; zero: unknown.
	MAC [6]byte
	// For bridged packets.
	Bridge int // index of the bridge's device in the node's IP layer; 0: routed

	bridged bool
	leaves  *BridgePort // by which it would leave
	port    int         // index of the bridge port
	vlan    uint16
	id      uint32
	data    []byte // from the IP header
}

var errUnknown = errors.New("neither a SYN nor a UDP datagram")

// plain reports whether a SYN's header is whole, and not signed (TCP-MD5, RFC 2385; TCP-AO, RFC 5925), as those of BGP often are.
// Only the ends know the key, so the kernel would not let the listener see the connection. Nor is a SYN plain that joins another
// path of the client to a connection that its server has already (Multipath TCP, RFC 8684, section 3.2). It reads the MSS.
func (p *Packet) plain(tcp []byte) bool {
	const end, nop, mss, md5, ao, multipath, join = 0, 1, 2, 19, 29, 30, 1
	length := int(tcp[12]>>4) * 4
	if length < 20 || length > len(tcp) {
		return false
	}
	for options := tcp[20:length]; len(options) > 0 && options[0] != end; {
		n := 1
		if options[0] != nop {
			if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
				return true // as the kernel reads them, the options end here
			}
			n = int(options[1])
		}
		switch {
		case options[0] == md5, options[0] == ao, options[0] == multipath && n > 2 && options[2]>>4 == join:
			return false
		case options[0] == mss && n == 4:
			p.MSS = binary.BigEndian.Uint16(options[2:])
		}
		options = options[n:]
	}
	return true
}

// parse reads addresses and ports. It returns errUnknown for packets that are never
// taken, such as fragments, packets with IPv6 extension headers, signed SYNs, and those of further paths.
func (p *Packet) parse(b []byte) error {
	p.data = b
	if len(b) == 0 {
		return errUnknown
	}
	var client, target netip.Addr
	var protocol byte
	switch b[0] >> 4 {
	case 4:
		header := int(b[0]&15) * 4
		if header < 20 || len(b) < header || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return errUnknown
		}
		client, target = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		protocol = b[9]
		p.TOS = b[1]
		// A bridge does not remove the padding of a short frame.
		if n := int(binary.BigEndian.Uint16(b[2:])); header <= n && n < len(b) {
			b, p.data = b[:n], b[:n]
		}
		b = b[header:]
	case 6:
		if len(b) < 40 {
			return errUnknown
		}
		if n := 40 + int(binary.BigEndian.Uint16(b[4:])); n < len(b) {
			b, p.data = b[:n], b[:n]
		}
		client, target = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		protocol = b[6]
		p.TOS = b[0]<<4 | b[1]>>4
		b = b[40:]
	default:
		return errUnknown
	}
	switch {
	case protocol == unix.IPPROTO_TCP && len(b) >= 20 && p.plain(b):
	case protocol == unix.IPPROTO_UDP && len(b) >= 8:
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < 8 || length > len(b) {
			return errUnknown
		}
		p.UDP, p.Payload = true, b[8:length]
	default:
		return errUnknown
	}
	p.Client = netip.AddrPortFrom(client, binary.BigEndian.Uint16(b))
	p.Target = netip.AddrPortFrom(target, binary.BigEndian.Uint16(b[2:]))
	return nil
}
