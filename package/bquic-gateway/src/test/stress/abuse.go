// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// memory is the gateway's soft ceiling, MiB (GOMEMLIMIT). overhead is allowed on top of
	// it: the program's own pages, and memory that the kernel still counts.
	memory   = 64
	overhead = 32

	undisturbedTime = 500 * time.Millisecond
	// rounds is the most rounds of undisturbed time and attack. There is another one while
	// the good client has kept too little so far: victim, attacker and good client share
	// the processors with everything else on the machine.
	rounds = 5
	// leastShare is the part of its undisturbed throughput that the good client must keep,
	// victimShare the same for an attack in its name.
	leastShare  = 0.5
	victimShare = 0.8
	// settleTime is how long the remains of an attack may live: the idle timeouts of a QUIC
	// connection and of a handshake, plus a margin.
	settleTime = 60 * time.Second
)

// An outcome is a row of the table.
type outcome struct {
	Attack     string  `json:"attack"`
	Doc        string  `json:"doc"`
	Seconds    float64 `json:"seconds"`
	Done       int     `json:"done"` // by the attacker
	Unit       string  `json:"unit"`
	Good       float64 `json:"good_mbps"`
	Before     float64 `json:"undisturbed_mbps"`
	Ratio      float64 `json:"good_ratio"`
	GoodErrors int64   `json:"good_errors"`
	RSS        int64   `json:"rss_max_bytes"`
	Files      int64   `json:"files_max"`
	Goroutines int64   `json:"goroutines_max"`
	Rounds     int     `json:"rounds"`
	Reconnects int     `json:"reconnects"` // of good clients, during attacks in their name
	Failure    string  `json:"failure,omitempty"`
	Ceiling    int64   `json:"rss_ceiling_bytes"`
	// For the whole run, repeated in every row.
	FirstLeft leftover `json:"before_all"`
	LastLeft  leftover `json:"after_all"`
}

type leftover struct {
	Connections int `json:"connections"`
	Files       int `json:"files"`
	Goroutines  int `json:"goroutines"`
}

// runAbuse runs attacks against its own gateway, for lasting each unless an attack has its
// own time. It writes a table and, if output is not empty, JSON. The error lists failures.
func runAbuse(ctx context.Context, bquic, output string, lasting time.Duration, names []string) error {
	dir, err := os.MkdirTemp("", "bquic-abuse-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	origin, err := startOrigin()
	if err != nil {
		return err
	}
	defer origin.Close()
	root := filepath.Join(dir, "site")
	for name, size := range map[string]int64{"big": 1 << 30, "file": 256 << 20, "page": 10 << 10} {
		if err := errors.Join(os.MkdirAll(root, 0o755), sparse(filepath.Join(root, name), size)); err != nil {
			return err
		}
	}
	comeFirst()
	os.Setenv("GOMEMLIMIT", strconv.Itoa(memory)+"MiB") // the gateway's
	gateway, err := startDaemon(ctx, "", dir, bquic, "gateway", fmt.Sprintf(`
config gateway
	option enabled '1'
	option listen '%s'
	option state_dir '%s'
	option token 'correct-horse'
	list mesh '127.0.0.0/8'
	option status_socket '%s/gateway.sock'
	option log_level 'warn'

config site
	list host '%s'
	option root '%s'

config site
	list host '%s'
	option origin 'http://%s'
`, target, dir, dir, siteHost, root, originHost, origin.Addr()))
	os.Unsetenv("GOMEMLIMIT")
	if err != nil {
		return err
	}
	defer gateway.stop()

	const ceiling = (memory + overhead) << 20
	var outcomes []outcome
	good := new(goodClient)
	// A first transfer, for one-time allocations.
	if err := good.download(ctx, make([]byte, 256<<10)); err != nil {
		return fmt.Errorf("the good client fails without any attack: %w", err)
	}
	if err := settle(ctx, gateway, leftover{}); err != nil {
		return err
	}
	before := left(gateway)

	goodCtx, stopGood := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		good.run(goodCtx)
		close(ended)
	}()
	fmt.Printf("%-20s %12s  %8s %8s %6s %4s %8s %6s %10s\n", "attack", "done", "Mbit/s", "before", "ratio", "err", "RSS MiB", "files", "goroutines")
	failed := 0
	for _, a := range attacks {
		if len(names) > 0 && !slices.Contains(names, a.name) {
			continue
		}
		if a.time == 0 {
			a.time = lasting
		}
		o := attackRounds(ctx, gateway, good, a, ceiling)
		if ctx.Err() != nil {
			break
		}
		outcomes = append(outcomes, o)
		fmt.Printf("%-20s %12d  %8.0f %8.0f %6.2f %4d %8.1f %6d %10d\n", o.Attack, o.Done, o.Good, o.Before, o.Ratio, o.GoodErrors,
			float64(o.RSS)/(1<<20), o.Files, o.Goroutines)
		if o.Failure != "" {
			fmt.Printf("  FAILED: %s\n", o.Failure)
			failed++
		}
		if gateway.alive() != nil {
			break
		}
	}
	stopGood()
	<-ended
	if err := errors.Join(ctx.Err(), gateway.alive()); err != nil {
		return err
	}
	err = settle(ctx, gateway, before)
	after := left(gateway)
	for i := range outcomes {
		outcomes[i].Ceiling, outcomes[i].FirstLeft, outcomes[i].LastLeft = ceiling, before, after
	}
	fmt.Printf("before: %d files, %d goroutines; after: %d files, %d goroutines\n",
		before.Files, before.Goroutines, after.Files, after.Goroutines)
	if failed > 0 {
		err = errors.Join(fmt.Errorf("%d of %d attacks went too well", failed, len(outcomes)), err)
	}
	if output != "" {
		err = errors.Join(err, writeJSON(output, outcomes))
	}
	return err
}

