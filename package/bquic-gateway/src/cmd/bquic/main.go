// SPDX-License-Identifier: Apache-2.0

// The bquic command: gateway, relay, and what measures and watches them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// version is set when a package is linked.
var version = "dev"

// Exit codes.
const (
	exitOK    = 0
	exitFail  = 1 // at run time: network, port taken
	exitUsage = 2 // command line or configuration
)

// A command is one subcommand.
type command struct {
	name, args, doc string
	// run parses its own arguments. A usageError ends the process with exitUsage.
	run func(ctx context.Context, args []string) error
}

// commands is set by init: help, which all of them call, reads it.
var commands []command

func init() {
	commands = []command{gatewayCommand, relayCommand, fetchCommand, benchCommand, traceCommand, statusCommand, checkCommand, tokenCommand, versionCommand}
}

var versionCommand = command{"version", "", "prints the version", func(_ context.Context, args []string) error {
	if _, err := parseFlags(newFlags("version"), args, 0, 0); err != nil {
		return err
	}
	fmt.Println("bquic", version)
	return nil
}}

// A usageError is a mistake on the command line or in the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	// The first signal ends a command in order, a second one at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:])
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		usage(os.Stdout)
		return exitOK
	case "-version", "--version":
		args = []string{"version"}
	}
	for _, c := range commands {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, args[1:])
		if err == nil || errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		for line := range strings.Lines(err.Error()) { // a file can have many mistakes
			fmt.Fprintf(os.Stderr, "bquic %s: %s\n", c.name, strings.TrimSuffix(line, "\n"))
		}
		if errors.As(err, new(usageError)) {
			return exitUsage
		}
		return exitFail
	}
	fmt.Fprintf(os.Stderr, "bquic: no command %q; see bquic --help\n", args[0])
	return exitUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, "bquic: fast QUIC over WiFi mesh networks\n\nusage:\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-24s %s\n", strings.TrimSpace("bquic "+c.name+" "+c.args), c.doc)
	}
	fmt.Fprint(w, "\nbquic COMMAND --help shows the options of a command.\n")
}

func newFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error, in one line
	return f
}

// parseFlags accepts options before, between and after lo to hi other
// arguments, which it returns.
func parseFlags(f *flag.FlagSet, args []string, lo, hi int) (rest []string, err error) {
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			help(f)
			return nil, err
		} else if err != nil {
			return nil, usageError{err}
		}
		if f.NArg() == 0 {
			break
		}
		rest = append(rest, f.Arg(0))
		args = f.Args()[1:]
	}
	if len(rest) < lo {
		return nil, usagef("an argument is missing; see bquic %s --help", f.Name())
	}
	if len(rest) > hi {
		return nil, usagef("unexpected argument %q", rest[hi])
	}
	return rest, nil
}

func help(f *flag.FlagSet) {
	for _, c := range commands {
		if c.name == f.Name() {
			fmt.Printf("usage: bquic %s\n%s\n", strings.TrimSpace(c.name+" [options] "+c.args), c.doc)
		}
	}
	first := true
	f.VisitAll(func(o *flag.Flag) {
		if first {
			fmt.Print("\noptions:\n")
			first = false
		}
		value, doc := flag.UnquoteUsage(o)
		name := strings.TrimSpace("--" + o.Name + " " + value)
		if len(o.Name) == 1 {
			name = name[1:]
		}
		if o.DefValue != "" && o.DefValue != "false" {
			doc += " (default " + o.DefValue + ")"
		}
		fmt.Printf("  %-20s %s\n", name, doc)
	})
}

// newLogger writes to the standard error output: without the time, which the
// system's log adds, unless a person is watching. The level can be changed.
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
	log := slog.New(slog.NewTextHandler(os.Stderr, opts))
	slog.SetDefault(log) // quic-go's only words, about a small UDP buffer, go there too
	return log, now
}
