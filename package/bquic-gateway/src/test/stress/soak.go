// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	soakSample = 5 * time.Second
	soakReload = time.Minute
	// The part of the time in which caches and pools reach their size.
	soakWarmup = 6 // a sixth
	// soakGrowth is how much a straight line through the RSS may rise from warm-up to end:
	// memory fluctuates by more than a small leak.
	soakGrowth = 4 << 20
	soakBusy   = 64 // connections with transfers
)

type soakResults struct {
	Seconds float64      `json:"seconds"`
	Traffic soakTraffic  `json:"traffic"`
	Reloads int          `json:"reloads"`
	Daemons []soakDaemon `json:"daemons"`
}

type soakTraffic struct {
	Transfers int64 `json:"transfers"`
	Bytes     int64 `json:"bytes"`
	Errors    int64 `json:"errors"`
}

type soakDaemon struct {
	Name   string   `json:"name"`
	RSS    []int64  `json:"rss_bytes"` // every soakSample
	Slope  float64  `json:"slope_bytes_per_hour"`
	Growth float64  `json:"growth_bytes"` // since the warm-up
	Before leftover `json:"before"`
	After  leftover `json:"after"`
}

// runSoak runs many small and some large transfers through relay and gateway, over the emulated
// medium. It reloads both every minute, and fails if memory, descriptors or goroutines grow.
func runSoak(ctx context.Context, bquic, output string, lasting time.Duration, medium string) error {
	b, err := newBed()
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.medium(ctx, medium); err != nil {
		return err
	}
	err = errors.Join(b.start("origin", "echo", originAddr), b.startGateway(ctx, bquic, "bquic", ""))
	if err == nil {
		err = b.startRelay(ctx, bquic, "bquic")
	}
	if err != nil {
		return err
	}
	daemons := []*daemon{b.gateway, b.relay}
	var results soakResults
	for _, d := range daemons {
		results.Daemons = append(results.Daemons, soakDaemon{Name: d.name, Before: left(d)})
	}

	cmd := b.command("phone", os.Args[0], "transfers", originAddr, fmt.Sprint(lasting))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	traffic := make(chan error, 1)
	go func() {
		err := json.NewDecoder(out).Decode(&results.Traffic)
		traffic <- errors.Join(err, cmd.Wait())
	}()
	start, reloaded, said := time.Now(), time.Now(), time.Now()
	sample := time.NewTicker(soakSample)
	defer sample.Stop()
	for busy := true; busy; {
		select {
		case err = <-traffic:
			busy = false
		case <-ctx.Done():
			return ctx.Err()
		case <-sample.C:
			for i, d := range daemons {
				if err := d.alive(); err != nil {
					return err
				}
				results.Daemons[i].RSS = append(results.Daemons[i].RSS, d.rss())
			}
		}
		if time.Since(reloaded) >= soakReload {
			for _, d := range daemons {
				_ = d.cmd.Process.Signal(syscall.SIGHUP)
			}
			results.Reloads++
			reloaded = time.Now()
		}
		if time.Since(said) >= time.Minute {
			said = time.Now()
			fmt.Printf("%4.0f s: RSS %.1f MiB gateway, %.1f MiB relay\n", time.Since(start).Seconds(), mib(b.gateway.rss()), mib(b.relay.rss()))
		}
	}
	results.Seconds = time.Since(start).Seconds()
	if err != nil {
		return err
	}
	t := results.Traffic
	fmt.Printf("%.0f s, %d transfers, %.0f MB, %d errors, %d reloads\n", results.Seconds, t.Transfers, float64(t.Bytes)/1e6, t.Errors, results.Reloads)
	if t.Errors > 0 || t.Transfers == 0 {
		err = fmt.Errorf("%d transfers failed", t.Errors)
	}
	for i, d := range daemons {
		r := &results.Daemons[i]
		steady := r.RSS[len(r.RSS)/soakWarmup:]
		slope := slope(steady) // bytes per sample
		r.Growth = slope * float64(len(steady))
		r.Slope = slope * float64(time.Hour/soakSample)
		err = errors.Join(err, settle(ctx, d, r.Before))
		r.After = left(d)
		fmt.Printf("%-8s RSS grows by %+.2f MiB an hour, %+.2f MiB since the warm-up; %d files, %d goroutines before, %d and %d after\n", r.Name,
			r.Slope/(1<<20), r.Growth/(1<<20), r.Before.Files, r.Before.Goroutines, r.After.Files, r.After.Goroutines)
		if r.Growth > soakGrowth {
			err = errors.Join(err, fmt.Errorf("%s: RSS grew by %.1f MiB", r.Name, r.Growth/(1<<20)))
		}
	}
	if output != "" {
		err = errors.Join(err, writeJSON(output, []soakResults{results}))
	}
	return err
}

// slope is the slope of the least-squares line through ys.
func slope(ys []int64) float64 {
	n := float64(len(ys))
	if n < 2 {
		return 0
	}
	var sx, sy, sxx, sxy float64
	for i, y := range ys {
		x, y := float64(i), float64(y)
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

// runTransfers runs the clients of a soak: connection after connection, most of a few KB, some
// of half a MB, some half-closed or reset.
func runTransfers(ctx context.Context, address string, lasting time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	var t struct{ transfers, bytes, errors atomic.Int64 }
	var wg sync.WaitGroup
	for range soakBusy {
		wg.Go(func() {
			for ctx.Err() == nil {
				size := 1<<10 + rand.N(16<<10)
				if rand.N(100) == 0 {
					size = 256<<10 + rand.N(512<<10)
				}
				n, err := transfer(address, size)
				t.bytes.Add(n)
				if err != nil {
					if t.errors.Add(1) <= 10 {
						fmt.Fprintln(os.Stderr, "transfer:", err)
					}
				}
				t.transfers.Add(1)
				pause(ctx, rand.N(200*time.Millisecond))
			}
		})
	}
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(soakTraffic{t.transfers.Load(), t.bytes.Load(), t.errors.Load()})
}

func transfer(address string, size int) (int64, error) {
	conn, err := net.DialTimeout("tcp", address, 30*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	switch rand.N(20) {
	case 0: // reset
		_, err = conn.Write(garbage(100))
		_ = conn.(*net.TCPConn).SetLinger(0)
		return 100, err
	case 1: // closes its own direction first
		if _, err = conn.Write(garbage(size)); err == nil {
			err = conn.(*net.TCPConn).CloseWrite()
		}
		if err != nil {
			return 0, err
		}
		n, err := io.Copy(io.Discard, conn)
		if err == nil && n != int64(size) {
			err = fmt.Errorf("%d bytes came back", n)
		}
		return 2 * n, err
	}
	return 2 * int64(size), echo(conn, size)
}
