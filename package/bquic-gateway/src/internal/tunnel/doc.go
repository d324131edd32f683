// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries TCP connections in HTTP/3 CONNECT streams (RFC 9114,
// section 4.4) and UDP in CONNECT-UDP (RFC 9298). It contains the copying,
// which relay and gateway share, and the gateway's handler.
package tunnel
