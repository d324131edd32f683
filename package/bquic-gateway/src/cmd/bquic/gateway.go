// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"

	"bquic/internal/config"
	"bquic/internal/gateway"
)

var gatewayCommand = command{"gateway", "", "serves sites and relays", runGateway}

func runGateway(ctx context.Context, args []string) error {
	f := newFlags("gateway")
	file := configFlag(f)
	if _, err := parseFlags(f, args, 0, 0); err != nil {
		return err
	}
	cfg, err := readConfig(*file)
	if err != nil {
		return err
	}
	if !cfg.Gateway.Enabled {
		return usagef("%s: the gateway is not enabled (option enabled '1' in config gateway)", *file)
	}
	srv, err := gateway.New(cfg.Gateway, version, newLogger(cfg.Gateway.LogLevel))
	if err != nil {
		return usagef("%s: %w", *file, err)
	}
	return srv.Run(ctx)
}

func configFlag(f *flag.FlagSet) *string {
	return f.String("config", config.DefaultFile, "configuration `FILE`")
}

// readConfig reads a file. All that is wrong with it is a usage error.
func readConfig(file string) (*config.Config, error) {
	cfg, err := config.ReadFile(file)
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

// readConfigIfAny is readConfig for commands that need no configuration: a
// default file that does not exist is an empty one.
func readConfigIfAny(f *flag.FlagSet, file string) (*config.Config, error) {
	asked := false
	f.Visit(func(o *flag.Flag) { asked = asked || o.Name == "config" })
	cfg, err := readConfig(file)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return config.Parse(file, nil)
	}
	return cfg, err
}
