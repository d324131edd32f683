// SPDX-License-Identifier: Apache-2.0

//go:build darwin || freebsd

package quic

import "golang.org/x/net/ipv4"

func newBatchConn(c OOBCapablePacketConn) (batchConn, error) { return ipv4.NewPacketConn(c), nil }

func withMessageWriter(c OOBCapablePacketConn) OOBCapablePacketConn { return c }
