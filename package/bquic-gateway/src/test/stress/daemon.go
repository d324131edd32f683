// SPDX-License-Identifier: Apache-2.0

//go:build abuse

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bquic/internal/status"
)

// A daemon is a running `bquic gateway` or `bquic relay`.
type daemon struct {
	name   string
	cmd    *exec.Cmd
	socket string // its status socket
	log    string
	ended  chan struct{}
}

// startDaemon runs bquic in a network namespace ("": this one) with a configuration, to which
// it adds a status socket, and waits until the socket answers.
func startDaemon(ctx context.Context, namespace, dir, bquic, role, config string) (*daemon, error) {
	d := &daemon{
		name:   role,
		socket: filepath.Join(dir, role+".sock"),
		log:    filepath.Join(dir, role+".log"),
		ended:  make(chan struct{}),
	}
	file := filepath.Join(dir, role+".conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	argv := []string{bquic, role, "--config", file}
	if namespace != "" {
		argv = append([]string{"ip", "netns", "exec", namespace}, argv...)
	}
	d.cmd = exec.Command(argv[0], argv[1:]...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := d.status(); err == nil {
			return d, nil
		}
		select {
		case <-d.ended:
			return nil, fmt.Errorf("bquic %s ended: %s", role, d.tail())
		case <-ctx.Done():
			d.stop()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			d.stop()
			return nil, fmt.Errorf("bquic %s does not answer: %s", role, d.tail())
		}
	}
}

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// alive is nil while it runs.
func (d *daemon) alive() error {
	select {
	case <-d.ended:
		return fmt.Errorf("bquic %s ended: %s", d.name, d.tail())
	default:
		return nil
	}
}

// tail is the end of its log.
func (d *daemon) tail() string {
	data, _ := os.ReadFile(d.log)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// A daemonStatus has the fields of a status that the harness needs.
type daemonStatus struct {
	Goroutines int    `json:"goroutines"`
	State      string `json:"state"`
	Taking     bool   `json:"taking"`
	Live       int    `json:"connections_live"`
	Carried    struct {
		Now   int64  `json:"now"`
		Total uint64 `json:"total"`
	} `json:"carried"`
	Direct struct {
		Total uint64 `json:"total"`
	} `json:"direct"`
}

func (d *daemon) status() (s daemonStatus, err error) {
	err = d.read(&s)
	return s, err
}

// read decodes the status into v.
func (d *daemon) read(v any) error {
	data, err := status.Read(d.socket)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func (d *daemon) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", d.cmd.Process.Pid, name) }

// files is the number of its open descriptors.
func (d *daemon) files() int {
	entries, _ := os.ReadDir(d.proc("fd"))
	return len(entries)
}

// rss is its current resident memory, in bytes.
func (d *daemon) rss() int64 {
	data, _ := os.ReadFile(d.proc("status"))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// cpuTime is the user and system time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// proc(5): utime and stime are fields 14 and 15, in ticks of 10 ms; the name may contain spaces.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat is too short")
	}
	user, uerr := strconv.ParseInt(fields[11], 10, 64)
	system, serr := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(uerr, serr)
}

// A watcher records the largest figures of a daemon until it is stopped.
type watcher struct {
	rss, files, goroutines atomic.Int64
	stop                   context.CancelFunc
	done                   sync.WaitGroup
}

func (d *daemon) watch(ctx context.Context) *watcher {
	w := new(watcher)
	ctx, w.stop = context.WithCancel(ctx)
	w.done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			w.rss.Store(max(w.rss.Load(), d.rss()))
			if i%10 == 0 {
				w.files.Store(max(w.files.Load(), int64(d.files())))
				if s, err := d.status(); err == nil {
					w.goroutines.Store(max(w.goroutines.Load(), int64(s.Goroutines)))
				}
			}
			pause(ctx, 50*time.Millisecond)
		}
	})
	return w
}

func (w *watcher) end() {
	w.stop()
	w.done.Wait()
}
