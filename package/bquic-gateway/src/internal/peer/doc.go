// SPDX-License-Identifier: Apache-2.0

// Package peer identifies a gateway's relays by their tokens, and decides how
// many tunnels each of them may have.
package peer
