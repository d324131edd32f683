// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"bquic/internal/config"
	"bquic/internal/gateway"
	"bquic/internal/openwrt"
	"bquic/internal/site"
)

var checkCommand = command{"check", "[FILE]", "lists every mistake in a configuration", runCheck}

func runCheck(_ context.Context, args []string) error {
	f := newFlags("check")
	file := configFlag(f)
	rest, err := parseFlags(f, args, 0, 1)
	if err != nil {
		return err
	}
	if len(rest) == 1 {
		*file = rest[0]
	}
	cfg, err := readConfig(*file)
	if err != nil {
		return err
	}
	if openwrt.Here() {
		err = checkForInit(*file)
	} else {
		err = checkDaemons(cfg)
	}
	if err != nil {
		return usagef("%s: %w", *file, err)
	}
	if cfg.Gateway.Enabled {
		for _, m := range site.Missing(cfg.Gateway.Sites) {
			fmt.Fprintf(os.Stderr, "bquic check: warning: %v\n", m)
		}
	}
	fmt.Fprintf(&stdout, "%s: good: gateway %s, relay %s, sites: %d\n", *file, onOff(cfg.Gateway.Enabled), onOff(cfg.Relay.Enabled), len(cfg.Gateway.Sites))
	return nil
}

// checkDaemons returns the mistakes that enabled daemons would find beyond the text of
// the file.
func checkDaemons(cfg *config.Config) error {
	if cfg.Gateway.Enabled {
		if err := gateway.Check(cfg.Gateway); err != nil {
			return err
		}
	}
	if cfg.Relay.Enabled {
		if err := cfg.Relay.Relay.Check(); err != nil {
			return fmt.Errorf("relay.%w", err)
		}
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
