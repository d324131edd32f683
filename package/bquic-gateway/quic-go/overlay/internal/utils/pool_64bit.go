// SPDX-License-Identifier: Apache-2.0

//go:build !(386 || arm || mips || mipsle || chacha32)

package utils

import "sync"

// A Pool is a sync.Pool, but on processors of 32 bits.
type Pool = sync.Pool
