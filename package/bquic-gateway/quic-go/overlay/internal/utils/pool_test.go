// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"sync"
	"testing"
)

// No item is in use twice at a time. scripts/test-quic-go also runs this with the Pool of
// 32-bit processors.
func TestPool(t *testing.T) {
	type item struct{ used bool }
	pool := Pool{New: func() any { return new(item) }}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for round := range 50 {
				var taken []*item
				for range round * 2 {
					x := pool.Get().(*item)
					mu.Lock()
					used := x.used
					x.used = true
					mu.Unlock()
					if used {
						t.Error("taken twice")
						return
					}
					taken = append(taken, x)
				}
				for _, x := range taken {
					mu.Lock()
					x.used = false
					mu.Unlock()
					pool.Put(x)
				}
			}
		})
	}
	wg.Wait()
}
