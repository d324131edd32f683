// SPDX-License-Identifier: Apache-2.0

package quic

import "github.com/quic-go/quic-go/internal/protocol"

// updateThreshold returns how much of a receive window is left when it is updated,
// given its size. It applies protocol.WindowUpdateThreshold in integers: most
// routers have no FPU, and each read calls this twice.
func updateThreshold(size protocol.ByteCount) protocol.ByteCount { return size - (size+3)/4 }
