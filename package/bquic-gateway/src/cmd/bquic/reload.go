// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// hangups returns a channel of SIGHUPs, which from now on end no command.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// reloadOn calls reload at each SIGHUP until ctx ends, and logs how it went: each
// mistake in a line of its own.
func reloadOn(ctx context.Context, hangup <-chan os.Signal, log *slog.Logger, reload func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		err := reload()
		if err == nil {
			log.Info("configuration reloaded")
			continue
		}
		for line := range strings.Lines(err.Error()) {
			log.Error("configuration not reloaded, the old one goes on", "mistake", strings.TrimSuffix(line, "\n"))
		}
	}
}
