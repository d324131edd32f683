// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"bquic/internal/relay"
	"bquic/internal/status"
)

var relayCommand = command{"relay", "", "carries clients' TCP connections to a gateway", runRelay}

// relayStatus begins as the gateway's status does.
type relayStatus struct {
	Role       string  `json:"role"`
	Version    string  `json:"version"`
	Uptime     float64 `json:"uptime_s"`
	PID        int     `json:"pid"`
	Goroutines int     `json:"goroutines"`
	Profile    string  `json:"profile"`
	relay.Status
}

func runRelay(ctx context.Context, args []string) error {
	f := newFlags("relay")
	file := configFlag(f)
	if _, err := parseFlags(f, args, 0, 0); err != nil {
		return err
	}
	cfg, err := readConfig(*file)
	if err != nil {
		return err
	}
	if !cfg.Relay.Enabled {
		return usagef("%s: the relay is not enabled (option enabled '1' in config relay)", *file)
	}
	log, _ := newLogger(cfg.Relay.LogLevel)
	r, err := relay.New(cfg.Relay.Relay, log)
	if err != nil {
		return usagef("%s: relay.%w", *file, err)
	}
	socket, err := status.Listen(cfg.Relay.StatusSocket)
	if err != nil {
		return err
	}
	defer socket.Close()
	group, ctx := errgroup.WithContext(ctx)
	started := time.Now()
	group.Go(func() error {
		return socket.Run(ctx, func() any {
			return relayStatus{"relay", version, time.Since(started).Seconds(), os.Getpid(), runtime.NumGoroutine(), cfg.Relay.Profile.Name, r.Status().(relay.Status)}
		})
	})
	group.Go(func() error { return r.Run(ctx) })
	return group.Wait()
}
