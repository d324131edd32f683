// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"

	"bquic/internal/config"
	"bquic/internal/gateway"
	"bquic/internal/openwrt"
)

var gatewayCommand = command{"gateway", "", "serves sites and relays", runGateway}

func runGateway(ctx context.Context, args []string) error {
	f := newFlags("gateway")
	file := configFlag(f)
	if _, err := parseFlags(f, args, 0, 0); err != nil {
		return err
	}
	hangup := hangups()
	cfg, err := readGateway(*file)
	if err != nil {
		return err
	}
	openwrt.FollowNameServers()
	log, level := newLogger(cfg.LogLevel)
	srv, err := gateway.New(*cfg, version, log)
	if err != nil {
		return usagef("%s: %w", *file, err)
	}
	go reloadOn(ctx, hangup, log, func() error {
		cfg, err := readGateway(*file)
		if err == nil {
			if err = srv.Apply(*cfg); err != nil {
				err = fmt.Errorf("%s: %w", *file, err)
			} else {
				level.Set(cfg.LogLevel)
			}
		}
		srv.Reloaded(err)
		return err
	})
	return srv.Run(ctx)
}

func readGateway(file string) (*config.Gateway, error) {
	cfg, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	if !cfg.Gateway.Enabled {
		return nil, usagef("%s: the gateway is not enabled (option enabled '1' in config gateway)", file)
	}
	return &cfg.Gateway, nil
}

func configFlag(f *flag.FlagSet) *string {
	return f.String("config", config.DefaultFile, "configuration `FILE`")
}

// readConfig reads a configuration file. All its errors are usage errors.
func readConfig(file string) (*config.Config, error) {
	cfg, err := config.ReadFile(file)
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

// readConfigIfAny is readConfig for commands that need no configuration. A
// missing default file counts as empty.
func readConfigIfAny(f *flag.FlagSet, file string) (*config.Config, error) {
	cfg, err := readConfig(file)
	if errors.Is(err, fs.ErrNotExist) && !given(f, "config") {
		return config.Parse(file, nil)
	}
	return cfg, err
}

// given reports whether the command line has the flag.
func given(f *flag.FlagSet, name string) (is bool) {
	f.Visit(func(o *flag.Flag) { is = is || o.Name == name })
	return is
}
