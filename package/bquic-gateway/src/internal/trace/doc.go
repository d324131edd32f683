// SPDX-License-Identifier: Apache-2.0

// Package trace records connections as qlog (draft-ietf-quic-qlog-main-schema)
// and computes from such files what decides about aggregation: packets per
// ACK, bursts, the congestion window and what ended slow start.
package trace
