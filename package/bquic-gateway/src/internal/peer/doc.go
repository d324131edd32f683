// SPDX-License-Identifier: Apache-2.0

// Package peer says who the relays of a gateway are, by their tokens, and how
// many tunnels each of them may have.
package peer
