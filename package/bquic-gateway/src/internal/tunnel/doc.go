// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries TCP connections in HTTP/3 CONNECT streams (RFC 9114,
// section 4.4): the copying, which both ends share, and the gateway's end.
package tunnel
