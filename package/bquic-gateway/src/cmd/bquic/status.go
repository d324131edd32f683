// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"bquic/internal/config"
	"bquic/internal/status"
	"bquic/internal/view"
)

var statusCommand = command{"status", "", "shows the status of running daemons", runStatus}

const (
	watchInterval = 2 * time.Second
	leastInterval = 100 * time.Millisecond
)

func runStatus(ctx context.Context, args []string) error {
	f := newFlags("status")
	file := configFlag(f)
	socket := f.String("socket", "", "queries only the daemon at this socket `PATH`")
	asJSON := f.Bool("json", false, "prints one JSON object with all that the gateway and the relay report; null for one that does not run")
	var watch watchFlag
	f.Var(&watch, "watch", "repeats this every INTERVAL (such as 5 or 500ms; default 2s) until interrupted")
	rest, err := parseFlags(f, args, 0, 1)
	if err != nil {
		return err
	}
	if len(rest) == 1 {
		if watch == (watchFlag{}) {
			return usagef("unexpected argument %q: an interval requires --watch", rest[0])
		}
		_ = watch.Set(rest[0])
	}
	if watch.err != nil {
		return usagef("--watch: %w", watch.err)
	}
	asked := []config.Daemon{{Socket: *socket}}
	if *socket == "" {
		gateway, relay, err := configuredDaemons(f, *file)
		if err != nil {
			return err
		}
		asked = []config.Daemon{gateway, relay}
	}
	show := func() (string, error) {
		d, err := askDaemons(asked...)
		if err != nil {
			return "", err
		}
		if *asJSON {
			return d.document()
		}
		return d.tables(time.Now()), nil
	}
	if watch.interval == 0 {
		text, err := show()
		fmt.Fprint(&stdout, text)
		return err
	}
	s := &screen{w: &stdout}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) && !*asJSON {
		s.size = func() (int, int, error) { return term.GetSize(fd) }
	}
	return s.watch(ctx, watch.interval, show)
}

// configuredDaemons returns what a file says of the daemons. A missing file is an error only if --config was given.
func configuredDaemons(f *flag.FlagSet, file string) (gateway, relay config.Daemon, err error) {
	gateway, relay, err = config.Daemons(file)
	if errors.Is(err, fs.ErrNotExist) && !given(f, "config") {
		err = nil
	}
	if err != nil {
		err = usageError{err}
	}
	return gateway, relay, err
}

// A watchFlag is the interval of --watch, which may be omitted; 0: no --watch.
type watchFlag struct {
	interval time.Duration
	err      error // not returned by Set: package flag would say that it is no boolean
}

func (w *watchFlag) IsBoolFlag() bool { return true }

func (w *watchFlag) String() string { return "" }

func (w *watchFlag) Set(text string) error {
	if text == "true" {
		w.interval = watchInterval
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		d, err = time.ParseDuration(text + "s")
	}
	if err != nil || d < leastInterval {
		w.err = fmt.Errorf("%q is not an interval of at least %v", text, leastInterval)
	}
	w.interval = d
	return nil
}

// daemons holds the answers of running daemons, by role, and the errors of the others.
type daemons struct {
	gateway, relay json.RawMessage
	silent         []error
}

// askDaemons asks each daemon. It returns an error if none answers.
func askDaemons(asked ...config.Daemon) (d daemons, err error) {
	for _, one := range asked {
		path := one.Socket
		data, err := status.Read(path)
		if err != nil && one.Off {
			err = fmt.Errorf("%w: it is off (option enabled)", err)
		}
		if err != nil {
			d.silent = append(d.silent, err)
			continue
		}
		var who struct{ Role string }
		switch _ = json.Unmarshal(data, &who); who.Role {
		case "gateway":
			d.gateway = data
		case "relay":
			d.relay = data
		default:
			d.silent = append(d.silent, fmt.Errorf("%s: neither a gateway nor a relay answers", path))
		}
	}
	if d.gateway == nil && d.relay == nil {
		return d, errors.Join(d.silent...)
	}
	return d, nil
}

func (d *daemons) document() (string, error) {
	data, err := json.Marshal(map[string]json.RawMessage{"gateway": d.gateway, "relay": d.relay})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return "", err
	}
	return b.String() + "\n", nil
}

func (d *daemons) tables(now time.Time) string {
	var parts []string
	if d.gateway != nil {
		parts = append(parts, view.Gateway(d.gateway, now))
	}
	if d.relay != nil {
		parts = append(parts, view.Relay(d.relay, now))
	}
	for _, err := range d.silent {
		parts = append(parts, err.Error()+"\n")
	}
	return strings.Join(parts, "\n")
}

// A screen shows texts: in place on a terminal, otherwise one after the other. size
// returns the terminal's size in characters.
type screen struct {
	w    io.Writer
	size func() (width, height int, err error) // nil: not a terminal
	used bool
}

// watch repeatedly shows the text that show returns, until ctx ends. It shows errors,
// too, because a daemon may come back.
func (s *screen) watch(ctx context.Context, interval time.Duration, show func() (string, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		text, err := show()
		if err != nil {
			text = err.Error() + "\n"
		}
		if err := s.show(text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

func (s *screen) show(text string) error {
	if s.size == nil {
		_, err := io.WriteString(s.w, text+"\n")
		return err
	}
	width, height, err := s.size()
	if err != nil || width < 1 || height < 2 {
		width, height = 80, 24
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > height-1 { // a newline after the last line would scroll
		lines = append(lines[:height-2], "...")
	}
	var b bytes.Buffer
	if !s.used {
		b.WriteString("\x1b[2J") // clear the screen only once, to avoid flicker
		s.used = true
	}
	b.WriteString("\x1b[H")
	for _, line := range lines {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		b.WriteString(line + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	_, err = s.w.Write(b.Bytes())
	return err
}
