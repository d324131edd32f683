// SPDX-License-Identifier: Apache-2.0

// Package trace records connections as qlog (draft-ietf-quic-qlog-main-schema), and
// computes figures that matter for aggregation from such files: packets per ACK, bursts, the
// congestion window and the reason why slow start ended.
package trace
