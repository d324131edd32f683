// SPDX-License-Identifier: Apache-2.0

//go:build !(386 || arm || mips || mipsle || chacha32)

package utils

import "sync"

// A Pool is a sync.Pool, except on 32-bit processors.
type Pool = sync.Pool
