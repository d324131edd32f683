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

// hangups returns a channel of SIGHUPs. From now on, SIGHUP does not end the process.
func hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// reloadOn calls reload on each SIGHUP until ctx ends. It logs the outcome, with
// each mistake on its own line.
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
			log.Error("configuration not reloaded: the old one stays in use", "mistake", strings.TrimSuffix(line, "\n"))
		}
	}
}
