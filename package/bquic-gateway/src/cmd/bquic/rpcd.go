// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"

	"bquic/internal/config"
	"bquic/internal/openwrt"
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
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	p := &rpcd.Plugin{Config: *file, Bquic: self, Check: checkForInit}
	if err := p.Run(ctx, words, os.Stdin, os.Stdout); err != nil {
		return usageError{err}
	}
	return nil
}

// checkForInit returns the mistakes for which the init script would refuse to start a
// daemon, each on a line. It makes no files.
func checkForInit(file string) error {
	var enabled *config.Config
	for _, role := range []string{openwrt.Gateway, openwrt.Relay} {
		plan, cfg, err := openwrt.Load(file, role)
		if err != nil || !plan.Enabled {
			continue // mistakes in the text have already been reported
		}
		if err := plan.Check(openwrt.User()); err != nil {
			return err
		}
		if err := plan.CheckListen(openwrt.DefaultFiles); err != nil {
			return err
		}
		if err := plan.Print(io.Discard, openwrt.DefaultFiles); err != nil {
			return err
		}
		enabled = cfg
	}
	if enabled == nil {
		return nil
	}
	return checkDaemons(enabled)
}
