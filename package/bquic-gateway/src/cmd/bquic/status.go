// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"bquic/internal/status"
)

var statusCommand = command{"status", "", "shows what running daemons do, as JSON", runStatus}

func runStatus(_ context.Context, args []string) error {
	f := newFlags("status")
	file := configFlag(f)
	socket := f.String("socket", "", "asks the daemon behind this `PATH` only")
	if _, err := parseFlags(f, args, 0, 0); err != nil {
		return err
	}
	paths := []string{*socket}
	if *socket == "" {
		cfg, err := readConfigIfAny(f, *file)
		if err != nil {
			return err
		}
		paths = []string{cfg.Gateway.StatusSocket, cfg.Relay.StatusSocket}
	}
	// One object per daemon: the last error counts only when none answers.
	var errs []error
	for _, path := range paths {
		data, err := status.Read(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var out bytes.Buffer
		if err := json.Indent(&out, data, "", "  "); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, bytes.NewBuffer(bytes.TrimSpace(out.Bytes())))
	}
	if len(errs) == len(paths) {
		return errors.Join(errs...)
	}
	return nil
}
