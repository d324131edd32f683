// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"bquic/internal/trace"
)

var traceCommand = command{"trace", "FILE.qlog", "shows how a recorded connection behaved: ACKs, bursts, window, losses", runTrace}

func runTrace(ctx context.Context, args []string) error {
	f := newFlags("trace")
	asJSON := f.Bool("json", false, "prints JSON: an array with one object per connection")
	svg := f.String("svg", "", "draws charts into `FILE`, - for the standard output")
	rest, err := parseFlags(f, args, 1, 1)
	if err != nil {
		return err
	}
	if *asJSON && *svg == "-" {
		return usagef("--json and --svg - both use the standard output")
	}
	name := rest[0]
	in, size := os.Stdin, int64(0)
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return usageError{err}
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return usagef("%s is a directory", name)
		}
		size = info.Size()
	}
	r := &watchedReader{ctx: ctx, r: in, total: size}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p := &progress{w: os.Stderr, every: 200 * time.Millisecond}
		r.report = p.report
		defer p.clear()
	}
	reports, err := trace.Read(r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if *svg != "" {
		w, done, err := openOutput(*svg)
		if err != nil {
			return usageError{err}
		}
		err = trace.SVG(w, reports)
		if cerr := done(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	out := bufio.NewWriter(os.Stdout)
	switch {
	case *asJSON:
		err = json.NewEncoder(out).Encode(reports)
	case *svg != "-":
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(out)
			}
			if err = r.Text(out); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// watchedReader reads until the context ends, and reports its progress.
type watchedReader struct {
	ctx         context.Context
	r           io.Reader
	done, total int64
	report      func(done, total int64)
}

func (w *watchedReader) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.r.Read(b)
	w.done += int64(n)
	if w.report != nil {
		w.report(w.done, w.total)
	}
	return n, err
}
