// SPDX-License-Identifier: Apache-2.0

// Package upstream decides on a relay's sessions with its gateways: which of
// them there should be, and what each of them is good for. Time and events are
// arguments; it has no clock, no lock and no socket.
package upstream
