// SPDX-License-Identifier: Apache-2.0

//go:build 386 || arm || mips || mipsle || chacha32

package utils

import "sync"

// kept is how many items a Pool holds.
const kept = 64

// A Pool replaces sync.Pool on 32-bit processors, where each of the 64-bit atomics that
// a sync.Pool with more than one item needs takes a lock. There, few cores share the
// pool. Up to kept items survive garbage collections.
type Pool struct {
	New func() any // must be set

	mu   sync.Mutex
	n    int
	free [kept]any
	rest sync.Pool
}

// Get behaves like the method of sync.Pool.
func (p *Pool) Get() any {
	p.mu.Lock()
	if p.n > 0 {
		p.n--
		x := p.free[p.n]
		p.free[p.n] = nil
		p.mu.Unlock()
		return x
	}
	p.mu.Unlock()
	if x := p.rest.Get(); x != nil {
		return x
	}
	return p.New()
}

// Put behaves like the method of sync.Pool.
func (p *Pool) Put(x any) {
	p.mu.Lock()
	if p.n < kept {
		p.free[p.n] = x
		p.n++
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.rest.Put(x)
}
