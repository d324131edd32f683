// SPDX-License-Identifier: Apache-2.0

// Package relay takes the TCP connections and UDP flows of a mesh node's clients and
// carries them to a gateway. TCP connections that no gateway can carry go direct.
package relay
