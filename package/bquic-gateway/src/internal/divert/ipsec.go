// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"bquic/internal/route"
)

// From include/uapi/linux/xfrm.h.
const (
	msgGetProtection = 0x15 // XFRM_MSG_GETPOLICY
	directionOut     = 1    // XFRM_POLICY_OUT
	actionAllow      = 0    // XFRM_POLICY_ALLOW
	attrTemplates    = 5    // XFRMA_TMPL
	attrXfrmMark     = 21   // XFRMA_MARK: struct xfrm_mark
	attrInterface    = 31   // XFRMA_IF_ID
)

// ipsecInterval is how often a kernel without IPsec is asked whether it has it now: it looks for a module then.
const ipsecInterval = 10 * time.Minute

// lookForIPsec finds out whether the kernel has policies of IPsec at all. It is called now and then.
func (d *Diverter) lookForIPsec() {
	if d.ipsec.Load() || time.Since(d.lookedForIPsec) < ipsecInterval {
		return
	}
	d.lookedForIPsec = time.Now()
	if conn, err := netlink.Dial(unix.NETLINK_XFRM, nil); err == nil {
		conn.Close()
		d.ipsec.Store(true)
	}
}

// Protected reports whether a policy of IPsec says what happens to a packet that the node forwards: the kernel is about to encrypt it.
// Neither the packets of a carried connection nor those of one that the node makes itself match that policy.
func (d *Diverter) Protected(p *Packet) bool {
	if !d.ipsec.Load() {
		return false
	}
	conn, err := netlink.Dial(unix.NETLINK_XFRM, nil)
	if err != nil {
		return true
	}
	defer conn.Close()
	msgs, err := route.Ask(conn, msgGetProtection, netlink.Dump, nil)
	return err != nil || protects(msgs, p)
}

// protects reports whether the policy that decides on a packet encrypts it. As in the kernel, that is the first one that matches, by priority.
// Of several with the same priority, it is the oldest, which the kernel lists last.
func protects(policies []netlink.Message, p *Packet) bool {
	first := protection{bypass: true, priority: 1<<32 - 1}
	for _, m := range policies {
		if is, ok := readProtection(m.Data); ok && is.priority <= first.priority && is.matches(p) {
			first = is
		}
	}
	return !first.bypass
}

// A protection holds the relevant parts of a policy of IPsec (struct xfrm_userpolicy_info).
type protection struct {
	client, target           netip.Prefix
	clientPort, targetPort   uint16
	clientPorts, targetPorts uint16 // masks
	protocol                 byte   // 0: all
	device                   int    // by which the packet leaves; 0: all
	mark, marks              uint32 // and mask
	priority                 uint32
	bypass                   bool // packets that match leave as they are
}

func (is *protection) matches(p *Packet) bool {
	protocol := byte(unix.IPPROTO_TCP)
	if p.UDP {
		protocol = unix.IPPROTO_UDP
	}
	return is.client.Contains(p.Client.Addr()) && is.target.Contains(p.Target.Addr()) &&
		(p.Client.Port()^is.clientPort)&is.clientPorts == 0 && (p.Target.Port()^is.targetPort)&is.targetPorts == 0 &&
		(is.protocol == 0 || is.protocol == protocol) && (is.device == 0 || is.device == p.Out) && p.Mark&is.marks == is.mark
}

// readProtection reads a policy. ok is false if the policy is not about packets that leave, or belongs to a device of IPsec, by which these
// are routed.
func readProtection(b []byte) (p protection, ok bool) {
	size := 168
	if runtime.GOARCH == "386" { // where numbers of 64 bits are aligned to 32
		size = 164
	}
	if len(b) < size || b[160] != directionOut {
		return p, false
	}
	length := 4
	if binary.NativeEndian.Uint16(b[40:]) == unix.AF_INET6 {
		length = 16
	}
	target, _ := netip.AddrFromSlice(b[:length])
	client, _ := netip.AddrFromSlice(b[16 : 16+length])
	p.target, p.client = netip.PrefixFrom(target, int(b[42])), netip.PrefixFrom(client, int(b[43]))
	p.targetPort, p.targetPorts = binary.BigEndian.Uint16(b[32:]), binary.BigEndian.Uint16(b[34:])
	p.clientPort, p.clientPorts = binary.BigEndian.Uint16(b[36:]), binary.BigEndian.Uint16(b[38:])
	p.protocol, p.device = b[44], index(b[48:52])
	p.priority = binary.NativeEndian.Uint32(b[152:])
	p.bypass = b[161] == actionAllow
	attrs, err := netlink.NewAttributeDecoder(b[size:])
	if err != nil {
		return p, false
	}
	for attrs.Next() {
		switch value := attrs.Bytes(); {
		case attrs.Type() == attrTemplates && len(value) > 0:
			p.bypass = false
		case attrs.Type() == attrXfrmMark && len(value) == 8:
			p.mark, p.marks = binary.NativeEndian.Uint32(value), binary.NativeEndian.Uint32(value[4:])
		case attrs.Type() == attrInterface && index(value) != 0:
			return p, false
		}
	}
	return p, attrs.Err() == nil
}
