// SPDX-License-Identifier: Apache-2.0

// Package gateway serves sites over HTTP/3, HTTP/2 and HTTP/1.1 on one port,
// and tunnels for relays over HTTP/3.
package gateway
