// SPDX-License-Identifier: Apache-2.0

// Package burst tunes a connection for links that send frames in aggregates
// (802.11n and later). It holds the decisions; quic-go calls them from a few
// hook lines.
package burst

import "time"

// Unlimited lifts the limit of AckPackets or BurstPackets.
const Unlimited = -1

// An RTTReference says which RTT the ACK delay is a fraction of.
type RTTReference uint8

const (
	// SmoothedRTT (RFC 9002, section 5.3) includes the queue that the flow itself builds.
	SmoothedRTT RTTReference = iota
	// MinRTT is the papers' reference (BQUIC, WCNC 2019, section IV).
	MinRTT
	// QueueRTT is the smoothed RTT minus the minimum RTT: the time that packets wait
	// in queues. An ACK that waits for less leaves no link idle. After losses, it is
	// also bounded by the difference between the RTT at the loss and now. While it is
	// below 4 ms times AckRTTDivisor, ACKs follow the stock policy.
	QueueRTT
)

// A Congestion is a congestion control.
type Congestion uint8

const (
	// Reno is quic-go's NewReno (RFC 9002, section 7) with HyStart and a decrease to 0.7.
	Reno Congestion = iota
	// Rate is Reno with a model of the path. SlowStartDivisor and the like have no effect on it.
	Rate
	// Cubic is quic-go's CUBIC, which quic-go contains but does not use. It plays the
	// competing sender in measurements. BurstPackets, SlowStartDivisor and the like have
	// no effect on it.
	Cubic
)

// Config tunes one connection. The zero value of every field is quic-go's
// stock behaviour, so the zero Config changes nothing at all.
type Config struct {
	// AckPackets is the number of ack-eliciting packets per ACK. 0: every 2nd
	// packet, as stock. Unlimited: only the delay limits it. The fields up to
	// AskPeer have no effect while AckPackets is 0.
	AckPackets int
	// AckDelay is the longest time that an ACK is held back. 0: 25 ms.
	AckDelay time.Duration
	// AckRTTDivisor limits the ACK delay to the reference RTT divided by it. 0: no such limit.
	AckRTTDivisor int
	// AckRTT is the reference for AckRTTDivisor.
	AckRTT RTTReference
	// AckAfter is the number of ack-eliciting packets that the stock policy acknowledges first.
	AckAfter int
	// AckReordering is the reordering threshold in packets: a gap triggers an immediate
	// ACK when this many later packets have arrived. 0 and 1: at once.
	AckReordering int
	// AskPeer asks a peer that advertises min_ack_delay for the same ACK
	// policy (draft-ietf-quic-ack-frequency), and advertises it ourselves.
	AskPeer bool

	// Congestion is the congestion control.
	Congestion Congestion

	// BurstPackets is the number of packets that may leave back to back.
	// 0: stock pacing. Unlimited: no pacing. Never beyond the congestion window.
	BurstPackets int

	// SlowStartDivisor: an RTT rise of minRTT divided by it ends slow start. 0: 8.
	SlowStartDivisor int
	// SlowStartMin and SlowStartMax limit that rise. 0: 4 ms and 16 ms.
	SlowStartMin, SlowStartMax time.Duration

	// LossEighths is the time threshold of loss detection beyond one RTT, in
	// eighths of an RTT (RFC 9002, section 6.1.2). 0: 1.
	LossEighths int
	// LossPackets is the packet threshold of loss detection (RFC 9002, section 6.1.1). 0: 3.
	LossPackets int

	// WindowUpdates lets MAX_DATA and MAX_STREAM_DATA ride on every ACK (ModQUIC),
	// however little was read.
	WindowUpdates bool

	// FastPMTU probes the largest packet size first instead of searching for it.
	FastPMTU bool

	// BlackHoles makes packets small again when the path has stopped carrying
	// large ones (RFC 8899, section 4.3), starts connections with the size that every
	// path carries, and searches again later for a larger size.
	BlackHoles bool

	// NoGSO never uses generic segmentation offload.
	NoGSO bool

	// Stats has no effect of its own: with any field set, Conn.BurstStats returns statistics.
	Stats bool
}
