// SPDX-License-Identifier: Apache-2.0

// Package gateway serves sites by HTTP/3, HTTP/2 and HTTP/1.1 on one port, and
// TCP connections for relays.
package gateway
