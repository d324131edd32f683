// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/term"

	"bquic/internal/cert"
	"bquic/internal/client"
	"bquic/internal/config"
)

var fetchCommand = command{"fetch", "URL", "loads a URL over HTTP/3 and measures how fast", runFetch}

// clientFlags are the flags that fetch and bench share.
type clientFlags struct {
	*flag.FlagSet
	config, pin, ca, local *string
	insecure, json         *bool
	timeout                *time.Duration
}

func newClientFlags(name string, timeout time.Duration) clientFlags {
	f := newFlags(name)
	return clientFlags{
		FlagSet:  f,
		config:   f.String("config", config.DefaultFile, "configuration `FILE` with your own profiles"),
		pin:      f.String("pin", "", "accepts only the server with this `KEY` (sha256/...)"),
		ca:       f.String("ca", "", "PEM `FILE` with the authorities to trust"),
		insecure: f.Bool("insecure", false, "accepts any certificate"),
		local:    f.String("local-addr", "", "`ADDRESS` to send from"),
		json:     f.Bool("json", false, "prints JSON"),
		timeout:  f.Duration("timeout", timeout, "`TIME` limit of one transfer, such as 30s; 0 for none"),
	}
}

// options returns the options that the flags set, and the configuration.
func (f clientFlags) options() (o client.Options, cfg *config.Config, err error) {
	if cfg, err = readConfigIfAny(f.FlagSet, *f.config); err != nil {
		return o, nil, err
	}
	if *f.pin != "" {
		pin, err := cert.ParsePin(*f.pin)
		if err != nil {
			return o, nil, usagef("--pin: %w", err)
		}
		o.Pin = &pin
	}
	if *f.local != "" {
		if o.LocalAddr, err = netip.ParseAddr(*f.local); err != nil {
			return o, nil, usagef("--local-addr: %q is not an IP address", *f.local)
		}
	}
	if *f.timeout < 0 {
		return o, nil, usagef("--timeout: %s is negative", *f.timeout)
	}
	o.CAFile, o.Insecure = *f.ca, *f.insecure
	return o, cfg, nil
}

func (f clientFlags) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if *f.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, *f.timeout)
}

func runFetch(ctx context.Context, args []string) error {
	f := newClientFlags("fetch", 10*time.Minute)
	name := f.String("profile", "bquic", "`PROFILE` of this client")
	output := f.String("o", "", "`FILE` to write the body to, - for the standard output (default: discarded)")
	upload := f.String("upload", "", "`FILE` to send by POST")
	qlog := f.String("qlog", "", "`FILE` to record the connection in, for bquic trace")
	rest, err := parseFlags(f.FlagSet, args, 1, 1)
	if err != nil {
		return err
	}
	if _, err := client.ParseURL(rest[0]); err != nil {
		return usageError{err}
	}
	o, cfg, err := f.options()
	if err != nil {
		return err
	}
	if o.Profile, err = cfg.Profiles.Get(*name); err != nil {
		return usagef("--profile: %w", err)
	}
	if *f.json && *output == "-" {
		return usagef("--json and -o - both use the standard output")
	}
	for option, name := range map[string]string{"-o": *output, "--qlog": *qlog} {
		if sameFile(*upload, name) {
			return usagef("%s would overwrite %s, the file to send", option, *upload)
		}
	}
	o.Upload = *upload
	quietBuffers()

	if *qlog != "" {
		if o.Qlog, err = os.Create(*qlog); err != nil {
			return usageError{err}
		}
	}
	w, done, err := openOutput(*output)
	if err != nil {
		return usageError{err}
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p := &progress{w: os.Stderr, every: 200 * time.Millisecond}
		o.Progress = p.report
		defer p.clear()
	}
	ctx, cancel := f.context(ctx)
	defer cancel()
	res, err := client.Fetch(ctx, rest[0], w, o)
	if cerr := done(); err == nil {
		err = cerr
	}
	if err != nil {
		return namePin(err)
	}
	if *f.json {
		if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
			return err
		}
	} else {
		text := io.Writer(&stdout)
		if *output == "-" {
			text = os.Stderr
		}
		printResult(text, res)
	}
	if res.Status >= 400 {
		return fmt.Errorf("the server answered with status %d", res.Status)
	}
	return nil
}

// namePin adds the --pin option for a self-signed gateway to the error.
func namePin(err error) error {
	if unknown := (*client.UnknownKeyError)(nil); errors.As(err, &unknown) {
		return fmt.Errorf("%w\nself-signed: if `bquic status` of the gateway shows this key, give --pin %s", err, unknown.Pin)
	}
	return err
}

// sameFile reports whether two names are those of one existing file.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && x.Mode().IsRegular() && os.SameFile(x, y)
}

func openOutput(name string) (io.Writer, func() error, error) {
	switch name {
	case "":
		return io.Discard, func() error { return nil }, nil
	case "-":
		return os.Stdout, func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return f, f.Close, nil // the reader of a pipe waits for each piece
	}
	// If each packet were written separately, each write would wake Go's
	// monitoring thread. On a router, that is a fifth of the cost of a byte.
	buffered := bufio.NewWriterSize(struct{ io.Writer }{f}, 64<<10) // hides f.ReadFrom, which would bypass the buffer
	return buffered, func() error { return cmp.Or(buffered.Flush(), f.Close()) }, nil
}

func printResult(w io.Writer, r *client.Result) {
	s := &r.Stats
	fmt.Fprintf(w, "%s\n", r.URL)
	fmt.Fprintf(w, "  status       %d (%s), profile %s, from %s\n", r.Status, r.Protocol, r.Profile, r.LocalAddr)
	fmt.Fprintf(w, "  transfer     %d bytes in %.3f s: %.2f Mbit/s\n", r.Bytes, r.Seconds, r.Mbps)
	fmt.Fprintf(w, "  handshake    %.1f ms\n", r.HandshakeMS)
	fmt.Fprintf(w, "  RTT          %.1f ms minimum, %.1f ms smoothed\n", ms(s.MinRTT), ms(s.SmoothedRTT))
	fmt.Fprintf(w, "  received     %d packets, %d ACKs sent: %.1f packets per ACK\n", s.PacketsReceived, s.AcksSent, r.DataPerAck)
	fmt.Fprintf(w, "  sent         %d packets, %d lost (%d of them spuriously), %d ACKs received: %.1f packets per ACK\n",
		s.PacketsSent, s.PacketsLost, s.PacketsLostSpurious, s.AcksReceived, s.DataPerAckReceived())
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// quietBuffers silences quic-go's advice about UDP buffers. A client for a single
// transfer is no reason to tune the system.
func quietBuffers() { os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") }

// progress shows a progress line on a terminal.
type progress struct {
	w           io.Writer
	every       time.Duration
	start, last time.Time
}

func (p *progress) report(done, total int64) {
	now := time.Now()
	if p.start.IsZero() {
		p.start = now
	}
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	share := ""
	if total > 0 {
		share = fmt.Sprintf(" (%d %%)", done*100/total)
	}
	fmt.Fprintf(p.w, "\r\x1b[K%.1f MB%s", float64(done)/1e6, share)
	if s := now.Sub(p.start).Seconds(); s > 0 {
		fmt.Fprintf(p.w, "  %.1f Mbit/s", float64(done)*8/s/1e6)
	}
}

func (p *progress) clear() { fmt.Fprint(p.w, "\r\x1b[K") }
