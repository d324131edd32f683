// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/protocol"

// updateThreshold is how much of a receive window of size is left when it is
// updated: what protocol.WindowUpdateThreshold leaves of it, in integers, as
// most routers have no FPU and each read asks twice.
func updateThreshold(size protocol.ByteCount) protocol.ByteCount { return size - (size+3)/4 }
