// SPDX-License-Identifier: Apache-2.0

//go:build abuse

// Stress loads and attacks real bquic daemons, in network namespaces only, and
// watches what they use.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `usage: stress abuse BQUIC [-o JSON] [ATTACK...]   (in a network namespace of its own)
       stress list`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(args) == 1 && args[0] == "list":
		for _, a := range attacks {
			fmt.Printf("%-18s %s\n", a.name, a.doc)
		}
		return nil
	case len(args) == 3 && args[0] == "attack":
		lasting, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return runAttack(args[1], lasting)
	case len(args) >= 2 && args[0] == "abuse":
		bquic, rest, output := args[1], args[2:], ""
		if len(rest) >= 2 && rest[0] == "-o" {
			output, rest = rest[1], rest[2:]
		}
		return runAbuse(ctx, bquic, output, rest)
	}
	return fmt.Errorf("%s", strings.TrimPrefix(usage, "usage: "))
}
