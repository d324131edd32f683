// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// newLogger writes warnings and errors to the standard error output, and the rest to
// the standard output: that is how procd tells daemon.err from daemon.info. It
// writes without the time, which the system's log adds, unless a person is
// watching. The level can be changed.
func newLogger(level slog.Level) (*slog.Logger, *slog.LevelVar) {
	now := new(slog.LevelVar)
	now.Set(level)
	opts := &slog.HandlerOptions{Level: now}
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	log := slog.New(byLevel{slog.NewTextHandler(os.Stdout, opts), slog.NewTextHandler(os.Stderr, opts)})
	slog.SetDefault(log) // quic-go's only words, about a small UDP buffer, go there too
	return log, now
}

// byLevel is a slog.Handler that hands warnings and errors to one handler, and the
// rest to the other.
type byLevel struct{ information, problems slog.Handler }

func (h byLevel) of(level slog.Level) slog.Handler {
	if level >= slog.LevelWarn {
		return h.problems
	}
	return h.information
}

// Enabled is part of slog.Handler.
func (h byLevel) Enabled(ctx context.Context, level slog.Level) bool {
	return h.of(level).Enabled(ctx, level)
}

// Handle is part of slog.Handler.
func (h byLevel) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

// WithAttrs is part of slog.Handler.
func (h byLevel) WithAttrs(attrs []slog.Attr) slog.Handler {
	return byLevel{h.information.WithAttrs(attrs), h.problems.WithAttrs(attrs)}
}

// WithGroup is part of slog.Handler.
func (h byLevel) WithGroup(name string) slog.Handler {
	return byLevel{h.information.WithGroup(name), h.problems.WithGroup(name)}
}
