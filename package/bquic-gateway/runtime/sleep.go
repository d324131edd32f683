// SPDX-License-Identifier: Apache-2.0

// Sleep has the runtime sleep for each of its arguments, in microseconds. The
// linker must be told to let it (-checklinkname=0). scripts/test-cross looks at
// what the kernel is asked for.
package main

import (
	"fmt"
	"os"
	"strconv"
	_ "unsafe"
)

//go:linkname usleep runtime.usleep
func usleep(usec uint32)

func main() {
	for _, arg := range os.Args[1:] {
		usec, err := strconv.ParseUint(arg, 10, 32)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sleep:", err)
			os.Exit(2)
		}
		usleep(uint32(usec))
	}
}
