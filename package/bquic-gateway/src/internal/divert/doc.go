// SPDX-License-Identifier: Apache-2.0

// Package divert takes new connections of a node's clients off its forwarding path.
//
// The node first forwards the first packet of a connection like any other. Only when
// routing and all rules of the node have accepted the packet, and it is about to leave
// by an uplink, does a last chain queue it to this process (NFQUEUE). So nothing is
// taken that the node would not have forwarded: whatever a firewall, a captive portal, a
// guest network or a blackhole route keeps from a client stays out of its reach. Packets
// that this process does not take continue as if they had never been queued. So do all
// packets if the process is dead or too slow, because the queue fails open
// (NFQA_CFG_F_FAIL_OPEN, NFT_QUEUE_FLAG_BYPASS).
//
// A TCP connection that is taken is delivered to the relay's listener. This process drops
// its SYN from the queue and sends it again through a raw socket. The socket's mark makes
// the kernel translate (redirect) or route (tproxy) the SYN to the node itself. For a UDP
// flow that is taken, the caller opens a transparent socket, which receives all further
// datagrams once it has AnswerMark. The datagrams queued before that are passed to the caller.
//
// A netlink socket of this process owns the table (NFT_TABLE_F_OWNER, Linux 5.12). The
// kernel removes the table when the process ends, however it ends. Another program's
// "flush ruleset" does not remove it.
package divert
