// SPDX-License-Identifier: Apache-2.0

// Command burstjson prints the Burst of a built-in profile as JSON, for
// quic-go's own tests (build tag burstdefault).
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"bquic/internal/profile"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: burstjson PROFILE")
		os.Exit(2)
	}
	p, err := profile.NewSet().Get(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "burstjson:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(p.Burst); err != nil {
		fmt.Fprintln(os.Stderr, "burstjson:", err)
		os.Exit(1)
	}
}