// attackRounds makes an attack, and repeats it while the good client has kept too little in
// all rounds together. Any other failure in a round is final.
func attackRounds(ctx context.Context, gateway *daemon, good *goodClient, a attack, ceiling int64) outcome {
	o := outcome{Attack: a.name, Doc: a.doc, Unit: a.unit}
	share := leastShare
	if a.victim {
		share = victimShare
	}
	var undisturbed, attacked measure
	for o.Rounds < rounds && ctx.Err() == nil {
		o.Rounds++
		o.Failure = attackOnce(ctx, gateway, good, a, ceiling, &o, &undisturbed, &attacked)
		o.Good, o.Before, o.Seconds = attacked.mbps(), undisturbed.mbps(), attacked.time.Seconds()
		o.Ratio = o.Good / max(o.Before, 1)
		if o.Failure != "" || o.Ratio >= share {
			break
		}
		o.Failure = fmt.Sprintf("the good client kept %.0f %% of its throughput", o.Ratio*100)
		if err := good.last.Load(); err != nil && o.GoodErrors > 0 {
			o.Failure += fmt.Sprintf("; %d errors, the last: %v", o.GoodErrors, *err)
		}
		if o.Rounds < rounds {
			fmt.Printf("  %s: %s; once more\n", a.name, o.Failure)
			pause(ctx, 5*time.Second)
		}
	}
	return o
}

// attackOnce makes an attack, and returns what went wrong, except for throughput.
func attackOnce(ctx context.Context, gateway *daemon, good *goodClient, a attack, ceiling int64, o *outcome, undisturbed, attacked *measure) string {
	undisturbed.during(ctx, good, max(undisturbedTime, a.time/5), nil)
	errorsBefore := good.errors.Load()

	w := gateway.watch(ctx)
	ctx, cancel := context.WithTimeout(ctx, a.time+60*time.Second)
	defer cancel()
	// A separate process, so that its work does not slow down the good client. A real attacker
	// has its own processors; this one shares them, and therefore has a lower priority.
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", os.Args[0], "attack", a.name, a.time.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	done := make(chan struct{})
	var attackErr error
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	go func() {
		attackErr = cmd.Wait()
		close(done)
	}()
	var reconnectErr error
	reconnected := make(chan struct{})
	reconnecting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(reconnected)
		if a.victim {
			n := 0
			n, reconnectErr = reconnect(reconnecting)
			o.Reconnects += n
		}
	}()
	attacked.during(ctx, good, a.time, done)
	stop()
	<-reconnected
	<-done
	w.end()

	o.GoodErrors += good.errors.Load() - errorsBefore
	o.RSS, o.Files, o.Goroutines = max(o.RSS, w.rss.Load()), max(o.Files, w.files.Load()), max(o.Goroutines, w.goroutines.Load())
	n, _ := strconv.Atoi(strings.TrimSpace(out.String()))
	o.Done += n
	switch {
	case gateway.alive() != nil:
		return gateway.alive().Error()
	case attackErr != nil:
		return fmt.Sprintf("the attacker says: %v: %s", attackErr, lastLine(problems.String()))
	case n == 0:
		return "the attacker did nothing"
	case reconnectErr != nil:
		return reconnectErr.Error()
	case o.RSS > ceiling:
		return fmt.Sprintf("RSS reached %.1f MiB, the ceiling is %d MiB", float64(o.RSS)/(1<<20), ceiling>>20)
	}
	return ""
}

// comeFirst gives this process, and all processes that it starts, a higher priority than
// anything else on the machine, because the gateway is measured. Without permission, nothing
// changes.
func comeFirst() {
	// The kernel first divides the processors among sessions (sched(7), autogroup).
	_ = os.WriteFile("/proc/self/autogroup", []byte("-10"), 0)
	threads, _ := os.ReadDir("/proc/self/task") // new ones inherit it
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -10)
		}
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func left(d *daemon) leftover {
	s, _ := d.status()
	return leftover{s.Live, d.files(), s.Goroutines}
}

// settle waits until nothing is left of connections: no more descriptors and goroutines than
// before, or, if before is zero, no live connections.
func settle(ctx context.Context, d *daemon, before leftover) error {
	var now leftover
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline) && ctx.Err() == nil; {
		s, err := d.status()
		now = left(d)
		switch {
		case err != nil:
			return err
		case before == leftover{} && s.Live == 0:
			pause(ctx, time.Second) // its goroutines end
			return ctx.Err()
		// A few may remain (timers, finalizers, idle connections to origins).
		case before != leftover{} && s.Live <= before.Connections && now.Files <= before.Files+4 && now.Goroutines <= before.Goroutines+4:
			return nil
		}
		pause(ctx, time.Second)
	}
	if before == (leftover{}) {
		return nil
	}
	return fmt.Errorf("%d descriptors and %d goroutines are left, of %d and %d before", now.Files, now.Goroutines, before.Files, before.Goroutines)
}

// runAttack is the attacker's process.
func runAttack(name string, lasting time.Duration) error {
	for _, a := range attacks {
		if a.name == name {
			ctx, cancel := context.WithTimeout(context.Background(), lasting)
			defer cancel()
			n, err := a.do(ctx)
			fmt.Println(n)
			return err
		}
	}
	return fmt.Errorf("no attack %q", name)
}

// An originServer has /sink, which reads its requests, and /stall, which does not.
type originServer struct {
	*http.Server
	ln net.Listener
}

func startOrigin() (*originServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/sink", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/stall", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	o := &originServer{&http.Server{Handler: mux}, ln}
	go o.Serve(ln)
	return o, nil
}

func (o *originServer) Addr() net.Addr { return o.ln.Addr() }

// sparse makes a file of zeros.
func sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
