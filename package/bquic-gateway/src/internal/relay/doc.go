// SPDX-License-Identifier: Apache-2.0

// Package relay takes the TCP connections of a mesh node's clients and carries
// them to a gateway, or connects directly while the gateway is away.
package relay
