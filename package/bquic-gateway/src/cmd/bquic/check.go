// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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
		return mistakesIn(*file, err)
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
// the file, each on a line.
func checkDaemons(cfg *config.Config) error {
	var errs []error
	if cfg.Gateway.Enabled {
		errs = append(errs, gateway.Check(cfg.Gateway))
	}
	if cfg.Relay.Enabled {
		if err := cfg.Relay.Relay.Check(); err != nil {
			errs = append(errs, fmt.Errorf("relay.%w", err))
		}
	}
	return errors.Join(errs...)
}

// mistakesIn returns an error that names the file on each line.
func mistakesIn(file string, err error) error {
	var errs []error
	for line := range strings.Lines(err.Error()) {
		errs = append(errs, fmt.Errorf("%s: %s", file, strings.TrimSuffix(line, "\n")))
	}
	return usageError{errors.Join(errs...)}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
