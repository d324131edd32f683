// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"bquic/internal/config"
	"bquic/internal/history"
	"bquic/internal/metrics"
	"bquic/internal/relay"
	"bquic/internal/status"
)

var relayCommand = command{"relay", "", "carries clients' TCP connections to a gateway", runRelay}

// relayStatus is the relay's status.
type relayStatus struct {
	status.Daemon
	Profile string `json:"profile"`
	relay.Status
}

// relaySummary is a relayStatus without the list of connections.
type relaySummary struct {
	relayStatus
	Connections *relay.ConnectionStatus `json:"connections,omitempty"` // hides the list
	Live        status.Sum              `json:"live"`
}

func summarize(st relayStatus) relaySummary {
	sum := relaySummary{relayStatus: st}
	for _, c := range st.Connections {
		sum.Live.Add(c.Burst)
	}
	return sum
}

func runRelay(ctx context.Context, args []string) error {
	f := newFlags("relay")
	file := configFlag(f)
	dryRun := f.Bool("dry-run", false, "prints what would be added to the kernel's rules, and changes nothing")
	if _, err := parseFlags(f, args, 0, 0); err != nil {
		return err
	}
	hangup := hangups()
	cfg, err := readRelay(*file)
	if err != nil {
		return err
	}
	log, level := newLogger(cfg.LogLevel)
	r, err := relay.New(cfg.Relay, log)
	if err != nil {
		return usagef("%s: relay.%w", *file, err)
	}
	if *dryRun {
		rules, err := r.DryRun(ctx)
		fmt.Fprint(&stdout, rules)
		return err
	}
	socket, err := status.Listen(cfg.Relay.StatusSocket)
	if err != nil {
		return err
	}
	defer socket.Close()
	figures, err := metrics.Listen(ctx, cfg.Relay.Metrics)
	if err != nil {
		return err
	}
	if figures != nil {
		defer figures.Close()
	}
	started := time.Now()
	var now atomic.Pointer[config.Relay]
	now.Store(cfg)
	var last atomic.Pointer[status.Reload]
	var past history.History
	go reloadOn(ctx, hangup, log, func() error {
		next, err := readRelay(*file)
		if err == nil {
			if err = r.Apply(next.Relay); err != nil {
				err = fmt.Errorf("%s: relay.%w", *file, err)
			} else {
				level.Set(next.LogLevel)
				now.Store(next)
			}
		}
		last.Store(status.NewReload(err))
		return err
	})
	return untilEnd(ctx, r.Run, func(serving context.Context) error {
		current := func() relayStatus {
			return relayStatus{status.NewDaemon(ctx, "relay", version, started, last.Load()), now.Load().Profile.Name, r.Status()}
		}
		return socket.Run(serving, status.Answers{
			status.Status:  func() any { return current() },
			status.Summary: func() any { return summarize(current()) },
			status.History: func() any { return past.Report() },
		})
	}, func(serving context.Context) error {
		return metrics.Serve(serving, figures, log, func(w *metrics.Writer) {
			w.Process("bquic_relay", version, started, last.Load().OK())
			r.Metrics(w)
		})
	}, func(serving context.Context) error {
		past.Run(serving, r.Counters)
		return nil
	})
}

// untilEnd runs a daemon until ctx ends and what it carries has ended, and the others as long. An error of one ends all.
func untilEnd(ctx context.Context, daemon func(context.Context) error, others ...func(context.Context) error) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, serving := errgroup.WithContext(serving)
	running, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(serving, stop)
	for _, other := range others {
		group.Go(func() error { return other(serving) })
	}
	group.Go(func() error {
		defer end()
		return daemon(running)
	})
	return group.Wait()
}

func readRelay(file string) (*config.Relay, error) {
	cfg, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	if !cfg.Relay.Enabled {
		return nil, usagef("%s: the relay is not enabled (option enabled '1' in config relay)", file)
	}
	return &cfg.Relay, nil
}
