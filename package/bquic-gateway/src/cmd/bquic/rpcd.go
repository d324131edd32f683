// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"bquic/internal/rpcd"
)

func init() {
	commands = append(commands, command{"rpcd", "list|call [M]", "answers OpenWrt's rpcd", runRpcd})
}

func runRpcd(ctx context.Context, args []string) error {
	f := newFlags("rpcd")
	file := configFlag(f)
	words, err := parseFlags(f, args, 1, 2)
	if err != nil {
		return err
	}
	p := &rpcd.Plugin{Config: *file, Bquic: rpcd.Self()}
	if err := p.Run(ctx, words, os.Stdin, os.Stdout); err != nil {
		return usageError{err}
	}
	return nil
}
