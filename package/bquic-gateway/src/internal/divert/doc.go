// SPDX-License-Identifier: Apache-2.0

// Package divert takes new connections of a node's clients off its forwarding path.
//
// A packet that begins one is first forwarded like any other. Only when routing and
// all rules of the node have let it pass, and it is about to leave by an uplink, does
// a last chain queue it to this process (NFQUEUE). So nothing is taken that the node
// would not have forwarded: what a firewall, a captive portal, a guest network or a
// blackhole route keeps from a client stays kept from it. What this process does not
// want goes on its way as if it had never been queued, and so does everything when the
// process is dead or too slow: the queue is one that lets pass what nobody reads
// (NFQA_CFG_F_FAIL_OPEN, NFT_QUEUE_FLAG_BYPASS).
//
// A TCP connection that is wanted is delivered to the relay's listener: its SYN is
// dropped from the queue and sent again by a raw socket, whose mark has it translated
// (redirect) or routed (tproxy) to the node itself. Of a UDP flow that is wanted the
// caller opens a transparent socket, which gets the further datagrams; those that were
// queued until then are handed over.
//
// The table belongs to a netlink socket of this process (NFT_TABLE_F_OWNER, Linux 5.12):
// the kernel removes it when the process ends, however it ends, and nobody else's
// "flush ruleset" does.
package divert
