// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	stdlog "log"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// newLogger returns a logger that writes warnings and errors to standard error, and
// the rest to standard output; procd logs them as daemon.err and daemon.info. It
// omits the time, which the system log adds, unless standard error is a terminal.
// The level can be changed later.
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
	slog.SetDefault(log)
	stdlog.SetOutput(libraries{log})
	return log, now
}

// libraries receives what they write to the standard log. From quic-go, that is about a small UDP buffer. net/http
// complains of each response that breaks a rule, and a client may know how to get them from an origin.
type libraries struct{ log *slog.Logger }

func (l libraries) Write(line []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(line, []byte("quic-go")) {
		level = slog.LevelInfo
	}
	l.log.Log(context.Background(), level, string(bytes.TrimSuffix(line, []byte("\n"))))
	return len(line), nil
}

// byLevel is a slog.Handler that passes warnings and errors to problems, and the
// rest to information.
type byLevel struct{ information, problems slog.Handler }

func (h byLevel) of(level slog.Level) slog.Handler {
	if level >= slog.LevelWarn {
		return h.problems
	}
	return h.information
}

// Enabled implements slog.Handler.
func (h byLevel) Enabled(ctx context.Context, level slog.Level) bool {
	return h.of(level).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h byLevel) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h byLevel) WithAttrs(attrs []slog.Attr) slog.Handler {
	return byLevel{h.information.WithAttrs(attrs), h.problems.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h byLevel) WithGroup(name string) slog.Handler {
	return byLevel{h.information.WithGroup(name), h.problems.WithGroup(name)}
}
