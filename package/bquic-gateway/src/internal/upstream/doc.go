// SPDX-License-Identifier: Apache-2.0

// Package upstream decides on a relay's sessions with its gateways: which
// sessions there should be, and whether each of them can take new connections.
// Time and events are arguments; it has no clock, no lock and no socket.
package upstream
