// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"bquic/internal/client"
	"bquic/internal/profile"
)

var benchCommand = command{"bench", "URL", "loads a URL many times, with one or more profiles", runBench}

func runBench(ctx context.Context, args []string) error {
	f := newClientFlags("bench", 10*time.Minute)
	names := f.String("profiles", "standard,bquic", "`PROFILES` to compare, in turn")
	repeat := f.Int("repeat", 5, "`NUMBER` of transfers with each profile")
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
	if *repeat < 1 || *repeat > 10000 {
		return usagef("--repeat: %d is not in the range 1 to 10000", *repeat)
	}
	var profiles []profile.Profile
	for name := range strings.SplitSeq(*names, ",") {
		p, err := cfg.Profiles.Get(strings.TrimSpace(name))
		if err != nil {
			return usagef("--profiles: %w", err)
		}
		profiles = append(profiles, p)
	}
	quietBuffers()

	fetch := func(p profile.Profile) (*client.Result, error) {
		o.Profile = p
		ctx, cancel := f.context(ctx)
		defer cancel()
		res, err := client.Fetch(ctx, rest[0], io.Discard, o)
		if err == nil && res.Status >= 400 {
			err = fmt.Errorf("the server answered with status %d", res.Status)
		}
		return res, err
	}
	rows, err := client.Bench(profiles, *repeat, fetch)
	if err != nil {
		return namePin(err)
	}
	if *f.json {
		return json.NewEncoder(os.Stdout).Encode(rows)
	}
	return printBench(os.Stdout, rows)
}

func printBench(w io.Writer, rows []client.Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "profile\tMbit/s\tmin\tmax\thandshake ms\tpackets/ACK\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t\n", r.Profile, r.Mbps.Median, r.Mbps.Least, r.Mbps.Most, r.HandshakeMS.Median, r.DataPerAck.Median)
	}
	return t.Flush()
}
