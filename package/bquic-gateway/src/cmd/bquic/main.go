// SPDX-License-Identifier: Apache-2.0

// The bquic command runs the gateway and the relay, and measures and monitors them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitOK    = 0
	exitFail  = 1 // at run time, such as a network error or a port in use
	exitUsage = 2 // command line or configuration
)

// A command is one subcommand.
type command struct {
	name, args, doc string
	// run parses args itself. After a usageError, the process exits with exitUsage.
	run func(ctx context.Context, args []string) error
}

// commands is set in init, because all commands call help, which reads it.
var commands []command

func init() {
	commands = []command{gatewayCommand, relayCommand, fetchCommand, benchCommand, traceCommand, statusCommand, reportCommand, checkCommand, tokenCommand, versionCommand}
}

// A usageError reports a mistake on the command line or in the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	// The first signal stops a command gracefully. A second SIGTERM changes nothing,
	// because a service manager kills the process itself after its own timeout. A second
	// Ctrl-C ends the process at once.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	code := run(ctx, os.Args[1:])
	if code == exitOK && stdout.err != nil {
		fmt.Fprintln(os.Stderr, "bquic:", stdout.err)
		code = exitFail
	}
	os.Exit(code)
}

// stdout is where commands print. It keeps the first error, such as that of a full disk, because nobody asks fmt for it.
var stdout output

type output struct{ err error }

func (o *output) Write(b []byte) (int, error) {
	n, err := os.Stdout.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		usage(os.Stderr)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		if len(args) == 1 {
			usage(&stdout)
			return exitOK
		}
		if len(args) > 2 {
			fmt.Fprintf(os.Stderr, "bquic help: unexpected argument %q\n", args[2])
			return exitUsage
		}
		args = []string{args[1], "--help"}
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
		for line := range strings.Lines(err.Error()) { // an error can list many mistakes
			fmt.Fprintf(os.Stderr, "bquic %s: %s\n", c.name, strings.TrimSuffix(line, "\n"))
		}
		if errors.As(err, new(usageError)) {
			return exitUsage
		}
		return exitFail
	}
	hint := "see bquic --help"
	if name := nearest(args[0]); name != "" {
		hint = fmt.Sprintf("did you mean %s? For all commands, see bquic --help", name)
	}
	fmt.Fprintf(os.Stderr, "bquic: unknown command %q; %s\n", args[0], hint)
	return exitUsage
}

// nearest returns the command whose name differs least from word, by at most a third of
// its letters, or "" if there is none.
func nearest(word string) string {
	best, name := 0, ""
	for _, c := range commands {
		if d := distance(word, c.name); d*3 <= len(c.name) && (name == "" || d < best) {
			best, name = d, c.name
		}
	}
	return name
}

// distance returns the number of letters to insert, delete, replace or swap with their
// neighbour to turn a into b (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 { // not a typo
		return len(a)
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}

func usage(w io.Writer) {
	fmt.Fprint(w, "bquic: fast QUIC over WiFi mesh networks\n\nusage:\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-24s %s\n", strings.TrimSpace("bquic "+c.name+" "+c.args), c.doc)
	}
	fmt.Fprint(w, "\nbquic help COMMAND shows the options of a command.\n")
}

func newFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // run prints the error on one line
	return f
}

// parseFlags parses options before, between and after lo to hi other arguments, and
// returns these arguments.
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
	options := ""
	f.VisitAll(func(*flag.Flag) { options = "[options] " })
	for _, c := range commands {
		if c.name == f.Name() {
			fmt.Fprintf(&stdout, "usage: bquic %s\n%s\n", strings.TrimSpace(c.name+" "+options+c.args), c.doc)
		}
	}
	if options != "" {
		fmt.Fprint(&stdout, "\noptions:\n")
	}
	f.VisitAll(func(o *flag.Flag) {
		value, doc := flag.UnquoteUsage(o)
		name := strings.TrimSpace("--" + o.Name + " " + value)
		if len(o.Name) == 1 {
			name = name[1:]
		}
		if o.DefValue != "" && o.DefValue != "false" {
			doc += " (default " + o.DefValue + ")"
		}
		fmt.Fprintf(&stdout, "  %-20s %s\n", name, doc)
	})
}
